package limiter

import (
	"errors"
	"fmt"
	"time"
)

// A concurrency limit has a permit for each hit in progress. A permit is a cell with its expiry
// time and a nonce, which distinguishes its lease from earlier leases of the same cell. A permit
// that is not released expires by itself. The word and the note summarize the cells:
//
//	cell     expiry 48, in milliseconds since the Unix epoch; nonce 16. A permit of a
//	         reservation has a second cell with the number of its hits
//	payload  number of cells that may be in use 13, permits held 13
//	note     end: latest expiry
//	         past: milliseconds from the first expiry to end, capped, 35; next cell to try 13;
//	         leases granted 16
//
// Until the first permit expires, the payload has the number of held permits. From then on readers
// count the cells. A writer counts them, too, frees the cells of expired permits and updates the
// payload, so that a late caller does not find these permits held.

// concurrency implements [Concurrency].
type concurrency struct{ withCells }

const (
	nonceBits  = 16
	nonceMask  = 1<<nonceBits - 1
	permitBits = 13 // for numbers up to MaxLog
	permitMask = 1<<permitBits - 1
	// maxBefore is the greatest value of the milliseconds in note.past, 397 days. It stands for
	// that time or longer.
	maxBefore = 1<<(64-permitBits-nonceBits) - 1
	// freeCell is a cell with the earliest possible expiry time.
	freeCell = 1 << 63
)

// A lease is FirstLease plus the number of the permit (12 bits) and its nonce (16 bits). Leases are
// thus greater than usual hit counts, and less than 10^9, the maximum that Envoy accepts as hits.
const (
	FirstLease = 1 << 29
	LastLease  = FirstLease + 1<<28 - 1
)

// UsesLeases reports whether charges under p hold hits under leases; see [Batch.Lease].
func (p *Policy) UsesLeases() bool { return p.Algorithm == Concurrency || p.Reserve != nil }

// acquiresLease reports whether c, if admitted, holds hits under a lease.
func (c *Charge) acquiresLease() bool {
	return c.Hits > 0 && !c.Refund && (c.Reserve || c.Policy.Algorithm == Concurrency)
}

// Lease returns the lease under which the decided charge i of b holds its hits; 0 if it holds none.
func (b *Batch) Lease(i int) uint64 {
	if b.Decisions[i].Charged == 0 || !b.Charges[i].acquiresLease() {
		return 0
	}
	return uint64(b.marks[i]) //nolint:gosec // a lease is not negative
}

// HasLease reports whether a decided charge of b holds hits under a lease.
func (b *Batch) HasLease() bool {
	for i := range b.Charges {
		if b.Lease(i) > 0 {
			return true
		}
	}
	return false
}

// permitLimit returns p.Limit, capped at the capacity of a counter.
func permitLimit(p *Policy) uint64 { return uint64(min(p.Limit, MaxLog)) }

func (concurrency) validate(p *Policy) error {
	switch {
	case p.Limit > MaxLog:
		return fmt.Errorf("concurrency of %d: must be at most %d", p.Limit, MaxLog)
	case p.CountRefused:
		return errors.New("concurrency limits cannot count denied hits")
	}
	return nil
}

func (concurrency) capacity(p *Policy) uint64 { return permitLimit(p) }

// cells returns at least 1, so that the counter has a note.
func (concurrency) cells(p *Policy) int { return int(max(1, permitLimit(p)) * p.width()) } //nolint:gosec // at most MaxLog

// width returns the number of cells of a permit.
func (p *Policy) width() uint64 {
	if p.weighted {
		return 2
	}
	return 1
}

func (concurrency) resizes() bool { return true }

func (concurrency) fresh(_, _ Time, _ *Policy) state { return state{} }

// resetState returns a state for which store releases all permits. Reservations keep theirs, without
// hits, so that the costs of their requests are not charged later.
func (concurrency) resetState(_ Time, p *Policy, st state) state {
	if p.weighted && st.past > 0 {
		return state{mark: voided}
	}
	return state{}
}

// voided is the mark of the state after a reset of reservations.
const voided = -1

func (concurrency) load(v *view, at Time, p *Policy) bool {
	ps := v.permits(p)
	pause(beforeCellLoad)
	v.held = ps.countHeld(at.stamp())
	v.head = noHead
	v.state = (state{past: v.held})
	if p.weighted && v.held > 0 {
		v.past = ps.heldHits(at.stamp())
	}
	if v.misplaced && v.held > 0 && ps.high*ps.width > uint64(sizes[p.class()]) { //nolint:gosec // not negative
		v.misplaced = false // leases contain cell numbers of this class
	}
	return v.unchanged()
}

func (concurrency) decide(
	v *view, at Time, c *Charge, hits uint64, _ time.Duration, st state, d *Decision,
) (after state, ok bool) {
	limit := permitLimit(c.Policy)
	wide := c.Policy.weighted
	*d = Decision{Before: st.used + st.past}
	switch {
	case c.Refund:
		if held, lease := v.leaseHits(c.Policy, hits, at); lease > 0 && held <= st.past {
			d.Charged, st.past, st.mark = held, st.past-held, int64(lease) //nolint:gosec // a lease
		}
	case hits > 0 && wide && (v.held < limit || v.held-v.voidPermits(c.Policy, at) < limit): // one reservation per charge
		d.Charged = hits
		st.used = hits
		st.mark = v.newLease(c, at, 1)
	case hits > 0 && !wide && d.Before < limit:
		d.Charged = 1
		st.used++
		st.mark = v.newLease(c, at, st.used)
	case hits > 0 || !wide && d.Before > limit:
		d.Over = true
		d.RetryAfter = time.Second
		if limit == 0 && hits > 0 {
			d.RetryAfter = Never
		}
	}
	return st, v.unchanged()
}

// finish sets Reset to one second, since a permit may be released at any moment.
func (concurrency) finish(_ *view, _ Time, p *Policy, _ time.Duration, st state, d *Decision) {
	if !d.finishOver(p) {
		d.Remaining = remaining(permitLimit(p), st)
		d.Reset = time.Second
	}
}

// undo releases the permit of the lease mark.
func (concurrency) undo(v *view, at, _ Time, p *Policy, mark int64, d *Decision) (after state, lost bool) {
	after = v.state
	if v.class == &externalClass {
		after.used -= min(after.used, d.Charged)
	} else if held, lease := v.leaseHits(p, uint64(mark), at); lease > 0 { //nolint:gosec // a lease is not negative
		after.past, after.mark = after.past-held, int64(lease) //nolint:gosec // a lease
	}
	return after, false
}

// store writes the cells that change. Permits keep their cell numbers if the counter moves.
func (concurrency) store(v *view, s *sizeClass, index uint64, p *Policy, after state) uint64 {
	s.loadCells(index)
	now := v.at.stamp()
	ps := permits{first: maxStamp, end: -maxStamp, width: p.width(), maxLife: maxPermitLife(p)}
	if held := v.held; held > 0 {
		ps = v.permits(p)
		if s != v.class {
			to := s.cellsOf(index)
			for i := range min(ps.high*ps.width, s.stride()) {
				to[i].Store(ps.cells[i].Load())
			}
		}
		ps.count = held
	} else if v.slot != nil {
		ps.leasesGranted = v.permits(p).leasesGranted
	}
	ps.cells = s.cellsOf(index)
	acquire := func() (cell uint64) {
		ps.leasesGranted++
		return ps.acquire(now, p.window(), s.nonces.nonce(v.salt, ps.leasesGranted))
	}
	switch {
	case after.used > 0 && p.weighted:
		if after.past < v.past { // it replaces all permits
			ps.high = 0
			ps.hint = 0
			ps.count = 0
			ps.first = maxStamp
			ps.end = -maxStamp
		}
		ps.cells[acquire()+1].Store(after.used)
	case after.used > 0:
		for range after.used {
			acquire()
		}
	case after.mark > 0:
		ps.release(uint64(after.mark))
	case after.mark == voided:
		ps.void(now)
	case after.past > 0: // a store reported fewer permits
		ps.releaseN(v.past-after.past, now)
	default: // a reset
		ps.count = 0
	}
	switch {
	case ps.count == 0:
		ps.high = 0
		ps.hint = 0
		ps.first = now
		ps.end = now
	case ps.mayHaveExpired(now):
		ps.rescan(now) // not before a permit is acquired, since decide has chosen its cell
	}
	note := s.noteAt(index)
	note.end.Store(ps.end)
	note.past.Store(ps.firstBeforeEnd()<<(permitBits+nonceBits) | ps.hint<<nonceBits | ps.leasesGranted&nonceMask)
	return ps.high<<permitBits | ps.count
}

func (concurrency) weight(_ *sizeClass, _, word uint64) uint64 { return word & permitMask }

func (concurrency) importState(v *view, _ Time, p *Policy) {
	v.state = state{past: v.reported.Hits}
	v.head = noHead
	if !p.weighted {
		v.past = min(v.past, MaxLog)
	}
}

func (concurrency) export(_ *view, _ Time, _ *Policy, st state, s *State) { s.Hits = st.used + st.past }

// merge makes the number of held permits equal to the store's. Only the store knows the leases; see
// [Table.SetMirror].
func (concurrency) merge(v, there *view, _ Time, b *Batch, i int) (after state, ok bool) {
	p := b.Charges[i].Policy
	switch {
	case !p.weighted:
	case there.past == v.past:
		return v.state, true
	default: // one permit for all hits
		return state{used: there.past}, true
	}
	held := min(there.past, permitLimit(p))
	return state{past: min(v.past, held), used: held - min(v.past, held)}, true
}

// voidPermits returns the number of permits without hits, which a reset left.
func (v *view) voidPermits(p *Policy, at Time) (n uint64) {
	if v.held == 0 {
		return 0
	}
	ps := v.permits(p)
	for i := range ps.high {
		if ps.isVoid(i, at.stamp()) {
			n++
		}
	}
	return n
}

// leaseHits returns the number of hits that a lease holds in v's counter and the lease to release,
// 0 if it is not valid.
func (v *view) leaseHits(p *Policy, lease uint64, at Time) (hits, under uint64) {
	switch {
	case v.class == &externalClass:
		if v.reported.Lease == lease && lease > 0 {
			return 1, lease
		}
		return 0, 0
	case v.held == 0 || lease < FirstLease || lease > LastLease:
		return 0, 0
	}
	ps := v.permits(p)
	i := permitIndex(lease)
	if v.mirror && !p.weighted {
		i = ps.anyHeld(at.stamp())
		lease = FirstLease + i<<nonceBits + ps.cell(i).Load()&nonceMask
	}
	pause(beforeCellLoad)
	if i >= ps.high || !ps.isHeld(i, at.stamp()) || ps.cell(i).Load()&nonceMask != lease&nonceMask {
		return 0, 0
	}
	if p.weighted {
		return ps.cells[i*ps.width+1].Load(), lease
	}
	return 1, lease
}

// newLease returns the lease of the nth permit, from 1, that the batch of c acquires on v's
// counter.
func (v *view) newLease(c *Charge, at Time, nth uint64) int64 {
	if v.class == &externalClass {
		return int64(v.reported.Lease) //nolint:gosec // a lease
	}
	var ps permits
	cell := nth - 1
	if v.slot != nil {
		ps = v.permits(c.Policy)
		if v.held > 0 {
			pause(beforeCellLoad)
			ps.count = v.held
			cell = ps.nthFree(at.stamp(), nth)
		}
	}
	v.salt = v.class.nonces.salt(c.ID, at)
	// The cell may be beyond those of v's slot, if the counter is about to move.
	return int64(FirstLease + min(cell, MaxLog-1)<<nonceBits + v.class.nonces.nonce(v.salt, ps.leasesGranted+nth)) //nolint:gosec // small
}

// permitIndex returns the number of the permit of a lease.
func permitIndex(lease uint64) uint64 { return lease >> nonceBits & (permitMask >> 1) }
