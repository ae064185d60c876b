package simulation

import (
	"slices"
	"strings"
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

// allowance returns how many hits a counter may admit beyond its bound in an interval, by the
// documents, because of faults.
func (w *world) allowance(l *limit, from, to time.Time) (hits uint64, unlimited bool) {
	whole, before := max(l.n, l.burst), from.Add(-l.window)
	if w.shared && (w.fallback == store.Local || w.fallback == store.Allow) && w.during(before, to, func(f fault) bool { return f.kind != "reload" }) > 0 {
		// Each process admits in each window what was left when it last heard from the store
		// (docs/store.md, "What an outage admits").
		hits = (uint64(to.Sub(from)/l.window) + 2) * whole * uint64(len(w.processes))
		unlimited = w.fallback == store.Allow
	}
	forgets := w.during(before, to, func(f fault) bool {
		switch f.kind {
		case "flush", "failover", "split failover", "silent failover":
			return true
		case "kill", "clock":
			return !w.shared
		case "reload": // a bucket keeps times, not hits (docs/algorithms.md, "Editing rules")
			return l.burst > 0
		case "reset": // an Envoy that cannot reconnect within --lease-grace loses its permits
			began := w.traffic.Add(f.at)
			return l.grantsLeases() && w.during(began, began.Add(2*time.Second), func(g fault) bool { return g.kind == "silence" || g.kind == "slow" }) > 0
		case "restart": // permits are free after a restart
			return !w.shared && (!w.stateFiles || l.grantsLeases())
		}
		return false
	})
	return hits + l.addedByOperator(from, to) + 2*whole*uint64(forgets), unlimited // two, because a wrong clock is corrected later
}

// during returns how many faults of a kind have an effect in an interval.
func (w *world) during(from, to time.Time, kind func(fault) bool) (n int) {
	for i, f := range w.faults {
		if f.ofQuotaEnvoy() {
			continue // its calls do not need the store
		}
		begins, ends := w.traffic.Add(f.at), w.faultEnds[i]
		if ends.IsZero() { // it has not ended
			ends = time.Now()
		}
		if kind(f) && begins.Before(to) && later(begins.Add(f.lasts()), ends).Add(recovery).After(from) {
			n++
		}
	}
	return n
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// recovery is how long a replica may need to find that the store is available again.
const recovery = 4 * time.Second

// checkRate verifies that no interval admits more than the algorithm's bound. Only requests that
// were sent and answered within the interval certainly count in it.
func checkRate(w *world, l *limit, tenant string, entries []*entry) {
	var all []*entry // in the order of their answers
	for _, e := range entries {
		if e.outcome == admitted {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.received.Compare(b.received) })
	for _, first := range all {
		sum := uint64(0)
		for _, last := range all {
			length := last.received.Sub(first.sent)
			if last.sent.Before(first.sent) {
				continue
			}
			if length > 2*l.window {
				break
			}
			sum += last.hits
			if sum <= l.bound(first.sent, last.received) {
				continue
			}
			extra, unlimited := w.allowance(l, first.sent, last.received)
			if w.knowsAll(l, first.sent, last) && l.addedByOperator(first.sent, last.received) == 0 {
				extra, unlimited = 0, false
			}
			if most := l.bound(first.sent, last.received) + extra; sum > most && !unlimited {
				w.fail("%s of %s admitted %d hits within %v, at most %d allowed (from %v)", l.key, tenant, sum, length, most, first.sent.Sub(w.began))
				return
			}
		}
	}
}

// knowsAll reports whether e was decided by a store that knew all hits since the given time in the same
// window, including those that the fallback admitted before.
func (w *world) knowsAll(l *limit, from time.Time, e *entry) bool {
	sameWindow := e.received.Sub(from) <= l.window
	if l.algorithm == "fixed_window" {
		sameWindow = from.Truncate(l.window).Equal(e.received.Truncate(l.window))
	}
	available := w.during(e.sent, e.received, func(f fault) bool { return f.kind != "reload" }) == 0
	forgotten := w.during(from.Add(-l.window), e.received, func(f fault) bool {
		return strings.HasSuffix(f.kind, "failover") || slices.Contains([]string{"flush", "kill", "restart"}, f.kind)
	}) > 0
	return w.shared && l.burst == 0 && sameWindow && available && !forgotten
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
		running, first := uint64(0), at.sent
		for _, e := range entries {
			if e.outcome == admitted && !e.received.After(at.received) && e.ending.After(at.received) {
				running++
				first = earliest(first, e.sent)
			}
		}
		if running <= n {
			continue
		}
		// Only faults after the start of a running request can have admitted another one.
		extra, unlimited := w.allowance(l, first.Add(l.window), at.received)
		if most := n + extra*n/l.n; running > most && !unlimited {
			w.fail("%s of %s has %d requests at the same time at %v, at most %d allowed", l.key, tenant, running, at.received.Sub(w.began), most)
			return
		}
	}
}
