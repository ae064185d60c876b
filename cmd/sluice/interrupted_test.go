package main

import (
	"context"
	"strings"
	"testing"
)

// TestInterruptedCommand cancels a command before it has finished.
func TestInterruptedCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	code := run(ctx, []string{"sluice", "simulate", "-", "--config", "../../examples/quickstart", "--descriptor", "user={:path}"},
		console{strings.NewReader(`{"time": "2026-11-21T09:00:00Z", ":path": "/"}` + "\n"), &out, &out})
	if code != 1 || out.String() != "sluice: interrupted\n" {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}
