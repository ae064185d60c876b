package live

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

const (
	// unmatchedBudget is the number of descriptors of a domain that are examined per second. Each
	// further descriptor costs one comparison.
	unmatchedBudget = 64
	// unmatchedKey is the number of bytes of a key that are stored.
	unmatchedKey = 64
)

// unmatched records where in the rules the descriptors of a domain stop matching.
type unmatched struct {
	now    *atomic.Uint32
	budget atomic.Int32 // number of descriptors that may still be examined in this second

	mu      sync.Mutex
	entries [MaxUnmatched]unmatchedEntry
}

// unmatchedEntry records the descriptors that stop matching at the same entry. It is free while
// seen is 0.
type unmatchedEntry struct {
	at          descriptors.Unmatched
	key         [unmatchedKey]byte
	keyBytes    uint8
	seen        uint64
	first, last uint32
	idle        uint8 // number of completed intervals since it was last seen
}

func newUnmatched(now *atomic.Uint32) *unmatched {
	u := &unmatched{now: now}
	u.budget.Store(unmatchedBudget)
	return u
}

// AcceptsUnmatched reports whether another descriptor may be examined in this second.
func (d *Domain) AcceptsUnmatched() bool { return d.unmatched.Load().budget.Load() > 0 }

// RecordUnmatched records a descriptor that no rule matched, as [descriptors.Set.Unmatched]
// describes it.
func (d *Domain) RecordUnmatched(at descriptors.Unmatched, key []byte) {
	u := d.unmatched.Load()
	u.budget.Add(-1)
	if at == (descriptors.Unmatched{}) || !u.mu.TryLock() {
		return
	}
	defer u.mu.Unlock()
	key = key[:min(len(key), unmatchedKey)]
	now := u.now.Load()
	oldest := &u.entries[0]
	for i := range u.entries {
		p := &u.entries[i]
		if p.seen > 0 && p.at == at && string(p.key[:p.keyBytes]) == string(key) {
			p.seen++
			p.last = now
			p.idle = 0
			return
		}
		if p.age() > oldest.age() || p.age() == oldest.age() && p.last < oldest.last {
			oldest = p
		}
	}
	*oldest = unmatchedEntry{at: at, seen: 1, first: now, last: now}
	oldest.keyBytes = uint8(copy(oldest.key[:], key)) //nolint:gosec // at most unmatchedKey
}

// age returns the number of intervals since the entry was last seen. Free entries have the maximum.
func (p *unmatchedEntry) age() uint8 {
	if p.seen == 0 {
		return math.MaxUint8
	}
	return p.idle
}

// rotate ends an interval and frees entries that have not been seen for a minute.
func (u *unmatched) rotate(now uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.entries {
		p := &u.entries[i]
		p.first = min(p.first, now)
		p.last = min(p.last, now) // the clock may have been set back
		if p.idle++; p.idle >= idleBound {
			p.seen = 0
			p.idle = 0
		}
	}
}

// Unmatched returns the unmatched descriptors of about the last minute, by domain, the most
// frequent first.
func (l *Recorder) Unmatched() map[string][]Unmatched {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string][]Unmatched{}
	for d := range l.domainsLocked {
		d.unmatched.Load().read(l.now.Load(), all)
	}
	for _, found := range all {
		slices.SortFunc(found, compareUnmatched)
	}
	return all
}

func (u *unmatched) read(now uint32, all map[string][]Unmatched) {
	u.mu.Lock()
	entries := u.entries
	u.mu.Unlock()
	for i := range entries {
		p := &entries[i]
		if p.seen == 0 {
			continue
		}
		found := Unmatched{
			Key: string(p.key[:p.keyBytes]), Entry: p.at.Entry(), Below: p.at.Reached(),
			Seen: p.seen, Since: seconds(min(p.first, now)), Last: seconds(min(p.last, now)),
		}
		found.Why, found.Meant = p.at.Explain(found.Key)
		all[p.at.Domain()] = append(all[p.at.Domain()], found)
	}
}

func compareUnmatched(a, b Unmatched) int {
	return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Below, b.Below))
}
