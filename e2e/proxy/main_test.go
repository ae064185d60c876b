// Package proxy tests sluice behind the real Envoy: what a client sees of limits,
// and that it sees nothing of reloads, restarts and shutdowns.
package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// root is the repository's root, seen from here.
const root = "../.."

// sluiceBinary is what TestMain built for all tests.
var sluiceBinary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice-proxy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var flags []string
	if raceEnabled() {
		flags = append(flags, "-race")
	}
	sluiceBinary, err = sluice.Build(context.Background(), root, dir, flags...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// raceEnabled reports whether these tests run under the race detector; then
// sluice does so too.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// envoyBinary returns the path of Envoy, or skips the test where none is
// installed. Under `make test` there is one.
func envoyBinary(t *testing.T) string {
	t.Helper()
	binary, err := envoy.Find(root)
	if errors.Is(err, envoy.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
