//go:build more

package store

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A penalty applies at all replicas, also during an outage, until it is over or reset. A client
// that continues to send costs the store one charge a second.
func TestPenaltiesAreShared(t *testing.T) {
	t.Parallel()
	steps := []time.Duration{2 * time.Minute, 5 * time.Minute}
	for _, p := range []limiter.Policy{
		{Algorithm: limiter.FixedWindow, CountRefused: true},
		{Algorithm: limiter.FixedWindow},
		{Algorithm: limiter.SlidingWindow, SubWindows: 6},
		{Algorithm: limiter.SlidingLog, CountRefused: true},
		{Algorithm: limiter.TokenBucket, Burst: 2},
	} {
		p.Limit, p.Window, p.Penalty = 2, time.Minute, limiter.NewPenalty(steps...)
		t.Run(fmt.Sprint(p.Algorithm, p.CountRefused), func(t *testing.T) {
			t.Parallel()
			srv := storetest.Start(t)
			o := &recorder{}
			var now atomic.Int64 // read by all clocks
			now.Store(1_900_000_000_999_999_999)
			clock := func() time.Time { return time.Unix(0, now.Load()) }
			theirs := func() limiter.Time { return limiter.Time(now.Load()) }
			r := newRelay(t, srv.Addr, nil, false)
			mine := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Clock: clock, at: theirs})
			other := runStore(t, Options{Server: serverAt(srv), Clock: clock, at: theirs})
			storetest.Eventually(t, "up", func() bool { return mine.Up() && other.Up() })
			c := caller{clock: clock}
			decide := func(s *Store, hits uint64) limiter.Decision {
				t.Helper()
				charge := oneHit(1, &p)
				charge.Hits = hits
				must.OK(t, c.decide(s, charge))
				return c.b.Decisions[0]
			}
			decide(other, 2)
			if d := decide(other, 1); !d.PenaltyStarted || d.Penalty != 1 || d.RetryAfter < steps[0]-time.Millisecond {
				t.Fatalf("the third hit: %+v", d)
			}
			now.Add(int64(time.Minute))
			memory := o.decidedBy(byMemory)
			for n := range 5 {
				if d := decide(mine, 1); !d.Over || d.PenaltyStarted || d.Penalty != 1 || d.RetryAfter < time.Minute-time.Millisecond || d.Charged != 0 {
					t.Fatalf("a hit at another replica: %+v", d)
				}
				if got := o.decidedBy(byMemory) - memory; got != n {
					t.Errorf("%d of %d hits were denied by memory", got, n)
				}
			}
			if d := decide(mine, 0); !d.Over || d.Penalty != 1 || d.RetryAfter < time.Minute-time.Millisecond {
				t.Errorf("a peek: %+v", d)
			}
			r.setBlocked(true)
			storetest.Eventually(t, "unavailable", func() bool { return !mine.Up() })
			now.Add(int64(30 * time.Second))
			if d := decide(mine, 1); !d.Over || d.Penalty != 1 || d.RetryAfter < 30*time.Second-time.Millisecond {
				t.Errorf("a hit during the outage: %+v", d)
			}
			r.setBlocked(false)
			storetest.Eventually(t, "up", mine.Up)
			now.Add(int64(31 * time.Second))
			if d := decide(mine, 1); d.Over {
				t.Errorf("a hit after the outage: %+v", d)
			}
			decide(other, 1)
			if d := decide(mine, 1); !d.PenaltyStarted || d.Penalty != 2 || d.RetryAfter < steps[1]-time.Millisecond {
				t.Errorf("a hit that is denied again within a window: %+v", d)
			}
			if _, err := reset(other, &p, c.names[0]); err != nil {
				t.Fatal(err)
			}
			now.Add(int64(cacheFor + time.Second))
			if d := decide(mine, 1); d.Over || d.Penalty != 0 {
				t.Errorf("a hit after a reset: %+v", d)
			}
			if n := srv.Must("EVAL", countWithoutExpiry, "0"); n != "0" {
				t.Errorf("%s keys have no expiry", n)
			}
		})
	}
}

// A key that is not a valid penalty is foreign. A penalty that began while the clock was ahead
// ends when the clock is set back.
func TestPenaltyKeys(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	p := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 2, Burst: 2, Window: time.Hour, Penalty: limiter.NewPenalty(time.Hour)}
	decide := func() limiter.Decision {
		var c caller
		s.denied.clear()
		charge := oneHit(1, p)
		charge.Hits = 3
		must.OK(t, c.decide(s, charge))
		return c.b.Decisions[0]
	}
	if d := decide(); !d.PenaltyStarted {
		t.Fatalf("%+v", d)
	}
	key := strings.TrimSpace(srv.Must("EVAL", "return redis.call('KEYS', '*y')[1]", "0"))
	if ttl := srv.Must("TTL", key); ttl < "6000" || ttl > "7202" || len(ttl) != 4 {
		t.Errorf("the key of a penalty of an hour with a window of an hour expires in %s s", ttl)
	}
	if n := srv.Must("EVAL", "local t = redis.call('TIME') redis.call('SET', KEYS[1], '1 ' .. t[1] + 4381 * 86400 .. '000') return redis.call('GET', KEYS[1])", "1", key); !strings.HasPrefix(n, "1 ") {
		t.Fatal(n)
	}
	if d := decide(); !d.PenaltyStarted || d.Penalty != 1 {
		t.Errorf("a hit after the clock was set back: %+v", d)
	}
	for _, foreign := range []string{"1", "one 1900000000000", "1 1900000000000 1", "100 1900000000000", "1 -5", "1 1e9", "1 1900000000000000"} {
		srv.Must("SET", key, foreign)
		if d := decide(); d.Penalty > 1 || srv.Must("GET", key) != foreign {
			t.Errorf("%q is treated as a penalty, or changed: %+v, now %q", foreign, d, srv.Must("GET", key))
		}
	}
}
