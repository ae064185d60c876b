package limiter

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A concurrency limit has a place for each hit that it holds. A place is a cell with the time at which it is
// free again if nobody gives it back, and with a nonce that tells its lease from those that held it before.
// So a place that nobody gives back needs nobody to free it. The word and the note say where to look:
//
//	cell     time 48, in milliseconds since the Unix epoch; nonce 16. What is reserved has a cell more: its hits
//	payload  cells that may be in use 13, places held 13
//	note     end: when the last place is free by itself
//	         past: by how many milliseconds the first is before, or more 35; cell to look at first 13; leases given 16
//
// Until the first place is free by itself, the payload says how many are held. From then on the cells do, which
// are counted anew by whoever writes them. A cell that is not held has no time, so a caller who is late finds as
// many held as the payload says.

// concurrency is the algorithm of [Concurrency].
type concurrency struct{ celled }

const (
	nonceBits = 16
	nonceMask = 1<<nonceBits - 1
	placeBits = 13 // of a number up to MaxLog
	placeMask = 1<<placeBits - 1
	// mostBefore, 397 days in milliseconds, is the most that the note says of the first place. It stands for
	// any time before.
	mostBefore = 1<<(64-placeBits-nonceBits) - 1
	// freeCell is a cell whose time is the earliest there is.
	freeCell = 1 << 63
)

// A lease is FirstLease, the number of the place's cell (12 bits) and its nonce (16 bits). So it is above what
// hits are as a rule, and below 10^9, the most that Envoy takes for hits.
const (
	FirstLease = 1 << 29
	LastLease  = FirstLease + 1<<28 - 1
)

// UsesLeases reports whether p holds hits under leases until these are given back: see [Batch.Lease].
func (p *Policy) UsesLeases() bool { return p.Algorithm == Concurrency || p.Reserve != nil }

// takes reports whether c holds what it takes under a lease.
func (c *Charge) takes() bool { return !c.Refund && (c.Reserve || c.Policy.Algorithm == Concurrency) }

// Lease returns the lease under which charge i of b, decided, holds what it took; 0 if it holds nothing.
func (b *Batch) Lease(i int) uint64 {
	if b.Decisions[i].Charged == 0 || !b.Charges[i].takes() {
		return 0
	}
	return uint64(b.marks[i]) //nolint:gosec // a lease is not negative
}

// HasLease reports whether a charge of b, decided, holds something under a lease.
func (b *Batch) HasLease() bool {
	for i := range b.Charges {
		if b.Lease(i) > 0 {
			return true
		}
	}
	return false
}

// placesOf is p.Limit, cut to what a counter can hold.
func placesOf(p *Policy) uint64 { return uint64(min(p.Limit, MaxLog)) }

func (concurrency) validate(p *Policy) error {
	switch {
	case p.Limit > MaxLog:
		return fmt.Errorf("concurrency of %d: must be at most %d", p.Limit, MaxLog)
	case p.CountRefused:
		return errors.New("concurrency that counts denied hits: a denied request holds nothing")
	}
	return nil
}

func (concurrency) capacity(p *Policy) uint64 { return placesOf(p) }

// cells is one at least, for a note.
func (concurrency) cells(p *Policy) int { return int(max(1, placesOf(p)) * p.width()) } //nolint:gosec // at most MaxLog

// width is how many cells a place has.
func (p *Policy) width() uint64 {
	if p.wide {
		return 2
	}
	return 1
}

func (concurrency) resizes() bool { return true }

func (concurrency) fresh(_, _ Time, _ *Policy) state { return state{} }

// empty has store free all places. The num of any other change is a lease.
func (concurrency) empty(Time, *Policy, state) state { return state{} }

func (concurrency) load(v *view, at Time, p *Policy) bool {
	ps := v.places(p)
	pause(beforeCellLoad)
	v.newer, v.head = ps.held(at.stamp()), math.MinInt64
	if v.state = (state{past: v.newer}); p.wide && v.newer > 0 {
		v.past = ps.sum(at.stamp())
	}
	if v.moves && v.newer > 0 && ps.high*ps.width > uint64(sizes[p.class()]) { //nolint:gosec // not negative
		v.moves = false // it stays where its leases say
	}
	return v.same()
}

func (concurrency) decide(v *view, at Time, c *Charge, hits uint64, _ time.Duration, st state, d *Decision) (after state, ok bool) {
	limit, wide := placesOf(c.Policy), c.Policy.wide
	*d = Decision{Before: st.used + st.past}
	switch {
	case c.Refund:
		if held, lease := v.holds(c.Policy, hits, at); held > 0 && held <= st.past {
			d.Charged, st.past, st.num = held, st.past-held, int64(lease) //nolint:gosec // a lease
		}
	case hits > 0 && wide && v.newer < limit: // reservations are made one by one
		d.Charged, st.used = hits, hits
		st.num = v.lease(c, at, 1)
	case hits > 0 && !wide && d.Before < limit:
		d.Charged = 1
		st.used++
		st.num = v.lease(c, at, st.used)
	case hits > 0 || !wide && d.Before > limit:
		d.Over, d.RetryAfter = true, time.Second
		if limit == 0 && hits > 0 {
			d.RetryAfter = Never
		}
	}
	return st, v.same()
}

// finish tells of no window: any place may be given back at any moment.
func (concurrency) finish(_ *view, _ Time, p *Policy, _ time.Duration, st state, d *Decision) {
	if !d.over(p) {
		d.Remaining, d.Reset = room(placesOf(p), st), time.Second
	}
}

// undo gives back the place that the lease mark holds.
func (concurrency) undo(v *view, at, _ Time, p *Policy, mark int64, d *Decision) (after state, lost bool) {
	after = v.state
	if v.class == &outside {
		after.used -= min(after.used, d.Charged)
	} else if held, lease := v.holds(p, uint64(mark), at); held > 0 { //nolint:gosec // a lease is not negative
		after.past, after.num = after.past-held, int64(lease) //nolint:gosec // a lease
	}
	return after, false
}

// store writes what changes. Cells keep their numbers if the counter moves.
func (concurrency) store(v *view, s *sizeClass, index uint64, p *Policy, after state) uint64 {
	s.fetch(index)
	now, ps := v.at.stamp(), places{first: maxStamp, end: -maxStamp, width: p.width(), longest: longestOf(p)}
	if held := v.held(); held > 0 {
		if ps = v.places(p); s != v.class {
			to := s.cellsOf(index)
			for i := range min(ps.high*ps.width, s.stride()) {
				to[i].Store(ps.cells[i].Load())
			}
		}
		ps.count = held
	} else if v.slot != nil {
		ps.given = v.places(p).given
	}
	ps.cells = s.cellsOf(index)
	take := func() (cell uint64) {
		ps.given++
		return ps.take(now, p.window(), s.nonces.nonce(v.salt, ps.given))
	}
	switch {
	case after.used > 0 && p.wide:
		if after.past == 0 { // it takes the place of all
			ps.high, ps.hint, ps.count, ps.first, ps.end = 0, 0, 0, maxStamp, -maxStamp
		}
		ps.cells[take()+1].Store(after.used)
	case after.used > 0:
		for range after.used {
			take()
		}
	case after.num > 0:
		ps.give(uint64(after.num))
	case after.past > 0: // a store says that so many are held
		ps.drop(v.past-after.past, now)
	default: // a reset
		ps.count = 0
	}
	switch {
	case ps.count == 0:
		ps.high, ps.hint, ps.first, ps.end = 0, 0, now, now
	case ps.changed(now):
		ps.review(now) // and no sooner: decide has chosen among the cells as they were
	}
	note := s.note(index)
	note.end.Store(ps.end)
	note.past.Store(ps.before()<<(placeBits+nonceBits) | ps.hint<<nonceBits | ps.given&nonceMask)
	return ps.high<<placeBits | ps.count
}

// held returns how many places of v's counter are held.
func (v *view) held() uint64 {
	if v.slot == nil {
		return 0
	}
	return v.newer
}

func (concurrency) weight(_ *sizeClass, _, word uint64) uint64 { return word & placeMask }

func (concurrency) found(v *view, _ Time, p *Policy) {
	v.state, v.head = state{past: v.found.Hits}, math.MinInt64
	if !p.wide {
		v.past = min(v.past, MaxLog)
	}
}

func (concurrency) tell(_ *view, _ Time, _ *Policy, st state, s *State) { s.Hits = st.used + st.past }

// adopt has as many places held as there. Which they are only the store knows: see [Table.SetMirror].
func (concurrency) adopt(v, there *view, _ Time, b *Batch, i int) (after state, ok bool) {
	p := b.Charges[i].Policy
	switch {
	case !p.wide:
	case there.past == v.past:
		return v.state, true
	default: // one place for all
		return state{used: there.past}, true
	}
	told := min(there.past, placesOf(p))
	return state{past: min(v.past, told), used: told - min(v.past, told)}, true
}

// holds returns how many hits a lease holds in v's counter, 0 if it does not, and under which lease that is.
func (v *view) holds(p *Policy, lease uint64, at Time) (hits, under uint64) {
	switch {
	case v.class == &outside:
		if v.found.Lease == lease && lease > 0 {
			return 1, lease
		}
		return 0, 0
	case v.held() == 0 || lease < FirstLease || lease > LastLease:
		return 0, 0
	}
	ps, i := v.places(p), cellOf(lease)
	if v.mirrors && !p.wide {
		i = ps.any(at.stamp())
		lease = FirstLease + i<<nonceBits + ps.cell(i).Load()&nonceMask
	}
	pause(beforeCellLoad)
	if i >= ps.high || !ps.live(i, at.stamp()) || ps.cell(i).Load()&nonceMask != lease&nonceMask {
		return 0, 0
	}
	if p.wide {
		return ps.cells[i*ps.width+1].Load(), lease
	}
	return 1, lease
}

// lease returns the lease of the nth place, counted from 1, that the batch of c takes of v's counter.
func (v *view) lease(c *Charge, at Time, nth uint64) int64 {
	if v.class == &outside {
		return int64(v.found.Lease) //nolint:gosec // a lease
	}
	var ps places
	cell := nth - 1
	if v.slot != nil {
		if ps = v.places(c.Policy); v.held() > 0 {
			pause(beforeCellLoad)
			ps.count = v.held()
			cell = ps.free(at.stamp(), nth)
		}
	}
	v.salt = v.class.nonces.salt(c.ID, at)
	// It may be a cell that v's slot does not have, if the counter is about to move.
	return int64(FirstLease + min(cell, MaxLog-1)<<nonceBits + v.class.nonces.nonce(v.salt, ps.given+nth)) //nolint:gosec // small
}

// cellOf returns the number of the place that a lease names.
func cellOf(lease uint64) uint64 { return lease >> nonceBits & (placeMask >> 1) }
