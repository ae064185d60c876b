package simulation

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store"
)

// entry is a request in the ledger. Times are those at the envoy.
type entry struct {
	limit          *limit
	tenant         string
	replica        string // that decides it
	hits           uint64
	outcome        outcome
	unanswered     error // why the call was not decided
	sent, received time.Time
	ending, ended  time.Time // of the call at its end; zero for none
	endReplica     string    // that is called then
	endFailed      bool
	cost           uint64 // with reserve
	lease          uint64 // 0 for none
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

// hasEqualLease reports whether a later request has the lease of e, which happens with a probability
// of 1 in 65,536.
func (l *ledger) hasEqualLease(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.entries, func(o *entry) bool {
		return o != e && o.limit == e.limit && o.tenant == e.tenant && o.lease == e.lease && o.received.After(e.received)
	})
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
				if !w.usesBlocks(limit) {
					checkDenials(w, limit, tenant, entries)
				} else if limit.key == "blocks" && len(w.faults) == 0 {
					checkAdmitted(w, limit, tenant, entries)
				}
			}
		}
	}
}

// minAdmitted is the part of the hits admitted by one sluice that sluices with blocks admit, and of the
// requests of each size (docs/blocks.md, "What clients notice").
const minAdmitted = 0.97

// checkAdmitted compares the admitted requests of a limit with blocks with those of one sluice.
func checkAdmitted(w *world, l *limit, tenant string, entries []*entry) {
	configs, _ := rulefile.Parse("rules.yaml", []byte(w.rules))
	table := mustHave(limiter.New(limiter.Options{Bytes: 1 << 20}))
	set, _ := descriptors.Compile(configs, descriptors.Options{HashKey: table.Key()})
	var p descriptors.Plan
	var got, want, gotLarge, wantLarge float64
	slices.SortFunc(entries, func(a, b *entry) int { return a.sent.Compare(b.sent) })
	for _, e := range entries {
		of := []descriptors.Entry{{Key: []byte(l.key), Value: []byte(tenant)}}
		set.Plan(&p, &descriptors.Request{
			Domain: []byte(domain), Descriptors: []descriptors.Descriptor{{Entries: of, Hits: e.hits, HasHits: true}},
		}, descriptors.Global{})
		table.Decide(limiter.Time(e.sent.UnixNano()), &p.Batch)
		large := float64(count(e.hits > l.maxCost/2))
		if e.outcome == admitted {
			got, gotLarge = got+float64(e.hits), gotLarge+large
		}
		if !p.Batch.Denied && e.outcome != unknown {
			want, wantLarge = want+float64(e.hits), wantLarge+large
		}
	}
	if got < minAdmitted*want || gotLarge < minAdmitted*wantLarge {
		w.fail("%s of %s admitted %.0f hits and %.0f large requests, one sluice %.0f and %.0f", l.key, tenant, got, gotLarge, want, wantLarge)
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

// checkDenials verifies that the requests before a denied one may have used up the limit: otherwise
// a hit was counted twice, or not removed when it expired. A hit may be counted at any time between
// request and answer, and twice if its answer was late because of a fault (docs/store.md).
func checkDenials(w *world, l *limit, tenant string, entries []*entry) {
	counted := slices.Clone(entries)
	if l.algorithm != "fixed_window" { // which counts denied hits
		counted = slices.DeleteFunc(counted, func(e *entry) bool { return e.outcome == denied && !w.isDecidedTwice(e) })
	}
	charges := w.chargesOf(l, counted)
	for _, e := range entries {
		since := e.sent.Add(-2 * l.window)
		if l.burst > 0 { // a bucket may stay nearly empty ever since
			since = w.began
		}
		if e.outcome != denied || w.during(since, e.received, func(f fault) bool { return effectsOf[f.kind].changes }) > 0 ||
			w.fallback == store.Deny && w.withoutStore(e.replica, e.sent, e.received) {
			continue
		}
		used, most := w.mostUsed(l, charges, e), cmp.Or(l.burst-l.waiting, l.n) // a response may have no time to wait
		if used+float64(e.hits) <= float64(most) {
			w.fail("%s of %s denied %d hits at %v, although at most %.1f of %d may be used", l.key, tenant, e.hits, e.sent.Sub(w.began), used, most)
			return
		}
	}
}

// usesBlocks reports whether a replica may deny a request while another one has unused hits.
func (w *world) usesBlocks(l *limit) bool {
	return w.blocks != "" && l.algorithm != "concurrency" && l.reserve == 0 && l.maxWait == 0
}

// isDecidedTwice reports whether the fallback may have decided a request because its deadline passed,
// and later the store, which has then counted it.
func (w *world) isDecidedTwice(e *entry) bool {
	return w.shared && e.received.Sub(e.sent) > 10*time.Millisecond && w.withoutStore(e.replica, e.sent, e.received)
}

// charge is the latest effect that a request may have on a counter; it may have two.
type charge struct {
	*entry

	until time.Time // the latest time at which its hits may be counted
	hits  float64
}

// chargesOf returns the charges of entries, in the order of their latest times.
func (w *world) chargesOf(l *limit, entries []*entry) []charge {
	charges := make([]charge, 0, len(entries))
	for _, e := range entries {
		c := charge{e, w.countsUntil(l, e), float64(e.hits)}
		charges = append(charges, c)
		if again := w.countsAgain(e); !again.IsZero() {
			charges = append(charges, charge{e, later(c.until, again), c.hits})
		}
	}
	slices.SortFunc(charges, func(a, b charge) int { return a.until.Compare(b.until) })
	return charges
}

// mostUsed returns how much of the limit may be used when e is decided.
func (w *world) mostUsed(l *limit, charges []charge, e *entry) (used float64) {
	oldest := e.sent.Add(-l.window - l.part())
	if l.algorithm == "fixed_window" {
		oldest = e.sent.Truncate(l.window)
	}
	var drained time.Time // the TAT
	for _, x := range charges {
		if x.entry == e || x.sent.After(e.received) || l.burst == 0 && x.until.Before(oldest) {
			continue
		}
		used += x.hits
		drained = later(drained, earlier(x.until, e.received)).Add(time.Duration(x.hits * float64(l.window) / float64(l.n)))
	}
	if l.burst > 0 {
		decided := e.sent
		if w.shared { // by the clock of a replica, if that has seen the bucket exhausted a moment ago
			decided = decided.Add(-maxLatency)
		}
		return max(0, float64(drained.Sub(decided))/float64(l.window)*float64(l.n)) + 1e-3
	}
	return used
}

// countsUntil returns the latest time at which e may be counted. A request that got no answer may
// arrive when a fault is over. Hits of a log or a bucket that the fallback admitted may count like
// hits at the time at which the store recovers.
func (w *world) countsUntil(l *limit, e *entry) time.Time {
	until, late := e.received, e.outcome == unknown || w.shared && !strings.Contains(l.algorithm, "window")
	if e.outcome == unknown { // it may have been on its way
		until = until.Add(2 * maxLatency)
	}
	for i, f := range w.faults {
		if begins, ends := w.interval(i); late && w.affects(f, e.replica) && !effectsOf[f.kind].changes && begins.Before(e.received) && ends.After(e.sent) {
			until = later(until, ends)
		}
	}
	return until
}

// countsAgain returns the latest time at which the store may count a request a second time, because the
// connection may have ended before it answered; zero if it does not. A store that stalled executes
// afterwards what it has received.
func (w *world) countsAgain(e *entry) (until time.Time) {
	const soon = 10 * time.Millisecond
	for i, f := range w.faults {
		begins, ends := w.interval(i)
		executed := ends.Add(-recovery + 2*f.latency())
		if e.outcome != unknown && e.received.Sub(e.sent) <= soon {
			ends = begins.Add(soon)
			executed = ends
		}
		if w.shared && w.affects(f, e.replica) && w.breaks(f) && begins.Before(e.received.Add(soon)) && ends.After(e.sent) {
			until = later(later(until, executed), e.received)
		}
	}
	return until
}
