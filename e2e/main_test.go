package e2e_test

import (
	"os"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = ".."

// programs contains the binaries built by TestMain.
var programs struct{ sluice string }

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { programs.sluice = binary }))
}
