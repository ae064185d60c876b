package xds

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff configures the delay after a stream has ended, which grows with each stream that ends
// before its first response.
type Backoff struct {
	Initial time.Duration `name:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" hidden:"" range:"1ns..87600h" default:"10s" placeholder:"TIME" help:"Delay before reconnecting after a stream has ended."`
	Max     time.Duration `name:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" hidden:"" range:"1ns..87600h" default:"60s" placeholder:"TIME" help:"Maximum delay before reconnecting."`
	// Factor is 0.5 by default in envoyproxy/ratelimit.
	Factor float64 `name:"XDS_CLIENT_BACKOFF_RANDOM_FACTOR" hidden:"" default:"2" placeholder:"FACTOR" help:"Factor by which the delay grows with each attempt. 1 or less keeps it constant."`
	// Without Jitter all clients of one server reconnect at the same time.
	Jitter bool `name:"XDS_CLIENT_BACKOFF_JITTER" hidden:"" default:"true" negatable:"" help:"Shorten each delay at random by up to half."`
}

// wait returns the delay after the given number of consecutive failures.
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

// jitter returns a random duration from half of d to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // nothing secret
}

// sleep waits for d. It returns false if ctx ended.
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
