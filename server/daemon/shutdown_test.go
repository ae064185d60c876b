package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitForShutdown(t *testing.T) {
	const bound = 40 * time.Second
	failed := errors.New("a listener failed")
	for _, tt := range []struct {
		name  string
		takes time.Duration // after the end of ctx
		err   error
		want  string
		after time.Duration
	}{
		{"at once", 0, nil, "", 0},
		{"in time", bound - 1, nil, "", bound - 1},
		{"with an error", time.Second, failed, failed.Error(), time.Second},
		{"never", 24 * time.Hour, nil, "timed out after 40s", bound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Hour, cancel)
				start := time.Now()
				err := waitForShutdown(ctx, bound, func() error {
					<-ctx.Done()
					time.Sleep(tt.takes)
					return tt.err
				})
				if got := time.Since(start) - time.Hour; got != tt.after {
					t.Errorf("it took %v, want %v", got, tt.after)
				}
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("error is %v, want %q", err, tt.want)
				}
				time.Sleep(tt.takes) // until the abandoned goroutine has ended
			})
		})
	}
	t.Run("before the signal", func(t *testing.T) {
		if err := waitForShutdown(t.Context(), bound, func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("error is %v, want %v", err, failed)
		}
	})
}
