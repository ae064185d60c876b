package store

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/heap"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// mostDebts is the number of counters that a fleet's ledger has at most, and mostLeases that of their leases. Hits
	// that have no room are forgotten, and a metric counts them.
	mostDebts  = 1 << 16
	mostLeases = 1 << 18

	// mostTaken is the number of counters whose debts are taken at once.
	mostTaken = 1 << 10

	// sweepEach is the time between two looks at all leases for those that have ended.
	sweepEach = limiter.Time(time.Second)
)

// accounts are the debts of a fleet, its ledger.
//
// When it is full, debts that have ended make room: their windows are over, their buckets drained, or their leases have
// ended by themselves. A debt that goes on makes room only for one that ends at least twice as far ahead, and is forgotten.
// So the windows of a second do not keep out those of a day, and counters of one limit do not push out each other.
type accounts struct {
	mu               sync.Mutex
	debts            map[string]*account // by the counters' names in the store
	slots            map[uint16]*account // the first of each slot
	ends             heap.Heap[*account]
	most, mostLeases int
	leases           int          // of all debts
	swept            limiter.Time // when leases that have ended were last looked for
	spare            script.Debt  // of one charge, whose memory is used again
}

// An account is the debt of one counter.
type account struct {
	script.Debt
	end        limiter.Time // when it ended, by the hits of some time ago: it may end later, and no sooner
	index      int          // in accounts.ends
	prev, next *account     // of the same slot
}

func newAccounts() accounts {
	return accounts{debts: map[string]*account{}, slots: map[uint16]*account{}, most: mostDebts, mostLeases: mostLeases}
}

// addLocked adds d to the debt of the counter of that name. It returns the number of hits that it has no room for. It keeps
// neither name nor d, and allocates nothing if the counter is known.
func (l *accounts) addLocked(name []byte, slot uint16, d *script.Debt, exceeded func() func(hits uint64)) (forgotten uint64) {
	if d.Leases() > 0 && l.leases >= l.mostLeases && !l.sweepLocked(d.At()) {
		return d.Hits
	}
	if had := l.debts[string(name)]; had != nil {
		was := had.Leases()
		forgotten = had.Add(d)
		l.leases += had.Leases() - was
		return forgotten
	}
	forgotten, made := l.makeRoomLocked(d)
	if !made {
		return forgotten + d.Hits
	}
	a := &account{Debt: *d.Clone(), end: d.Ends(), next: l.slots[slot]}
	a.Name, a.Slot, a.Exceeded = string(name), slot, exceeded()
	if a.next != nil {
		a.next.prev = a
	}
	l.slots[slot], l.debts[a.Name] = a, a
	l.leases += a.Leases()
	l.ends.Push(a)
	return forgotten
}

// makeRoomLocked makes room for d, and returns the number of hits that are forgotten for that. It reports false if there is none.
// Each addition makes one account at most end later than it is known to, so it costs the logarithm of their number.
func (l *accounts) makeRoomLocked(d *script.Debt) (forgotten uint64, made bool) {
	now := d.At()
	for len(l.debts) >= l.most {
		first := l.ends[0]
		if end := first.Ends(); end > first.end {
			first.end = end
			l.ends.Fix(0)
			continue
		}
		if first.end > now {
			if 2*(first.end-now) > d.Ends()-now {
				return forgotten, false
			}
			forgotten += first.Hits
		}
		l.dropLocked(first)
	}
	return forgotten, true
}

// sweepLocked drops the leases that have ended, once in sweepEach at most. It reports whether there is room for more.
func (l *accounts) sweepLocked(now limiter.Time) (room bool) {
	if since := now - l.swept; since >= 0 && since < sweepEach {
		return false
	}
	l.swept = now
	for _, a := range slices.Clone(l.ends) {
		was := a.Leases()
		if was == 0 {
			continue
		}
		a.DropEnded(now)
		l.leases -= was - a.Leases()
		if a.Leases() == 0 {
			l.dropLocked(a)
		}
	}
	return l.leases < l.mostLeases
}

// less takes hits that were given back from what a counter owes.
func (l *accounts) less(name []byte, hits uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.debts[string(name)]; a != nil {
		a.Subtract(hits)
	}
}

// drop removes and returns what a counter owes, nil if that is nothing.
func (l *accounts) drop(name string) *script.Debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.debts[name]
	if a == nil {
		return nil
	}
	l.dropLocked(a)
	return &a.Debt
}

// dropLocked drops what a counter owes.
func (l *accounts) dropLocked(a *account) {
	l.leases -= a.Leases()
	delete(l.debts, a.Name)
	l.ends.Remove(a.index)
	if a.next != nil {
		a.next.prev = a.prev
	}
	switch {
	case a.prev != nil:
		a.prev.next = a.next
	case a.next != nil:
		l.slots[a.Slot] = a.next
	default:
		delete(l.slots, a.Slot)
	}
}

// gave reports whether a lease of a counter has been given back already, which the store does not know yet.
func (l *accounts) gave(name string, lease uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.debts[name]
	return a != nil && a.Gave(lease)
}

// took returns the hits that are owed under a lease of a counter.
func (l *accounts) took(name string, lease uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.debts[name]; a != nil {
		return a.Took(lease)
	}
	return 0
}

// take removes and returns what the counters of some slots owe, in the order of the slots, and of mostTaken counters at most.
func (l *accounts) take(has func(slot uint16) bool) (all []*script.Debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := 0
	for slot, a := range l.slots {
		for ; a != nil && taken < mostTaken && has(slot); a = a.next {
			l.dropLocked(a)
			all = append(all, a.Pieces()...)
			taken++
		}
	}
	slices.SortFunc(all, func(a, b *script.Debt) int { return cmp.Compare(a.Slot, b.Slot) })
	return all
}

// owes reports whether the counters of some slots owe something.
func (l *accounts) owes(has func(slot uint16) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot := range l.slots {
		if has(slot) {
			return true
		}
	}
	return false
}

// putBack is for debts that were taken and could not be charged. They are older than what their counters owe by now.
func (l *accounts) putBack(all []*script.Debt) (forgotten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range all {
		if had := l.debts[d.Name]; had != nil && !d.Policy.UsesLeases() {
			d.Add(&had.Debt)
			had.Debt = *d
			continue
		}
		forgotten += l.addLocked([]byte(d.Name), d.Slot, d, func() func(uint64) { return d.Exceeded })
	}
	return forgotten
}

// Less makes the debt that ends first the first of the heap.
func (a *account) Less(b *account) bool { return a.end < b.end }

// SetIndex notes the index in the heap.
func (a *account) SetIndex(i int) { a.index = i }
