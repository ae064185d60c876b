package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// StartSluice starts sluice and stops it when the test ends. A panic or a data race in its log
// fails the test. Clients of a busy machine have an hour to connect and to acknowledge a PING,
// unless the arguments contain other values.
func StartSluice(tb testing.TB, o sluice.Options) *sluice.Sluice {
	tb.Helper()
	o.Args = append([]string{"--connection-timeout=1h", "--keepalive-timeout=1h"}, o.Args...)
	s, err := sluice.Start(tb.Context(), o)
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

// StartEnvoy starts the Envoy of the repository at root and stops it when the test ends. Default
// for o.Dir: a temporary directory.
func StartEnvoy(tb testing.TB, root string, o envoy.Options) *envoy.Envoy {
	tb.Helper()
	o.Binary = Envoy(tb, root)
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	e, err := envoy.Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Kill)
	return e
}

// StartBackend starts a backend and closes it when the test ends.
func StartBackend(tb testing.TB) *backend.Backend {
	tb.Helper()
	b, err := backend.Start(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// ShortDir returns a temporary directory whose path is short enough for a Unix socket, unlike that
// of [testing.TB.TempDir].
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // TempDir's path is too long
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// WriteRules writes a new file of rules and returns its path.
func WriteRules(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "rules.yaml")
	Replace(tb, path, text)
	return path
}

// Replace writes a file atomically by a rename.
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
