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

// accounts are the debts of a fleet, its ledger.
type accounts struct {
	mu    sync.Mutex
	debts map[string]*script.Debt // by the counters' names in the store
	most  int
	spare script.Debt // of one charge, whose memory is used again
}

// addLocked adds d to what the counter of that name owes. It returns how many hits it has no room for. It keeps
// neither name nor d, and allocates nothing if the counter is known.
func (l *accounts) addLocked(name []byte, slot uint16, d *script.Debt, exceeded func() func(hits uint64)) (forgotten uint64) {
	had := l.debts[string(name)]
	switch {
	case had != nil:
		had.Add(d)
	case len(l.debts) >= l.most:
		return d.Hits
	default:
		had = &script.Debt{}
		*had = *d
		had.Name, had.Slot, had.Runs = string(name), slot, slices.Clone(d.Runs)
		had.Exceeded = exceeded()
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

// forget drops what a counter owes that is reset.
func (l *accounts) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.debts, name)
}

// take removes and returns what the counters of some slots owe, in the order of the slots.
func (l *accounts) take(has func(slot uint16) bool) (all []*script.Debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, d := range l.debts {
		if has(d.Slot) {
			all = append(all, d)
			delete(l.debts, name)
		}
	}
	slices.SortFunc(all, func(a, b *script.Debt) int { return cmp.Compare(a.Slot, b.Slot) })
	return all
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
