// Package suite contains the set-up of tests of the real binaries, and waits for events.
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
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// Patience is a time limit for expected events in tests that must end before the timeout of
// `go test`. It suffices for a machine with 30 runnable processes per core.
const Patience = 3 * time.Minute

// Tests are the tests of a package: a [testing.M].
type Tests interface{ Run() (code int) }

// Main is the body of a TestMain. It builds sluice from the repository at root with the given flags
// of `go build`, and calls built with the path of the binary and a directory that is removed after
// the tests. It returns the exit code of the tests, or 1 if they leak goroutines.
func Main(m Tests, root string, built func(binary, dir string), flags ...string) int {
	code, err := run(m, root, built, flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m Tests, root string, built func(binary, dir string), flags []string) (code int, err error) {
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

// Envoy returns the path of Envoy, or skips the test if none is installed. `make test` installs
// one.
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

// Eventually is [must.Eventually].
func Eventually(tb testing.TB, description string, condition func() bool) {
	tb.Helper()
	must.Eventually(tb, description, condition)
}
