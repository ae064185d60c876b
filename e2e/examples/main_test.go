package examples_test

import (
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = "../.."

const patience = suite.Patience

// sluiceDir is the directory of the sluice that TestMain built.
var sluiceDir, sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, dir string) { sluiceBinary, sluiceDir = binary, dir }))
}
