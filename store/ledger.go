package store

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/heap"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// A ledger has at most maxEntries counters, and maxLeases leases of these counters.
	// Hits beyond them are dropped, and counted in a metric.
	maxEntries = 1 << 16
	maxLeases  = 1 << 18

	// maxRemoved is the number of counters that removeForSlots removes at once.
	maxRemoved = 1 << 10

	// maxReturned is the number of returned leases that a ledger remembers.
	maxReturned = 1 << 13

	// sweepInterval is the minimum time between two scans for expired leases.
	sweepInterval = limiter.Time(time.Second)
)

// A ledger has the unsynced hits of a backend, by counter.
//
// When it is full, expired entries make room: their windows are over, their buckets drained, or
// their leases expired. Another entry makes room only for one that expires at least twice as far
// ahead, and its hits are dropped. So windows of a second do not keep out those of a day, and
// counters of one limit do not displace each other.
type ledger struct {
	mu                    sync.Mutex
	entries               map[string]*ledgerEntry // keys are names of counters in the store
	bySlot                map[uint16]*ledgerEntry // the first entry of each slot
	byExpiry              heap.Heap[*ledgerEntry]
	maxEntries, maxLeases int
	leases                int             // number of leases of all entries
	lastSweep             limiter.Time    // when sweepLocked last ran
	scratch               script.Unsynced // one charge; its memory is reused
	// returned has hashes of the last leases that were returned without the store. An entry may not
	// have such a lease: it was granted without the store, too, or a request without a reply may have
	// returned it to the store. The first map has the newer ones, at most maxReturned.
	returned [2]map[uint64]struct{}
}

// A ledgerEntry is the unsynced hits of one counter.
type ledgerEntry struct {
	script.Unsynced
	expiry     limiter.Time // lower bound of the expiry, computed from the hits known when it was set
	index      int          // index in ledger.byExpiry
	prev, next *ledgerEntry // entries of the same slot
}

func newLedger() ledger {
	return ledger{
		entries: map[string]*ledgerEntry{}, bySlot: map[uint16]*ledgerEntry{}, maxEntries: maxEntries, maxLeases: maxLeases,
		returned: [2]map[uint64]struct{}{{}, {}},
	}
}

// addLocked adds d to the entry of the named counter. It returns the number of hits for which there
// is no room. It retains neither name nor d, and allocates nothing if the counter has an entry.
func (l *ledger) addLocked(
	name []byte, slot uint16, d *script.Unsynced, exceeded func() func(hits uint64),
) (dropped uint64) {
	had := l.entries[string(name)]
	if d.LeaseCount() > 0 && l.leases >= l.maxLeases && (had == nil || !had.Ends(d)) && !l.sweepLocked(d.At()) {
		return d.Hits
	}
	if had = l.entries[string(name)]; had != nil { // the sweep may have removed it
		before := had.LeaseCount()
		dropped = had.Add(d)
		l.leases += had.LeaseCount() - before
		if before > 0 && had.LeaseCount() == 0 { // an entry with leases has no other hits
			l.removeLocked(had)
		}
		return dropped
	}
	dropped, made := l.makeRoomLocked(d)
	if !made {
		return dropped + d.Hits
	}
	a := &ledgerEntry{Unsynced: *d.Clone(), expiry: d.ExpiresAt(), next: l.bySlot[slot]}
	a.Name = string(name)
	a.Slot = slot
	a.Exceeded = exceeded()
	if a.next != nil {
		a.next.prev = a
	}
	l.bySlot[slot] = a
	l.entries[a.Name] = a
	l.leases += a.LeaseCount()
	l.byExpiry.Push(a)
	return dropped
}

// makeRoomLocked makes room for d, and returns the number of hits that were dropped for it. It
// reports false if there is no room. Each addition moves the expiry of at most one entry, so the
// cost is logarithmic.
func (l *ledger) makeRoomLocked(d *script.Unsynced) (dropped uint64, made bool) {
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
				return dropped, false
			}
			dropped += first.Hits
		}
		l.removeLocked(first)
	}
	return dropped, true
}

// sweepLocked drops expired leases, at most once per sweepInterval. It reports whether there is
// room for more.
func (l *ledger) sweepLocked(now limiter.Time) (room bool) {
	if since := now - l.lastSweep; since >= 0 && since < sweepInterval {
		return false
	}
	l.lastSweep = now
	for _, a := range slices.Clone(l.byExpiry) {
		before := a.LeaseCount()
		if before == 0 {
			continue
		}
		a.DropEnded(now)
		l.leases -= before - a.LeaseCount()
		if a.LeaseCount() == 0 {
			l.removeLocked(a)
		}
	}
	return l.leases < l.maxLeases
}

// subtract subtracts refunded hits from the entry of a counter.
func (l *ledger) subtract(name []byte, hits uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.entries[string(name)]; a != nil {
		a.Subtract(hits)
	}
}

// remove removes and returns the entry of a counter, nil if there is none.
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

// returnLease records that a lease of a counter is returned without the store. It reports whether it
// was returned so before.
func (l *ledger) returnLease(name string, lease uint64) (before bool) {
	key := hashLease(name, lease)
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.entries[name]; a != nil && a.Released(lease) {
		return true
	}
	for _, returned := range l.returned {
		if _, found := returned[key]; found {
			return true
		}
	}
	if len(l.returned[0]) >= maxReturned {
		l.returned[0], l.returned[1] = l.returned[1], l.returned[0]
		clear(l.returned[0])
	}
	l.returned[0][key] = struct{}{}
	return false
}

// grantLease records that a lease of a counter, which may have had it before, is granted without the
// store.
func (l *ledger) grantLease(name string, lease uint64) {
	key := hashLease(name, lease)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.returned[0], key)
	delete(l.returned[1], key)
}

var leaseSeed = maphash.MakeSeed()

func hashLease(name string, lease uint64) uint64 { return maphash.String(leaseSeed, name) ^ lease }

// hitsUnder returns the unsynced hits under a lease of a counter.
func (l *ledger) hitsUnder(name string, lease uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.entries[name]; a != nil {
		return a.HitsUnder(lease)
	}
	return 0
}

// removeForSlots removes and returns the entries of at most maxRemoved counters in slots for which
// has returns true, in the order of the slots.
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

// hasUnsynced reports whether there are entries in slots for which has returns true.
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

// restore puts entries back that were removed and could not be charged. They are older than the
// current entries of their counters.
func (l *ledger) restore(all []*script.Unsynced) (dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range all {
		if had := l.entries[d.Name]; had != nil && !d.Policy.UsesLeases() {
			d.Add(&had.Unsynced)
			had.Unsynced = *d
			continue
		}
		dropped += l.addLocked([]byte(d.Name), d.Slot, d, func() func(uint64) { return d.Exceeded })
	}
	return dropped
}

// Less orders the heap by expiry.
func (a *ledgerEntry) Less(b *ledgerEntry) bool { return a.expiry < b.expiry }

// SetIndex implements [heap.Element].
func (a *ledgerEntry) SetIndex(i int) { a.index = i }
