package examples_test

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

// root is the repository's root, seen from here.
const root = "../.."

// patience is how long anything may take before a test gives up: far more than it
// ever needs.
const patience = time.Minute

// sluiceDir holds the sluice that TestMain built for all tests.
var sluiceDir, sluiceBinary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice-examples-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sluiceDir = dir
	sluiceBinary, err = sluice.Build(context.Background(), root, dir)
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

// eventually asks until the answer is yes. If it stays no, the test ends with
// what was awaited.
func eventually(t *testing.T, awaited string, yes func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("after %v still no: %s", patience, awaited)
		}
	}
}
