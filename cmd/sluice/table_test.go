package main

import (
	"io"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/client"
)

// TestChangesAreBounded verifies that no replica can block a change for ever.
func TestChangesAreBounded(t *testing.T) {
	f := replicasFlags{Addr: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	must.OK(t, f.change(t.Context(), console{out: io.Discard}, func(at *client.Debug) (string, error) {
		if at.Timeout == 0 {
			t.Errorf("no timeout at %s, dry run %t", at.Addr, at.DryRun)
		}
		return "", nil
	}))
}
