// Package suite is how tests of the real binaries begin, and how they wait.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// Patience bounds how long a test waits for an event. It ends a test that hangs and decides nothing else, so it is
// long enough for a machine with 30 runnable processes on each core.
const Patience = 3 * time.Minute

// Main is the body of a TestMain. It builds sluice from the repository at root with
// these flags of `go build`, and calls built with the binary's path and a directory
// that is removed after the tests. It returns the tests' exit code, or 1 if they leave
// goroutines behind.
func Main(m *testing.M, root string, built func(binary, dir string), flags ...string) int {
	code, err := run(m, root, built, flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, root string, built func(binary, dir string), flags []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "sluice-test-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, err := sluice.Build(context.Background(), root, dir, flags...)
	if err != nil {
		return 0, err
	}
	built(binary, dir)
	if code = m.Run(); code != 0 {
		return code, nil
	}
	return 0, goleak.Find()
}

// Envoy returns the path of Envoy, or skips the test where none is installed. Under
// `make test` there is one.
func Envoy(tb testing.TB, root string) string {
	tb.Helper()
	binary, err := envoy.Find(root)
	if errors.Is(err, envoy.ErrNotInstalled) {
		Skip(tb, err.Error())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return binary
}

// Eventually asks until the answer is yes. If it stays no for [Patience], the test ends
// and says what was awaited.
func Eventually(tb testing.TB, awaited string, yes func() bool) {
	tb.Helper()
	end := time.NewTimer(Patience)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("after %v still no: %s", Patience, awaited)
		}
	}
}
