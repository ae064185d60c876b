package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A refusal is certain if the store said within the last second that the counter has no room: what
// others do meanwhile only takes room, save refunds, resets and raised limits, which
// show when the second is over. It is decided in the mirror and charges nothing, so a counter that
// is hammered costs the store one charge a second from each replica.
//
// Where refused hits count, none is certain: each of them changes what the next look finds, and a
// limit on outcomes, which looks on the request and charges at its end, would never be exceeded. Under a penalty no
// hits count, and all refusals are certain.
const (
	cacheFor = time.Second
	// recheckAfter is how much longer the others take it for certain when one of them asks again.
	recheckAfter = 50 * time.Millisecond
)

// deniedCache remembers when the store last said of a counter that it has no room. Counters share places, and a
// newer one takes the place of an older one. An element is 28 bits of a counter's identity, and 36 of
// milliseconds since 1970.
type deniedCache [1 << 16]atomic.Uint64

const millisBits = 36

func (f *deniedCache) entry(c *limiter.Charge) (at *atomic.Uint64, tag uint64) {
	return &f[c.ID.Lo%uint64(len(f))], c.ID.Lo >> 16 << millisBits
}

// mark has f know that a counter had no room at the time now.
func (f *deniedCache) mark(now limiter.Time, c *limiter.Charge) {
	at, tag := f.entry(c)
	at.Store(tag | millis(now))
}

// clear has f know of no counter. The name that is reset does not tell its place.
func (f *deniedCache) clear() {
	for i := range f {
		f[i].Store(0)
	}
}

// marked reports whether a counter was ever marked. It is a cheap way not to look further.
func (f *deniedCache) marked(c *limiter.Charge) bool {
	at, tag := f.entry(c)
	return at.Load()&^(1<<millisBits-1) == tag
}

// isDenied reports whether a counter was marked within a second of now. To one of those who ask when that is
// over it says no, and to the others so after askAgain.
func (f *deniedCache) isDenied(now limiter.Time, c *limiter.Charge) bool {
	at, tag := f.entry(c)
	entry := at.Load()
	marked := entry & (1<<millisBits - 1)
	if entry&^(1<<millisBits-1) != tag || marked == 0 {
		return false
	}
	age := time.Duration(millis(now)-marked) * time.Millisecond //nolint:gosec // wraps below 0
	switch {
	case age < -cacheFor, age >= cacheFor+recheckAfter: // clocks were set, or it is long ago
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

// denyFromCache decides b, of the time at, if it is certain that each of its groups is refused. It reports
// false if the store has to be asked: then b's decisions mean nothing.
func (s *Store) denyFromCache(at limiter.Time, b *limiter.Batch) bool {
	known := false
	for i := range b.Charges {
		c := &b.Charges[i]
		p := c.Policy
		if c.Refund || c.Hits == 0 || c.Mode == limiter.Quota || p.Leases() || changesDenied(p) && !c.Penalises() ||
			s.backendOf(p) != s.backendOf(b.Charges[0].Policy) { // two stores have two clocks
			return false
		}
		known = known || c.Mode == limiter.Enforce && s.denied.marked(c)
	}
	if !known {
		return false
	}
	now := s.backendOf(b.Charges[0].Policy).time(at)
	found, _ := statePool.Get().(*[]limiter.State)
	defer statePool.Put(found)
	for len(*found) < len(b.Charges) {
		*found = append(*found, limiter.State{})
	}
	b.Stored().Find(s.options.Table, now, (*found)[:len(b.Charges)])
	b.Stored().Conclude(now, (*found)[:len(b.Charges)])
	refused := false // the group
	for i := range b.Charges {
		c, d := &b.Charges[i], &b.Decisions[i]
		if i > 0 && c.Group != b.Charges[i-1].Group {
			if !refused {
				return false
			}
			refused = false
		}
		if c.Penalises() && (d.Over || changesDenied(c.Policy)) && (d.Penalty == 0 || d.Began || isShort(c.Policy, d.Penalty)) {
			return false // that is for the store to say
		}
		refused = refused || c.Mode == limiter.Enforce && d.Over && s.denied.isDenied(now, c)
	}
	if !refused {
		return false
	}
	for i := range b.Decisions {
		b.Decisions[i].Charged = 0
	}
	s.options.observe().Decided(byMemory, len(b.Charges))
	return true
}

// changesDenied reports whether the mirror cannot decide hits on a counter of p that are denied, unless a penalty denies them:
// they count, or their retry-after depends on times that only the store has.
func changesDenied(p *limiter.Policy) bool {
	return p.CountRefused || p.Algorithm == limiter.SlidingLog
}

// isShort reports whether hits on a log, of which the mirror does not know all, may be denied for longer than by a penalty of
// the given level. The newest are not newer than the beginning of the penalty.
func isShort(p *limiter.Policy, level uint8) bool {
	steps := p.Penalty.Steps()
	return p.Algorithm == limiter.SlidingLog && steps[min(int(level), len(steps))-1] < p.Window
}
