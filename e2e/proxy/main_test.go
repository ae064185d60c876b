// Package proxy tests sluice behind the real Envoy: what clients see of limits, and that they
// notice no reload, restart or shutdown.
package proxy_test

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = "../.."

// sluiceBinary is built by TestMain.
var sluiceBinary string

func TestMain(m *testing.M) {
	var flags []string
	if raceEnabled() {
		flags = append(flags, "-race")
	}
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }, flags...))
}

// raceEnabled reports whether the tests, and therefore sluice, run with the race detector.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
