//go:build more

package store

import (
	"context"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestAwait checks that Await waits until all primaries have answered, or until its context ends.
// After it has returned true, the store decides even the first request.
func TestAwait(t *testing.T) {
	t.Parallel()
	one, cluster := storetest.Start(t), storetest.StartCluster(t, 3, false)
	r := newRelay(t, one.Addr, nil, false)
	r.setBlocked(true)
	for name, server := range map[string]redis.Server{"one server": {Network: "tcp", Address: r.addr}, "a cluster": nodes(cluster)} {
		o := &recorder{}
		s := runStore(t, Options{Server: server, Fallback: Deny, Observer: o})
		ctx, cancel := context.WithCancel(t.Context())
		if name == "one server" {
			go cancel()
			if s.Await(ctx) {
				t.Errorf("%s: Await returned true without a connection", name)
			}
			r.setBlocked(false)
		}
		cancel()
		if !s.Await(t.Context()) || !s.Up() {
			t.Errorf("%s: Await returned false", name)
		}
		var c caller
		charges := make([]limiter.Charge, 60) // on counters in the slots of all primaries
		for i := range charges {
			charges[i] = oneHit(uint64(i+1), hugeBucket)
		}
		must.OK(t, c.decide(s, charges...))
		if fallback, _ := o.decisions(); fallback > 0 || c.b.Denied {
			t.Errorf("%s: the fallback decided %d charges of the first request", name, fallback)
		}
	}
}
