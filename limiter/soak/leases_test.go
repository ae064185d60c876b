package soak

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// atOnce returns concurrency limits with a common counter, which moves between size classes.
func atOnce() (policies []*limiter.Policy) {
	for _, limit := range []uint32{50, 4, 20, 300} {
		p := &limiter.Policy{Algorithm: limiter.Concurrency, Limit: limit, Window: time.Second}
		p.Prepare()
		policies = append(policies, p)
	}
	return policies
}

// A lease is a permit that a worker holds.
type lease struct {
	number uint64
	end    limiter.Time // expiry
}

// counterPermits counts the permits of a counter that all workers hold.
type counterPermits struct {
	now, most atomic.Int64
	mu        sync.Mutex
	lost      []lease // leases that are never returned
}

func (f *counterPermits) add() {
	n := f.now.Add(1)
	for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
	}
}

// leases acquires and returns permits of counters whose limits change, and loses some, while other
// counters cause slots to change their owner. Time passes between rounds. At each moment the number
// of held permits is at most the greatest active limit, unless they were held before, and each
// lease can be returned once until it expires.
func leases(b *round) {
	const counters = 3
	policies := atOnce()
	t, permits, next := b.table(256<<10), [counters]counterPermits{}, atomic.Int64{}
	now, held := epoch, [workers][counters][]lease{}
	var unknown, twice, requests atomic.Int64
	for range b.scale(5000) {
		limit := b.rand.IntN(len(policies)) // smaller limits also occur, since reloads are not atomic
		var before [counters]int64
		for n := range permits {
			before[n] = permits[n].now.Load()
		}
		b.together(func(w *worker) {
			at := func() limiter.Time { return now + limiter.Time(requests.Add(1)) } // two nonces of the same nanosecond may be equal
			release := func(n int, number uint64) uint64 {
				return w.decide(t, at(), limiter.Charge{ID: counterID(n, true), Policy: policies[limit], Hits: number, Refund: true}).Charged
			}
			for range 60 {
				n := w.rand.IntN(counters)
				own, f := &held[w.number][n], &permits[n]
				switch action := w.rand.IntN(16); {
				case action < 2:
					other := counters + int(next.Add(1))
					w.decide(t, at(), limiter.Charge{ID: counterID(other, true), Policy: policies[w.rand.IntN(2)], Hits: 1})
					if number := w.batch.Lease(0); number > 0 {
						release(other, number)
					}
				case action < 9:
					p := policies[limit]
					if w.rand.IntN(4) == 0 {
						p = policies[1] // the smallest limit
					}
					at := at()
					w.decide(t, at, limiter.Charge{ID: counterID(n, true), Policy: p, Hits: 1})
					if number := w.batch.Lease(0); number > 0 {
						f.add()
						*own = append(*own, lease{number, at + limiter.Time(p.Window)})
					}
				case len(*own) == 0:
				case action == 9: // lost
					l := (*own)[0]
					*own = (*own)[1:]
					f.mu.Lock()
					f.lost = append(f.lost, l)
					f.mu.Unlock()
				default:
					i := w.rand.IntN(len(*own))
					l := (*own)[i]
					*own = append((*own)[:i], (*own)[i+1:]...)
					f.now.Add(-1)
					if release(n, l.number) != 1 {
						unknown.Add(1)
						f.now.Add(1)
					}
					// One of 65,536 leases equals the previous one of its permit, and this releases
					// it.
					if release(n, l.number) != 0 {
						twice.Add(1)
						f.now.Add(-1)
					}
				}
			}
		})
		now += limiter.Time(requests.Swap(0) + b.rand.Int64N(int64(time.Second)/3))
		for n := range permits {
			f := &permits[n]
			b.recordPeak("at once", f.most.Load(), max(before[n], int64(policies[limit].Limit)))
			f.lost = alive(f, f.lost, now)
			for w := range held {
				held[w][n] = alive(f, held[w][n], now)
			}
			f.most.Store(f.now.Load())
			check := &worker{round: b}
			if got := check.decide(t, now, limiter.Charge{ID: counterID(n, true), Policy: policies[0]}).Before; got != uint64(f.now.Load()) {
				b.faultf("counter %d: %d permits are held, but the table counts %d", n, f.now.Load(), got)
			}
		}
	}
	b.admitted = b.ops.Load()
	if n, m := unknown.Load(), twice.Load(); n > m || m > 3 {
		b.faultf("%d held leases were invalid, and %d leases were valid twice", n, m)
	}
	if s := t.Stats(); s.Evicted > 0 {
		b.faultf("%+v, want none evicted", s)
	}
}

// alive returns the leases that have not expired. f no longer counts the others.
func alive(f *counterPermits, all []lease, now limiter.Time) (left []lease) {
	const ms = limiter.Time(time.Millisecond)
	for _, l := range all {
		if (l.end+ms-1)/ms*ms > now {
			left = append(left, l)
		} else {
			f.now.Add(-1)
		}
	}
	return left
}
