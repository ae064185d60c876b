package quota

import (
	"cmp"
	"slices"
)

// bucket is what is known of one bucket: who reports it, and what may be in force.
type bucket struct {
	key    Bucket
	id     string
	limit  *Limit // nil: abandoned by all, and forgotten once nothing is in force
	shares []share
	lost   []lost
	due    Time // when it is in the schedule, 0 if not
	dirty  bool
}

// share is a holder's part of a bucket.
type share struct {
	stream *stream
	// until is when what is in force ends, if nothing is outstanding.
	until    Time
	reported Time // when the present interval of counting began
	seq      uint64
	// high is the greatest rate that may be in force: the confirmed one, or any that was taken since.
	// told is the last that was taken, next the one in the outbox.
	high, told, next Rate
	// demand is requests a second as estimated, last that of the last interval alone, counted those
	// since reported.
	demand, last, counted float32
	at                    uint32 // its place in stream.shares
	idle                  uint8  // reports without a request, one after another
	state                 state
}

// state are facts about a share.
type state uint16

const (
	assigned    state = 1 << iota // something has been taken, and has not been abandoned since
	outstanding                   // something taken is unconfirmed
	queued                        // next is in the outbox
	abandoning                    // next, or what was taken last, is Abandon
	answer                        // reported since it was last divided: to be told, be it the same again
	hungry                        // was denied something in the last interval
)

// lost is what an ended stream may still act on.
type lost struct {
	until Time
	rate  Rate
	peer  uint64
}

// find returns the place of a holder's share.
func (b *bucket) find(h Holder) (int, bool) {
	return slices.BinarySearchFunc(b.shares, h, func(s share, h Holder) int { return cmp.Compare(s.stream.holder, h) })
}

// reserved is the most that may be in force if what is queued is taken.
func (s *share) reserved() Rate {
	if s.state&queued != 0 && s.state&abandoning == 0 {
		return max(s.high, s.next)
	}
	return s.high
}

// report takes in a report.
func (s *share) report(now Time, r Report) {
	const most = 1 << 30
	s.counted += float32(min(r.Allowed, most) + min(r.Denied, most))
	s.state |= answer
	s.state &^= hungry
	if r.Denied > 0 {
		s.state |= hungry
	}
	if s.counted == 0 {
		s.idle = min(s.idle+1, 255)
	} else {
		s.idle = 0
	}
	if passed := now - s.reported; passed >= Time(250e6) {
		s.last = s.counted / float32(passed.Seconds())
		s.demand, s.counted, s.reported = s.last, 0, now
	}
}

// take returns what is queued as an action of a batch.
func (s *share) take(b *bucket, seq uint64, ttl Time) Action {
	a := Action{Bucket: b.key, ID: b.id, Kind: Assign, Rate: s.next, TTL: ttl}
	s.state = s.state&^queued | outstanding
	s.seq = seq
	s.told = s.next
	s.high = max(s.high, s.next)
	switch {
	case s.state&abandoning != 0:
		s.state &^= assigned
		return Action{Bucket: b.key, ID: b.id, Kind: Abandon}
	case s.next == unlimited:
		a.Kind, a.Rate = AssignAll, 0
	case s.next == 0:
		a.Kind = AssignNone
	default:
		a.MaxTokens = b.limit.tokens(s.next)
	}
	s.state |= assigned
	return a
}

// confirm says that what was taken up to seq has arrived; what it set in force ends by until. It
// reports whether less may be in force than before.
func (s *share) confirm(until Time, seq uint64) bool {
	if s.state&outstanding == 0 || s.seq > seq {
		return false
	}
	s.state &^= outstanding
	s.until = until
	fell := s.high > s.told
	s.high = s.told
	return fell || s.state&abandoning != 0
}

// newBucket makes a bucket. What a predecessor may have assigned counts as lost.
func (d *Divider) newBucket(r Report) *bucket {
	b := &bucket{key: r.Bucket, id: string(r.ID), limit: r.Limit}
	d.buckets[r.Bucket] = b
	return b
}

// insertShare adds a stream to a bucket, at the place that find returned.
func (d *Divider) insertShare(b *bucket, i int, s *stream) {
	b.shares = slices.Insert(b.shares, i, share{stream: s, reported: d.now, at: uint32(len(s.shares))}) //nolint:gosec // bounded
	s.shares = append(s.shares, b)
	d.shares++
}

// removeShare forgets the share at a place.
func (d *Divider) removeShare(b *bucket, i int) {
	sh := &b.shares[i]
	if s := sh.stream; len(s.shares) > 0 { // the stream has not ended
		last := len(s.shares) - 1
		if moved := s.shares[last]; int(sh.at) != last {
			s.shares[sh.at] = moved
			if j, found := moved.find(s.holder); found {
				moved.shares[j].at = sh.at
			}
		}
		s.shares[last] = nil
		s.shares = s.shares[:last]
	}
	b.shares = slices.Delete(b.shares, i, i+1)
	d.shares--
}

// lose makes the share at a place that of an ended stream.
func (d *Divider) lose(b *bucket, i int) {
	s := &b.shares[i]
	until := s.until
	if s.state&outstanding != 0 {
		until = d.now + d.o.TTL + d.o.Delta
	}
	if s.high > 0 && until > d.now {
		b.lost = append(b.lost, lost{until, s.high, s.stream.peer})
	}
	b.shares = slices.Delete(b.shares, i, i+1)
	d.shares--
}

// relimit sets another limit.
func (d *Divider) relimit(b *bucket, limit *Limit) {
	b.limit = limit
	for i := range b.shares {
		b.shares[i].state |= answer
	}
	d.mark(b)
}
