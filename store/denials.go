package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A denial is certain if the store reported within the last second that the counter is full. Other
// hits only fill it further; refunds, resets and raised limits take effect after that second. A
// certain denial is decided in the mirror and charges nothing, so a counter under attack costs the
// store one charge a second from each replica, and a choice one for each of its counters.
//
// If denied hits count, no denial is certain: each one changes the counter. Otherwise a limit on
// outcomes, which peeks at the request and charges when it ends, would never be exceeded. Under a
// penalty no hits count, and all denials are certain.
const (
	cacheFor = time.Second
	// recheckAfter is how much longer other callers use the cached denial while one of them queries
	// the store again.
	recheckAfter = 50 * time.Millisecond
)

// deniedCache records when the store last reported that a counter is full. Counters share entries,
// and a newer one replaces an older one. An entry has 28 bits of the identity of a counter, and 36
// bits of milliseconds since 1970.
type deniedCache [1 << 16]atomic.Uint64

const millisBits = 36

func (f *deniedCache) entry(c *limiter.Charge) (at *atomic.Uint64, tag uint64) {
	return &f[c.ID.Lo%uint64(len(f))], c.ID.Lo >> 16 << millisBits
}

// mark records that a counter had no room at the time now.
func (f *deniedCache) mark(now limiter.Time, c *limiter.Charge) {
	at, tag := f.entry(c)
	at.Store(tag | millis(now))
}

// clear removes all entries: the name of a counter does not identify its entry.
func (f *deniedCache) clear() {
	for i := range f {
		f[i].Store(0)
	}
}

// marked reports whether a counter has an entry, expired or not. It is cheaper than isDenied.
func (f *deniedCache) marked(c *limiter.Charge) bool {
	at, tag := f.entry(c)
	return at.Load()&^(1<<millisBits-1) == tag
}

// isDenied reports whether a counter was marked within a second of now. After that second it
// reports false to one caller, and to the others after recheckAfter.
func (f *deniedCache) isDenied(now limiter.Time, c *limiter.Charge) bool {
	at, tag := f.entry(c)
	entry := at.Load()
	marked := entry & (1<<millisBits - 1)
	if entry&^(1<<millisBits-1) != tag || marked == 0 {
		return false
	}
	age := time.Duration(millis(now)-marked) * time.Millisecond //nolint:gosec // wraps below 0
	switch {
	case age < -cacheFor, age >= cacheFor+recheckAfter: // a clock was set, or the entry is old
		return false
	case age < cacheFor:
		return true
	default:
		return !at.CompareAndSwap(entry, tag|(marked+uint64(recheckAfter/time.Millisecond)))
	}
}

func millis(now limiter.Time) uint64 {
	return uint64(now) / uint64(time.Millisecond) & (1<<millisBits - 1) //nolint:gosec // since 1970
}

var statePool = sync.Pool{New: func() any { return new([]limiter.State) }}

// denyFromMemory decides b at the time now if each of its groups is certain to be denied. If it
// reports false, the decisions of b are meaningless and the store must decide.
func (s *Store) denyFromMemory(now limiter.Time, b *limiter.Batch) bool {
	if !s.mayDeny(b) {
		return false
	}
	f := s.backendOf(b.Charges[0].Policy)
	for i := range b.Charges {
		if s.backendOf(b.Charges[i].Policy) != f { // two stores have different clocks
			return false
		}
	}
	if !s.deny(f.time(now), b) {
		return false
	}
	s.options.observe().Decided(byMemory, len(b.Charges))
	return true
}

// mayDeny reports whether b may be denied without the store, and the store has denied one of its
// charges.
func (m *memory) mayDeny(b *limiter.Batch) (known bool) {
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Refund || c.Hits == 0 || c.Mode == limiter.Quota || c.Policy.UsesLeases() ||
			changesDenied(c.Policy) && !c.Penalises() {
			return false
		}
		known = known || c.Mode == limiter.Enforce && m.denied.marked(c)
	}
	return known
}

// deny decides b at the store's time if each of its groups is certain to be denied.
func (m *memory) deny(now limiter.Time, b *limiter.Batch) bool {
	found, _ := statePool.Get().(*[]limiter.State)
	defer statePool.Put(found)
	for len(*found) < len(b.Charges) {
		*found = append(*found, limiter.State{})
	}
	b.Stored().ReadStates(m.mirror, now, (*found)[:len(b.Charges)])
	b.Stored().Decide(now, (*found)[:len(b.Charges)])
	denied := false // the current group is denied
	for i := range b.Charges {
		c := &b.Charges[i]
		d := &b.Decisions[i]
		if i > 0 && c.Group != b.Charges[i-1].Group {
			if !denied {
				return false
			}
			denied = false
		}
		if c.Penalises() && (d.Over || changesDenied(c.Policy)) &&
			(d.Penalty == 0 || d.PenaltyStarted || isShort(c.Policy, d.Penalty)) {
			return false // the store must decide
		}
		denied = denied || c.Mode == limiter.Enforce && d.Over && m.isDenied(now, b, i)
	}
	if !denied {
		return false
	}
	for i := range b.Decisions {
		b.Decisions[i].Charged = 0
	}
	return true
}

// isDenied reports whether the counter of charge i has a certain denial, or each counter of its choice.
func (m *memory) isDenied(now limiter.Time, b *limiter.Batch, i int) bool {
	for b.Charges[i].Choice == limiter.NextChoice {
		i--
	}
	for m.denied.isDenied(now, &b.Charges[i]) {
		if i++; i == len(b.Charges) || b.Charges[i].Choice != limiter.NextChoice {
			return true
		}
	}
	return false
}

// changesDenied reports whether the mirror cannot decide denied hits on a counter of p, unless a
// penalty denies them: denied hits count, or their retry-after depends on times that only the store
// has.
func changesDenied(p *limiter.Policy) bool {
	return p.CountRefused || p.Algorithm == limiter.SlidingLog
}

// isShort reports whether a log may deny hits for longer than the penalty of the given level. The
// mirror may not know all hits of the log, but none of them is newer than the start of the penalty.
func isShort(p *limiter.Policy, level uint8) bool {
	steps := p.Penalty.Steps()
	return p.Algorithm == limiter.SlidingLog && steps[min(int(level), len(steps))-1] < p.Window
}

// updateMirror writes the state in which the store has left b's counters, at its time now, to the
// mirror. left is scratch memory.
func (s *Store) updateMirror(now limiter.Time, b *limiter.Batch, left *limiter.State) {
	s.options.observe().Decided(byStore, len(b.Charges))
	s.updateCounters(now, b, left)
}

// updateCounters is updateMirror without counting the charges.
func (m *memory) updateCounters(now limiter.Time, b *limiter.Batch, left *limiter.State) {
	for i := range b.Charges {
		b.Stored().StateAfter(now, i, left)
		m.update(now, b, i, left)
	}
}

// update records the state in which the store left the counter of charge i at its time now.
func (m *memory) update(now limiter.Time, b *limiter.Batch, i int, left *limiter.State) {
	b.Stored().MergeInto(m.mirror, now, i, left)
	c := &b.Charges[i]
	d := &b.Decisions[i]
	full := d.Remaining == 0 && !d.Skipped || b.Decisions[b.Stored().Chosen(i)].Over
	if full && !c.Refund && c.Hits > 0 && !c.Policy.UsesLeases() {
		m.denied.mark(now, c)
	}
	if m.blocks != nil {
		m.blocks.learn(now, c, left, d)
	}
}
