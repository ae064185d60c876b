package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/store"
)

// TestStartWaitsForTheStore verifies how long the start waits for the first reply of the store, and
// which lines it logs.
func TestStartWaitsForTheStore(t *testing.T) {
	const never = time.Hour
	for name, tt := range map[string]struct {
		answers, signal time.Duration // after the start
		waits           time.Duration
		logs            []string
	}{
		"a healthy store":  {answers: 10 * time.Millisecond, signal: never, waits: 10 * time.Millisecond},
		"a slow store":     {answers: storeStartTimeout - time.Millisecond, signal: never, waits: storeStartTimeout - time.Millisecond},
		"a late store":     {answers: 3 * time.Second, signal: never, waits: storeStartTimeout, logs: []string{"error", "info"}},
		"no store":         {answers: never, signal: time.Minute, waits: storeStartTimeout, logs: []string{"error"}},
		"an early SIGTERM": {answers: never, signal: 300 * time.Millisecond, waits: 300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			ctx, cancel := context.WithTimeout(t.Context(), tt.signal)
			defer cancel()
			began := time.Now()
			reached := func(ctx context.Context) bool {
				select {
				case <-time.After(time.Until(began.Add(tt.answers))):
					return true
				case <-ctx.Done():
					return false
				}
			}
			group, ctx := errgroup.WithContext(ctx)
			flags := storeFlags{Options: store.Options{Fallback: store.Deny}}
			flags.awaitStore(ctx, group, reached, zap.New(core))
			if waited := time.Since(began); waited != tt.waits {
				t.Errorf("%s: the start waited for %v, want %v", name, waited, tt.waits)
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			lines := logs.All()
			if len(lines) != len(tt.logs) {
				t.Fatalf("%s: %d lines, want %v: %v", name, len(lines), tt.logs, lines)
			}
			for i, line := range lines {
				if line.Level.String() != tt.logs[i] {
					t.Errorf("%s: line %d is %v, want level %s", name, i, line, tt.logs[i])
				}
			}
			if fields := logs.FilterField(zap.String("fallback", "deny")).Len(); len(tt.logs) > 0 && fields != 1 {
				t.Errorf("%s: %d lines name the fallback, want one", name, fields)
			}
		})
	}
}
