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
	// maxEntries is the number of counters that a fleet's ledger has at most, and mostLeases that of their leases. Hits
	// that have no room are forgotten, and a metric counts them.
	maxEntries = 1 << 16
	maxLeases  = 1 << 18

	// maxRemoved is the number of counters whose debts are taken at once.
	maxRemoved = 1 << 10

	// sweepInterval is the time between two looks at all leases for those that have ended.
	sweepInterval = limiter.Time(time.Second)
)

// ledger are the debts of a fleet, its ledger.
//
// When it is full, debts that have ended make room: their windows are over, their buckets drained, or their leases have
// ended by themselves. A debt that goes on makes room only for one that ends at least twice as far ahead, and is forgotten.
// So the windows of a second do not keep out those of a day, and counters of one limit do not push out each other.
type ledger struct {
	mu                    sync.Mutex
	entries               map[string]*ledgerEntry // by the counters' names in the store
	bySlot                map[uint16]*ledgerEntry // the first of each slot
	byExpiry              heap.Heap[*ledgerEntry]
	maxEntries, maxLeases int
	leases                int             // of all debts
	lastSweep             limiter.Time    // when leases that have ended were last looked for
	scratch               script.Unsynced // of one charge, whose memory is used again
}

// An account is the debt of one counter.
type ledgerEntry struct {
	script.Unsynced
	expiry     limiter.Time // when it ended, by the hits of some time ago: it may end later, and no sooner
	index      int          // in accounts.ends
	prev, next *ledgerEntry // of the same slot
}

func newLedger() ledger {
	return ledger{entries: map[string]*ledgerEntry{}, bySlot: map[uint16]*ledgerEntry{}, maxEntries: maxEntries, maxLeases: maxLeases}
}

// addLocked adds d to the debt of the counter of that name. It returns the number of hits that it has no room for. It keeps
// neither name nor d, and allocates nothing if the counter is known.
func (l *ledger) addLocked(name []byte, slot uint16, d *script.Unsynced, exceeded func() func(hits uint64)) (forgotten uint64) {
	if d.LeaseCount() > 0 && l.leases >= l.maxLeases && !l.sweepLocked(d.At()) {
		return d.Hits
	}
	if had := l.entries[string(name)]; had != nil {
		was := had.LeaseCount()
		forgotten = had.Add(d)
		l.leases += had.LeaseCount() - was
		return forgotten
	}
	forgotten, made := l.makeRoomLocked(d)
	if !made {
		return forgotten + d.Hits
	}
	a := &ledgerEntry{Unsynced: *d.Clone(), expiry: d.ExpiresAt(), next: l.bySlot[slot]}
	a.Name, a.Slot, a.Exceeded = string(name), slot, exceeded()
	if a.next != nil {
		a.next.prev = a
	}
	l.bySlot[slot], l.entries[a.Name] = a, a
	l.leases += a.LeaseCount()
	l.byExpiry.Push(a)
	return forgotten
}

// makeRoomLocked makes room for d, and returns the number of hits that are forgotten for that. It reports false if there is none.
// Each addition makes one account at most end later than it is known to, so it costs the logarithm of their number.
func (l *ledger) makeRoomLocked(d *script.Unsynced) (forgotten uint64, made bool) {
	now := d.At()
	for len(l.entries) >= l.maxEntries {
		first := l.byExpiry[0]
		if end := first.ExpiresAt(); end > first.expiry {
			first.expiry = end
			l.byExpiry.Fix(0)
			continue
		}
		if first.expiry > now {
			if 2*(first.expiry-now) > d.ExpiresAt()-now {
				return forgotten, false
			}
			forgotten += first.Hits
		}
		l.removeLocked(first)
	}
	return forgotten, true
}

// sweepLocked drops the leases that have ended, once in sweepEach at most. It reports whether there is room for more.
func (l *ledger) sweepLocked(now limiter.Time) (room bool) {
	if since := now - l.lastSweep; since >= 0 && since < sweepInterval {
		return false
	}
	l.lastSweep = now
	for _, a := range slices.Clone(l.byExpiry) {
		was := a.LeaseCount()
		if was == 0 {
			continue
		}
		a.DropEnded(now)
		l.leases -= was - a.LeaseCount()
		if a.LeaseCount() == 0 {
			l.removeLocked(a)
		}
	}
	return l.leases < l.maxLeases
}

// subtract takes hits that were given back from what a counter owes.
func (l *ledger) subtract(name []byte, hits uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.entries[string(name)]; a != nil {
		a.Subtract(hits)
	}
}

// remove removes and returns what a counter owes, nil if that is nothing.
func (l *ledger) remove(name string) *script.Unsynced {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.entries[name]
	if a == nil {
		return nil
	}
	l.removeLocked(a)
	return &a.Unsynced
}

// removeLocked drops what a counter owes.
func (l *ledger) removeLocked(a *ledgerEntry) {
	l.leases -= a.LeaseCount()
	delete(l.entries, a.Name)
	l.byExpiry.Remove(a.index)
	if a.next != nil {
		a.next.prev = a.prev
	}
	switch {
	case a.prev != nil:
		a.prev.next = a.next
	case a.next != nil:
		l.bySlot[a.Slot] = a.next
	default:
		delete(l.bySlot, a.Slot)
	}
}

// wasReleased reports whether a lease of a counter has been given back already, which the store does not know yet.
func (l *ledger) wasReleased(name string, lease uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.entries[name]
	return a != nil && a.Released(lease)
}

// hitsUnder returns the hits that are owed under a lease of a counter.
func (l *ledger) hitsUnder(name string, lease uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.entries[name]; a != nil {
		return a.HitsUnder(lease)
	}
	return 0
}

// removeForSlots removes and returns what the counters of some slots owe, in the order of the slots, and of mostTaken counters at most.
func (l *ledger) removeForSlots(has func(slot uint16) bool) (all []*script.Unsynced) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := 0
	for slot, a := range l.bySlot {
		for ; a != nil && taken < maxRemoved && has(slot); a = a.next {
			l.removeLocked(a)
			all = append(all, a.Split()...)
			taken++
		}
	}
	slices.SortFunc(all, func(a, b *script.Unsynced) int { return cmp.Compare(a.Slot, b.Slot) })
	return all
}

// hasUnsynced reports whether the counters of some slots owe something.
func (l *ledger) hasUnsynced(has func(slot uint16) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot := range l.bySlot {
		if has(slot) {
			return true
		}
	}
	return false
}

// restore is for debts that were taken and could not be charged. They are older than what their counters owe by now.
func (l *ledger) restore(all []*script.Unsynced) (forgotten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range all {
		if had := l.entries[d.Name]; had != nil && !d.Policy.Leases() {
			d.Add(&had.Unsynced)
			had.Unsynced = *d
			continue
		}
		forgotten += l.addLocked([]byte(d.Name), d.Slot, d, func() func(uint64) { return d.Exceeded })
	}
	return forgotten
}

// Less makes the debt that ends first the first of the heap.
func (a *ledgerEntry) Less(b *ledgerEntry) bool { return a.expiry < b.expiry }

// SetIndex notes the index in the heap.
func (a *ledgerEntry) SetIndex(i int) { a.index = i }
