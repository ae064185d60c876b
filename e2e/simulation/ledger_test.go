package simulation

import (
	"slices"
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
	unanswered     error // why the call was not decided
	sent, received time.Time
	ending, ended  time.Time // of the call at its end; zero for none
	endReplica     string
	endFailed      bool
	cost           uint64
}

// ledger has all requests.
type ledger struct {
	mu      sync.Mutex
	entries []*entry
}

func (l *ledger) add(all ...*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, all...)
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
			switch {
			case limit.algorithm == "concurrency":
				checkRunning(w, limit, tenant, entries, limit.n)
			case limit.reserve > 0:
				checkRunning(w, limit, tenant, entries, limit.n/limit.reserve)
				checkRate(w, limit, tenant, settled(entries))
			default:
				checkRate(w, limit, tenant, entries)
				checkDenials(w, limit, tenant, entries)
			}
		}
	}
}

// settled returns the hits that ended requests have charged of their reservations. They were
// charged between the start and the end.
func settled(entries []*entry) (charged []*entry) {
	for _, e := range entries {
		if e.outcome == admitted && !e.ended.IsZero() && !e.endFailed {
			charged = append(charged, &entry{sent: e.sent, received: e.ended, outcome: admitted, hits: min(e.cost, e.limit.reserve)})
		}
	}
	return charged
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkRate verifies that no interval admits more than the algorithm's bound. Of the hits that
// replicas admit without the store, each process admits at most the bound, too (docs/store.md, "What
// an outage admits"), or all with the fallback allow.
func checkRate(w *world, l *limit, tenant string, entries []*entry) {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.outcome != admitted })
	slices.SortFunc(entries, func(a, b *entry) int { return a.received.Compare(b.received) })
	if w.admitsAlone() {
		if !checkIntervals(w, l, tenant, entries, true) {
			return
		}
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return w.withoutStore(e.replica, e.sent, e.received) })
	}
	checkIntervals(w, l, tenant, entries, false)
}

// checkIntervals checks intervals of up to two windows. Only requests that were sent and answered within
// the interval certainly count in it. Entries are in the order of their answers.
func checkIntervals(w *world, l *limit, tenant string, entries []*entry, alone bool) (ok bool) {
	for _, first := range entries {
		sum := uint64(0)
		for _, last := range entries {
			length := last.received.Sub(first.sent)
			if last.sent.Before(first.sent) {
				continue
			}
			if length > 2*l.window {
				break
			}
			sum += last.hits
			most := l.bound(first.sent, last.received)
			if sum <= most {
				continue
			}
			if !w.knowsAll(l, first.sent, last) {
				if alone {
					n := w.alone(first.sent, last.received)
					if w.fallback == store.Allow && n > 0 {
						continue
					}
					most += n * most
				}
				most += w.readmitted(l, first.sent, last.received)
			}
			if sum > most {
				w.fail("%s of %s admitted %d hits within %v, at most %d allowed (from %v)", l.key, tenant, sum, length, most, first.sent.Sub(w.began))
				return false
			}
		}
	}
	return true
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

// checkRunning verifies that at most n requests run at the same time: they run at least from their
// answer until the call at their end.
func checkRunning(w *world, l *limit, tenant string, entries []*entry, n uint64) {
	for _, at := range entries {
		if at.outcome != admitted {
			continue
		}
		running, byStore, first := uint64(0), uint64(0), at.sent
		for _, e := range entries {
			if e.outcome == admitted && !e.received.After(at.received) && e.ending.After(at.received) {
				running++
				if !w.withoutStore(e.replica, e.sent, e.received) {
					byStore++
				}
				first = earlier(first, e.sent)
			}
		}
		// Only faults after the start of a running request can have admitted another one.
		most := n + w.readmitted(l, first, at.received)*n/max(l.n, l.burst)
		if byStore <= most {
			most += w.alone(first, at.received) * n
		} else {
			running = byStore
		}
		if running > most {
			w.fail("%s of %s has %d requests at the same time at %v, at most %d allowed", l.key, tenant, running, at.received.Sub(w.began), most)
			return
		}
	}
}
