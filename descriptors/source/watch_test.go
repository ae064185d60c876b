package source

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

func TestWaitQuiet(t *testing.T) {
	const settle = 100 * time.Millisecond
	for _, tt := range []struct {
		name   string
		events int // 60ms apart
		want   time.Duration
	}{
		{"no events", 0, settle},
		{"three events", 3, 3*60*time.Millisecond + settle},
		{"a busy neighbour", 1000, 10 * settle},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				defer func() { <-done }()
				defer cancel()
				events := make(chan fsnotify.Event)
				w := &watcher{events: events}
				go func() {
					defer close(done)
					for range tt.events {
						select {
						case <-time.After(60 * time.Millisecond): // fake time
						case <-ctx.Done():
							return
						}
						select {
						case events <- fsnotify.Event{}:
						case <-ctx.Done():
							return
						}
					}
				}()
				start := time.Now()
				if !w.waitQuiet(ctx, settle) {
					t.Error("quiet = false, want true")
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("quiet took %v, want %v", got, tt.want)
				}
				cancel()
				if w.waitQuiet(ctx, settle) {
					t.Error("quiet of an ended context = true, want false")
				}
			})
		})
	}
}
