package division

import (
	"math"
	"time"
)

// never is later than all times.
const never Time = math.MaxInt64

const (
	// probeTimeout is how long a probed Envoy has to report the bucket again.
	probeTimeout = 250 * time.Millisecond
	// minDivideGap is the shortest average time between two divisions of a bucket, of which a second
	// may be saved up. So there are at most ten in a second, however often streams open, report and
	// close. A division visits all shares of a bucket, so the gap grows with their number.
	minDivideGap      = 200 * time.Millisecond
	divideGapPerShare = 4 * time.Millisecond
	maxDivideGap      = time.Second
)

// divide computes the assignments of a bucket.
func (d *Divider) divide(b *bucket) {
	d.counts.Divisions++
	n := d.expireRates(b)
	for i := range b.shares {
		if s := &b.shares[i]; !s.ended && d.retireShare(b, s) {
			s.ended = true
			n++
		}
	}
	if n > 0 {
		d.removeEnded(b)
	}
	gap := min(max(Time(len(b.shares))*divideGapPerShare, minDivideGap), maxDivideGap)
	b.restUntil = max(b.restUntil+gap, d.now+2*gap-maxDivideGap)
	if len(b.shares) == 0 && len(b.lost) == 0 {
		b.removed = true
		d.due.remove(b)
		delete(d.buckets, b.key)
		d.addBytes(b.owner, -bucketBytes-len(b.id))
		return
	}
	switch {
	case b.limit == nil:
	case b.limit.Strategy == Divide:
		d.apportion(b)
	default:
		rate := Rate(0)
		if b.limit.Strategy == AllowAll {
			rate = unlimited
		}
		for i := range b.shares {
			if s := &b.shares[i]; s.has(replyDue) && s.abandonment == kept {
				d.queueAssignment(b, s, rate)
			}
		}
	}
	d.scheduleNext(b)
}

// retireShare reports whether a share must be removed. If the share must be abandoned first, it
// queues Abandon. A share with no rate in effect is removed after a TTL without a report, even if
// its last action was never taken or confirmed. An Envoy that still knows the bucket reports it
// again.
func (d *Divider) retireShare(b *bucket, s *share) bool {
	switch {
	case s.maxRate == 0 && d.now-s.reported > TTL:
		return true
	case s.abandonment != kept:
		isOver := s.abandonment == retired || s.deadline <= d.now
		return s.maxRate == 0 && s.outbox == absent && !s.has(expiryUnknown) && isOver
	case b.limit == nil, d.isIdle(s) && s.outbox != queued && !s.has(expiryUnknown):
		d.counts.Abandoned++
		d.queueAbandon(b, s, retired)
	}
	return false
}

// isIdle reports whether a share had no requests for idleReports reports, or for one report if its
// stream or client uses more than half of its bound.
func (d *Divider) isIdle(s *share) bool {
	if s.idleReports == 0 {
		return false
	}
	if len(s.stream.shares) > d.maxStreamBuckets/2 || 2*s.stream.client.bytes > d.maxBytes-d.bytes {
		return true
	}
	return int(s.idleReports) >= d.idleReports
}

// apportion computes the allocation of each share, lowers the rates above it, and raises the others
// from the free part of the limit.
func (d *Divider) apportion(b *bucket) {
	starved := d.allocate(b)
	free := b.limit.perFill() - b.lostRate()
	need := int64(0)
	excess := -free // by which the rates exceed the limit when all are confirmed
	for i := range b.shares {
		s := &b.shares[i]
		excess += int64(s.current)
		if s.abandonment == probed {
			free -= int64(s.reservedRate())
			continue
		}
		free -= int64(s.maxRate)
		if s.abandonment == kept {
			need += max(d.demands[i].allocation-int64(s.maxRate), 0)
		}
	}
	free = max(free, 0)
	scale := 1.0
	if need > free {
		scale = float64(free) / float64(need)
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.abandonment != kept {
			continue
		}
		target := d.demands[i].allocation
		rate := target
		if more := target - int64(s.maxRate); more > 0 {
			rate = int64(s.maxRate) + min(int64(float64(more)*scale), free)
		}
		if b.mayActOnLost(s) {
			rate = min(max(target, int64(d.demands[i].claim)), int64(s.maxRate)+free)
		}
		current := int64(s.current)
		lower := excess > 0 && rate < current
		switch {
		case s.has(rateUnconfirmed) && rate > current/4*3 && !lower:
			rate = current // each new rate needs its own confirmation, so with frequent changes none would ever be confirmed
		case rate > current && rate-current < current/10 && !s.has(denied):
			rate = current // a new rate makes Envoy replace its token bucket
		}
		if !d.shouldAssign(b, s, rate, &d.demands[i], starved) && !lower {
			s.withdraw()
			continue
		}
		free -= max(rate-int64(s.maxRate), 0)
		d.queueAssignment(b, s, Rate(rate))
	}
}

// shouldAssign reports whether to assign a rate now, although it may be below the allocation.
func (d *Divider) shouldAssign(b *bucket, s *share, rate int64, w *demand, starved bool) bool {
	reported := s.has(replyDue)
	s.flags &^= replyDue
	current := int64(s.current)
	switch {
	case d.isIdle(s): // no renewal, so that the last assignment is confirmed and the bucket can be abandoned
		return false
	case s.assignment == assigned:
		needs := s.has(denied) || !s.has(measured) || s.demandPerFill() > float64(current)
		return reported || s.outbox == queued || starved && current-rate > current/32 ||
			needs && rate > current && rate-current >= current/10
	case s.assignment == unknown && b.isLearning():
		return rate > 0
	case b.mayActOnLost(s):
		return rate > 0 && rate >= int64(w.claim)/8*7
	case w.allocation > 0 && 2*rate >= w.allocation:
		return true
	default:
		return s.assignment == unassigned && s.maxRate == 0 && s.deadline <= d.now && !b.isLearning()
	}
}

// scheduleNext schedules the next division that is due without an event.
func (d *Divider) scheduleNext(b *bucket) {
	if b.heapIndex > 0 && b.due <= d.now { // it has just been divided
		d.due.remove(b)
	}
	if next := d.nextChange(b); next < never {
		d.due.add(b, next)
	}
}

// nextChange returns when a bucket that has just been divided changes next without an event, or
// never. The result is later than now, because a share does not change while it waits for an action
// to be taken or confirmed.
func (d *Divider) nextChange(b *bucket) Time {
	next := never
	for _, l := range b.lost {
		next = min(next, l.expiry)
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.maxRate == 0 {
			next = min(next, s.reported+TTL+1)
		}
		switch {
		case s.has(expiryUnknown):
		case s.maxRate > 0:
			next = min(next, s.expiry)
		case s.deadline > d.now && (s.assignment == unassigned || s.abandonment == probed):
			next = min(next, s.deadline)
		}
	}
	return next
}
