// Package proxy tests sluice behind the real Envoy: the effect of limits on clients, and that
// reloads, restarts and shutdowns have no effect on them.
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
	os.Exit(suite.Main(thenStop{m}, root, func(binary, _ string) { sluiceBinary = binary }, flags...))
}

// raceEnabled reports whether the tests, and therefore sluice, run with the race detector.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
