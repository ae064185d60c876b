// Package proxy tests sluice behind the real Envoy: what clients see of limits, and that
// they see nothing of reloads, restarts and shutdowns.
package proxy_test

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// root is the repository's root, seen from here.
const root = "../.."

// sluiceBinary is what TestMain built for all tests.
var sluiceBinary string

func TestMain(m *testing.M) {
	var flags []string
	if raceEnabled() {
		flags = append(flags, "-race")
	}
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }, flags...))
}

// raceEnabled reports whether these tests, and so sluice, run under the race detector.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
