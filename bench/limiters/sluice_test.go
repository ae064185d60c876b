package limiters

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// sluiceContenders returns sluice's algorithms. Each allows all hits of its limit at once.
func sluiceContenders() []contender {
	var all []contender
	for _, a := range []struct {
		name   string
		policy limiter.Policy
	}{
		{"fixed_window", limiter.Policy{Algorithm: limiter.FixedWindow}},
		{"token_bucket", limiter.Policy{Algorithm: limiter.TokenBucket}},
		{"leaky_bucket", limiter.Policy{Algorithm: limiter.LeakyBucket}},
		{"sliding_window", limiter.Policy{Algorithm: limiter.SlidingWindow, SubWindows: 10}},
		{"sliding_log", limiter.Policy{Algorithm: limiter.SlidingLog}},
	} {
		all = append(all, contender{
			name: "sluice/" + a.name, hashesKeys: true,
			open: func(tb testing.TB, s setting) store {
				tb.Helper()
				p := a.policy
				p.Limit, p.Window = limitOf(p.Algorithm, s)
				switch p.Algorithm {
				case limiter.TokenBucket:
					p.Burst = p.Limit
				case limiter.LeakyBucket:
					p.Slack = p.Limit - 1
				default:
				}
				return openSluice(tb, s, &p)
			},
		})
	}
	return all
}

// limitOf returns the limit and window for a setting.
func limitOf(a limiter.Algorithm, s setting) (uint32, time.Duration) {
	switch {
	case s.purpose == denying:
		return 1, refillInterval
	case s.purpose == lasting:
		return 10, 24 * time.Hour
	case a == limiter.SlidingLog && s.counters > 1000: // so that a million counters fit in memory
		return 10, time.Second
	case (a == limiter.TokenBucket || a == limiter.LeakyBucket) && s.counters > 1000: // so that a bucket is not full, and thus evicted, before its next hit
		return 100_000_000, limiter.MaxWindow
	case a != limiter.SlidingLog:
		return math.MaxUint32, 24 * time.Hour
	default:
		return limiter.MaxLog, time.Second
	}
}

// openSluice creates a table for s.counters: if all are live, half of the one-word slots are used,
// or 65 % of larger ones.
func openSluice(tb testing.TB, s setting, p *limiter.Policy) store {
	tb.Helper()
	slots := 2.0
	if limiter.CounterBytes(*p) > 16 {
		slots = 16.0 / 15 / 0.65 // a sixteenth is for counters of one word
	}
	const kept = 1.0 / 8 // for sizes that the table was not created for
	bytes := float64(limiter.CounterBytes(*p)*s.counters) * slots / (1 - kept)
	t, err := limiter.New(limiter.Options{Bytes: max(1<<20, int64(bytes))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if n := t.Stats().Evicted; n > uint64(s.counters/1000) {
			tb.Errorf("%d of %d counters were evicted: the table is too small for what is measured", n, s.counters)
		}
	})
	p.Prepare() // as when rules are compiled
	prefix, now := identity.NewKey().Hasher(), clock.New()
	return func() func([]byte) bool {
		d := &threadState{charge: [1]limiter.Charge{{Policy: p, Hits: 1}}}
		b := &d.batch
		b.Charges, b.Decisions = d.charge[:], d.decision[:]
		return func(key []byte) bool {
			h := prefix
			h.AddBytes(key)
			d.charge[0].ID = h.Sum()
			t.Prefetch(b)
			at, _ := now.Now()
			t.Decide(at, b)
			return !b.Denied
		}
	}
}

// threadState is the memory to which one thread writes.
type threadState struct {
	_        [falseSharingRange]byte
	batch    limiter.Batch
	charge   [1]limiter.Charge
	decision [1]limiter.Decision
	_        [falseSharingRange]byte
}
