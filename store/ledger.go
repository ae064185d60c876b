package store

import (
	"cmp"
	"slices"
	"sync"

	"github.com/sluice-ratelimit/sluice/store/script"
)

// mostDebts is how many counters a fleet's ledger has at most. Hits on others are forgotten, and a
// metric counts them.
const mostDebts = 1 << 16

// mostLeases is how many leases it has, for the same.
const mostLeases = 1 << 18

// accounts are the debts of a fleet, its ledger.
type accounts struct {
	mu     sync.Mutex
	debts  map[string]*script.Debt // by the counters' names in the store
	most   int
	leases int         // of all debts
	spare  script.Debt // of one charge, whose memory is used again
}

// addLocked adds d to what the counter of that name owes. It returns how many hits it has no room for. It keeps
// neither name nor d, and allocates nothing if the counter is known.
func (l *accounts) addLocked(name []byte, slot uint16, d *script.Debt, exceeded func() func(hits uint64)) (forgotten uint64) {
	had := l.debts[string(name)]
	switch {
	case d.Leases() > 0 && l.leases >= mostLeases:
		return d.Hits
	case had != nil:
		was := had.Leases()
		had.Add(d)
		l.leases += had.Leases() - was
	case len(l.debts) >= l.most:
		return d.Hits
	default:
		had = d.Clone()
		had.Name, had.Slot = string(name), slot
		had.Exceeded = exceeded()
		l.leases += had.Leases()
		l.debts[had.Name] = had
	}
	return 0
}

// less takes hits that were given back from what a counter owes.
func (l *accounts) less(name []byte, hits uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.debts[string(name)]; d != nil {
		d.Less(hits)
	}
}

// drop removes and returns what a counter owes, nil if that is nothing.
func (l *accounts) drop(name string) *script.Debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropLocked(name)
}

// dropLocked is drop for a caller that has the lock.
func (l *accounts) dropLocked(name string) *script.Debt {
	d := l.debts[name]
	if d != nil {
		l.leases -= d.Leases()
		delete(l.debts, name)
	}
	return d
}

// gave reports whether a lease of a counter has been given back already, which the store does not know yet.
func (l *accounts) gave(name string, lease uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.debts[name]
	return d != nil && d.Gave(lease)
}

// took returns the hits that are owed under a lease of a counter.
func (l *accounts) took(name string, lease uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.debts[name]; d != nil {
		return d.Took(lease)
	}
	return 0
}

// take removes and returns what the counters of some slots owe, in the order of the slots.
func (l *accounts) take(has func(slot uint16) bool) (all []*script.Debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, d := range l.debts {
		if has(d.Slot) {
			l.dropLocked(name)
			all = append(all, d.Pieces()...)
		}
	}
	slices.SortFunc(all, func(a, b *script.Debt) int { return cmp.Compare(a.Slot, b.Slot) })
	return all
}

// owes reports whether the counters of some slots owe something.
func (l *accounts) owes(has func(slot uint16) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.debts {
		if has(d.Slot) {
			return true
		}
	}
	return false
}

// putBack is for debts that were taken and could not be charged.
func (l *accounts) putBack(all []*script.Debt) (forgotten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range all {
		forgotten += l.addLocked([]byte(d.Name), d.Slot, d, func() func(uint64) { return d.Exceeded })
	}
	return forgotten
}
