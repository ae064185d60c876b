package quota

import (
	"math"
	"time"
)

// never is later than all times.
const never Time = math.MaxInt64

const (
	// patienceAsked is how long a holder that abandoned a bucket has to report it anew.
	patienceAsked = 250 * time.Millisecond
	// Buckets of many holders are divided once in a while: a division looks at all of them.
	gapEach = 4 * time.Millisecond
	mostGap = time.Second
)

// divide works out what each holder of a bucket is to be told.
func (d *Divider) divide(b *bucket) {
	b.divided = d.now
	d.counts.Divisions++
	n := d.expire(b)
	for i := range b.shares {
		if s := &b.shares[i]; !s.is(ended) && d.over(b, s) {
			s.state |= ended
			n++
		}
	}
	if n > 0 {
		d.removeEnded(b)
	}
	if len(b.shares) == 0 && len(b.lost) == 0 {
		b.removed = true
		d.due.drop(b)
		delete(d.buckets, b.key)
		d.charge(b.owner, -bucketBytes-len(b.id))
		return
	}
	switch {
	case b.limit == nil:
	case b.limit.Verdict == Divide:
		d.apportion(b)
	default:
		rate := Rate(0)
		if b.limit.Verdict == AllowAll {
			rate = unlimited
		}
		for i := range b.shares {
			if s := &b.shares[i]; s.is(answer) && !s.is(abandoning) {
				d.queue(b, s, rate)
			}
		}
	}
	d.plan(b)
}

// over reports whether a share is to be forgotten, and has its bucket abandoned if that is due. A holder that has nothing and
// reports nothing for a TTL is forgotten even if it has not taken or confirmed its last action: the holder may never do so, and
// an Envoy that still knows the bucket reports it again.
func (d *Divider) over(b *bucket, s *share) bool {
	switch {
	case s.high == 0 && d.now-s.reported > d.o.TTL:
		return true
	case s.is(abandoning):
		return s.high == 0 && s.state&(listed|outstanding) == 0 && (!s.is(asked) || s.until <= d.now)
	case b.limit == nil, d.idle(s) && s.state&(queued|outstanding) == 0:
		d.counts.Abandoned++
		d.abandon(b, s)
	}
	return false
}

// idle reports whether a share has had no requests for so long that its bucket is to be abandoned.
func (d *Divider) idle(s *share) bool {
	if s.idle == 0 {
		return false
	}
	if len(s.stream.shares) > d.o.MaxStreamBuckets/2 || 2*s.stream.client.bytes > d.o.MaxBytes-d.bytes { // half of a bound
		return true
	}
	return int(s.idle) >= d.o.IdleReports
}

// apportion finds what all are to get, lowers those who have more, and raises the others into what is
// free.
func (d *Divider) apportion(b *bucket) {
	starved := d.targets(b)
	free, need := b.limit.rate()-b.lostRate(), int64(0)
	for i := range b.shares {
		s := &b.shares[i]
		if s.is(asked) {
			free -= int64(s.reserved())
			continue
		}
		free -= int64(s.high)
		if !s.is(abandoning) {
			need += max(d.wants[i].target-int64(s.high), 0)
		}
	}
	free = max(free, 0)
	scale := 1.0
	if need > free {
		scale = float64(free) / float64(need)
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.is(abandoning) {
			continue
		}
		target := d.wants[i].target
		rate := target
		if more := target - int64(s.high); more > 0 {
			rate = int64(s.high) + min(int64(float64(more)*scale), free)
		}
		if b.clings(s) {
			rate = min(max(target, int64(d.wants[i].claim)), int64(s.high)+free)
		}
		if told := int64(s.told); s.is(settling) && rate > told/4*3 {
			rate = told // another rate would have to be confirmed anew, and none ever were
		}
		if !d.tells(b, s, rate, &d.wants[i], starved) {
			s.state &^= queued
			continue
		}
		free -= max(rate-int64(s.high), 0)
		d.queue(b, s, Rate(rate))
	}
}

// tells reports whether a holder is to be told a rate now, which is not yet the target.
func (d *Divider) tells(b *bucket, s *share, rate int64, w *want, starved bool) bool {
	reported := s.is(answer)
	s.state &^= answer
	told := int64(s.told)
	switch {
	case d.idle(s): // it is renewed no more, so that it is confirmed and can be abandoned
		return false
	case s.is(assigned):
		needs := s.state&(hungry|measured) != measured || s.wanted() > float64(told)
		return reported || s.is(queued) || starved && told-rate > told/32 || needs && rate-told > told/32
	case !s.is(fresh) && b.learning():
		return rate > 0
	case b.clings(s):
		return rate > 0 && rate >= int64(w.claim)/8*7
	case w.target > 0 && 2*rate >= w.target:
		return true
	default:
		return s.is(fresh) && s.high == 0 && s.until <= d.now && !b.learning()
	}
}

// plan schedules the next division that no event leads to.
func (d *Divider) plan(b *bucket) {
	if b.place > 0 && b.due <= d.now { // what was due has just been done
		d.due.drop(b)
	}
	if next := d.nextChange(b); next < never {
		d.due.add(b, next)
	}
}

// nextChange returns when a bucket that has just been divided changes without an event, never if it does not. That is after
// now: a share that waits for its holder to take or to confirm something does not change before that.
func (d *Divider) nextChange(b *bucket) Time {
	next := never
	for _, l := range b.lost {
		next = min(next, l.until)
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.high == 0 {
			next = min(next, s.reported+d.o.TTL+1)
		}
		if (s.high > 0 || s.state&(fresh|asked) != 0) && s.until > d.now && !s.is(outstanding) {
			next = min(next, s.until)
		}
	}
	return next
}
