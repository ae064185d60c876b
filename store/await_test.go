package store

import (
	"context"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// After a start the store decides the very first requests once all primaries have answered. While
// one does not answer, Await blocks until its context ends.
func TestAwait(t *testing.T) {
	t.Parallel()
	one, all := storetest.Start(t), storetest.StartCluster(t, 3, false)
	behind := newRelay(t, one.Addr, nil, false)
	behind.setBlocked(true)
	for name, server := range map[string]redis.Server{"one server": {Network: "tcp", Address: behind.addr}, "a cluster": nodes(all)} {
		o := &recorder{}
		s := runStore(t, Options{Server: server, Fallback: Deny, Observer: o})
		ended, end := context.WithCancel(t.Context())
		if name == "one server" {
			go end()
			if s.Await(ended) {
				t.Errorf("%s: Await returned true without a connection", name)
			}
			behind.setBlocked(false)
		}
		end()
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
