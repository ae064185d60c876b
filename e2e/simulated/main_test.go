package simulated_test

import (
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// root is the repository's root.
const root = "../.."

var binary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(path, _ string) { binary = path }))
}
