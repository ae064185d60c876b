package xds

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait after a stream has ended. The wait grows with each stream
// that ends before it brings a response.
type Backoff struct {
	// Initial is the first wait, Max the longest. Default 10s and 60s.
	Initial, Max time.Duration
	// Factor multiplies each further wait. With 1 or less every wait is Initial, as in
	// envoyproxy/ratelimit, whose default is 0.5. 0 means 2.
	Factor float64
	// Jitter shortens every wait by a random part, at most half. Without it all clients
	// of one server come back at the same time.
	Jitter bool
}

func (b Backoff) withDefaults() Backoff {
	if b.Initial <= 0 {
		b.Initial = 10 * time.Second
	}
	if b.Max <= 0 {
		b.Max = time.Minute
	}
	if b.Factor == 0 {
		b.Factor = 2
	}
	return b
}

// wait returns how long to wait after that many earlier failures in a row.
func (b Backoff) wait(failures int) time.Duration {
	wait := float64(min(b.Initial, b.Max))
	for range failures {
		if b.Factor <= 1 || wait >= float64(b.Max) {
			break
		}
		wait *= b.Factor
	}
	d := time.Duration(min(wait, float64(b.Max)))
	if b.Jitter {
		d = jitter(d)
	}
	return d
}

// jitter returns a random part of d, from half to all of it.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // nothing secret
}

// sleep waits for d and reports whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
