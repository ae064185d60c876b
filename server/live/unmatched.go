package live

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

const (
	// unmatchedBudget is how many descriptors of a domain are looked at in a second. Others that match no rule cost a
	// request one comparison.
	unmatchedBudget = 64
	// unmatchedKey is how much of a key is kept, in bytes.
	unmatchedKey = 64
)

// unmatched are the places at which descriptors of a domain match no rule.
type unmatched struct {
	now    *atomic.Uint32
	budget atomic.Int32 // of this second

	mu     sync.Mutex
	places [MaxUnmatched]unmatchedPlace
}

// unmatchedPlace is free while seen is 0.
type unmatchedPlace struct {
	at          descriptors.Unmatched
	key         [unmatchedKey]byte
	keyBytes    uint8
	seen        uint64
	first, last uint32
	idle        uint8 // number of intervals that have ended since it was last seen
}

func newUnmatched(now *atomic.Uint32) *unmatched {
	u := &unmatched{now: now}
	u.budget.Store(unmatchedBudget)
	return u
}

// WantsUnmatched reports whether [Domain.Unmatched] would look at another descriptor in this second.
func (d *Domain) WantsUnmatched() bool { return d.unmatched.Load().budget.Load() > 0 }

// Unmatched notes a descriptor that no rule matched, as [descriptors.Set.Unmatched] tells of it.
func (d *Domain) Unmatched(at descriptors.Unmatched, key []byte) {
	u := d.unmatched.Load()
	u.budget.Add(-1)
	if at == (descriptors.Unmatched{}) || !u.mu.TryLock() {
		return
	}
	defer u.mu.Unlock()
	key = key[:min(len(key), unmatchedKey)]
	now := u.now.Load()
	oldest := &u.places[0]
	for i := range u.places {
		p := &u.places[i]
		if p.seen > 0 && p.at == at && string(p.key[:p.keyBytes]) == string(key) {
			p.seen++
			p.last, p.idle = now, 0
			return
		}
		if p.age() > oldest.age() || p.age() == oldest.age() && p.last < oldest.last {
			oldest = p
		}
	}
	*oldest = unmatchedPlace{at: at, seen: 1, first: now, last: now}
	oldest.keyBytes = uint8(copy(oldest.key[:], key)) //nolint:gosec // at most unmatchedKey
}

// age orders places by when they were last seen, to an interval; free ones are the oldest.
func (p *unmatchedPlace) age() uint8 {
	if p.seen == 0 {
		return math.MaxUint8
	}
	return p.idle
}

// rotate ends an interval, which frees places that have not been seen for long.
func (u *unmatched) rotate(now uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.places {
		p := &u.places[i]
		p.first, p.last = min(p.first, now), min(p.last, now) // the clock may have been set back
		if p.idle++; p.idle >= idleBound {
			p.seen, p.idle = 0, 0
		}
	}
}

// Unmatched returns what no rule matched in about the last minute, by the domain's name, what was seen most often first.
func (l *Live) Unmatched() map[string][]Unmatched {
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
	places := u.places
	u.mu.Unlock()
	for i := range places {
		p := &places[i]
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
