package suite

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// StartSluice starts sluice, and ends it with the test. A panic or a data race in its log fails the test.
func StartSluice(tb testing.TB, o sluice.Options) *sluice.Sluice {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	s, err := sluice.Start(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Kill()
		for _, bad := range []string{"panic", "fatal error", "DATA RACE"} {
			if log := s.Log(); strings.Contains(log, bad) {
				tb.Errorf("sluice logged %q:\n%s", bad, log)
				break
			}
		}
	})
	return s
}

// StartEnvoy starts the Envoy of the repository at root, and ends it with the test. Its directory is temporary unless
// it is given.
func StartEnvoy(tb testing.TB, root string, o envoy.Options) *envoy.Envoy {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	o.Binary = Envoy(tb, root)
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	e, err := envoy.Start(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Kill)
	return e
}

// StartBackend starts a backend, and ends it with the test.
func StartBackend(tb testing.TB) *backend.Backend {
	tb.Helper()
	b, err := backend.Start(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// ShortDir returns a temporary directory whose path is short enough for a socket in it. That of [testing.TB.TempDir]
// may be too long.
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // its path is too long
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// WriteRules returns the path of a new file of rules.
func WriteRules(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "rules.yaml")
	Replace(tb, path, text)
	return path
}

// Replace writes a file in one step, in the place of another if there is one.
func Replace(tb testing.TB, path, text string) {
	tb.Helper()
	next := filepath.Join(filepath.Dir(path), ".next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		tb.Fatal(err)
	}
}
