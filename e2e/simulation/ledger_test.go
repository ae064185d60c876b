package simulation

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store"
)

// entry is a request in the ledger. Times are those at the envoy.
type entry struct {
	limit          *limit
	tenant         string
	replica        string
	hits           uint64
	outcome        outcome
	sent, received time.Time
	ending, ended  time.Time // of the call at its end; zero for none
	endFailed      bool
	cost           uint64
}

// ledger has all requests.
type ledger struct {
	began time.Time

	mu      sync.Mutex
	entries []*entry
}

func (l *ledger) add(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

// of returns the entries of a counter.
func (l *ledger) of(limit *limit, tenant string) (found []*entry) {
	for _, e := range l.entries {
		if e.limit == limit && e.tenant == tenant {
			found = append(found, e)
		}
	}
	return found
}

// check verifies the bound of each counter.
func (l *ledger) check(w *world) {
	for _, limit := range w.limits {
		for _, tenant := range w.tenants {
			entries := l.of(limit, tenant)
			if limit.algorithm == "concurrency" {
				checkConcurrency(w, limit, tenant, entries)
				continue
			}
			if limit.reserve > 0 {
				continue
			}
			checkRate(w, limit, tenant, entries)
			checkDenials(w, limit, tenant, entries)
		}
	}
}

// allowance returns how many hits a counter may admit beyond its bound in an interval, because the
// store was unavailable. With the fallback local, each replica admits in each window at most what
// was left when it last heard from the store (docs/store.md, "What an outage admits").
func (w *world) allowance(l *limit, from, to time.Time) (hits uint64, unlimited bool) {
	if !w.shared || w.fallback != store.Local && w.fallback != store.Allow || !w.outage(from.Add(-l.window), to) {
		return 0, false
	}
	windows := uint64(to.Sub(from)/l.window) + 2
	return windows * max(l.n, l.burst) * uint64(len(w.replicas)), w.fallback == store.Allow
}

// outage reports whether the store may have been unavailable to a replica at a time of an interval.
func (w *world) outage(from, to time.Time) bool {
	for _, f := range w.faults {
		begins := w.traffic.Add(f.at)
		if begins.Before(to) && begins.Add(f.lasts()+recovery).After(from) {
			return true
		}
	}
	return false
}

// recovery is how long a replica may need to find that the store is available again.
const recovery = 4 * time.Second

// checkRate verifies that no interval admits more than the algorithm's bound. Only requests that
// were sent and answered within the interval certainly count in it.
func checkRate(w *world, l *limit, tenant string, entries []*entry) {
	for _, first := range entries {
		if first.outcome != admitted {
			continue
		}
		for _, last := range entries {
			if last.outcome != admitted || last.received.Before(first.received) {
				continue
			}
			length := last.received.Sub(first.sent)
			if length > 2*l.window {
				continue
			}
			sum := uint64(0)
			for _, e := range entries {
				if e.outcome == admitted && !e.sent.Before(first.sent) && !e.received.After(last.received) {
					sum += e.hits
				}
			}
			extra, unlimited := w.allowance(l, first.sent, last.received)
			if most := l.bound(first.sent, last.received) + extra; sum > most && !unlimited {
				w.fail("%s of %s admitted %d hits within %v, at most %d allowed (from %v)", l.key, tenant, sum, length, most, first.sent.Sub(w.began))
				return
			}
		}
	}
}

// bound returns the number of hits that an interval may admit.
func (l *limit) bound(from, to time.Time) uint64 {
	length, window := to.Sub(from), int64(l.window)
	switch l.algorithm {
	case "fixed_window": // windows are aligned to the epoch
		return l.n * uint64(to.UnixNano()/window-from.UnixNano()/window+1)
	case "sliding_window", "sliding_log":
		return l.n * uint64(length/l.window+1)
	default:
		return l.burst + uint64(float64(length)*float64(l.n)/float64(l.window))
	}
}

// checkConcurrency verifies that at most n requests run at the same time: they run at least from
// their answer until the call at their end.
func checkConcurrency(w *world, l *limit, tenant string, entries []*entry) {
	for _, at := range entries {
		if at.outcome != admitted {
			continue
		}
		running := uint64(0)
		for _, e := range entries {
			if e.outcome == admitted && !e.received.After(at.received) && e.ending.After(at.received) {
				running++
			}
		}
		extra, unlimited := w.allowance(l, at.received, at.received)
		if running > l.n+extra && !unlimited {
			w.fail("%s of %s has %d requests at the same time at %v, at most %d allowed", l.key, tenant, running, at.received.Sub(w.began), l.n+extra)
			return
		}
	}
}

// checkAtRest verifies that no permit or reservation is held when all requests have ended, except
// for requests whose outcome the envoy does not know.
func (w *world) checkAtRest() {
	for _, l := range w.limits {
		for _, tenant := range w.tenants {
			lost := uint64(0)
			for _, e := range w.ledger.of(l, tenant) {
				if e.endFailed {
					lost++
				}
			}
			left, err := w.remaining(l, tenant)
			if err != nil {
				w.fail("a request at rest fails: %v", err)
				continue
			}
			most := lost
			if l.reserve > 0 {
				most *= l.reserve
			}
			if l.grantsLeases() && left+most < l.n && l.algorithm == "concurrency" {
				w.fail("%s of %s holds %d permits at rest, at most %d allowed", l.key, tenant, l.n-left, most)
			}
		}
	}
}

// remaining returns the remaining hits of a counter.
func (w *world) remaining(l *limit, tenant string) (uint64, error) {
	e := w.envoys[0]
	q := &request{envoy: e, limit: l, tenant: tenant}
	reply, err := e.call(w.replicas[0].host, time.Hour, q.descriptor(0, false))
	if err != nil {
		return 0, fmt.Errorf("look up %s of %s: %w", l.key, tenant, err)
	}
	return uint64(reply.GetStatuses()[0].GetLimitRemaining()), nil
}
