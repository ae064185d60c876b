package e2e_test

import (
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// root is the repository's root, seen from here.
const root = ".."

// programs holds what TestMain built for all tests.
var programs struct{ sluice string }

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { programs.sluice = binary }))
}
