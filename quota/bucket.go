package quota

import (
	"cmp"
	"slices"
	"time"
)

// bucket is what is known of one bucket: who reports it, and what may be in force.
type bucket struct {
	key     Bucket
	id      string
	owner   *client // the client that reported it first
	limit   *Limit  // nil: abandoned by all, and forgotten once nothing is in force
	shares  []share
	lost    []lost
	due     Time // when it is to be divided, if place is not 0
	place   int  // in the schedule, from 1 on
	divided Time // when it was divided last
	dirty   bool // in Divider.dirty
	removed bool // no longer in Divider.buckets
	// spare are the hits that a shadow limit has left, at the time spared; see [Divider.Beyond].
	spare  float64
	spared Time
}

// share is a holder's part of a bucket.
type share struct {
	stream *stream
	// until is when what is in force ends, if nothing is outstanding. If nothing is in force, it is when
	// patience ends: with a holder that was asked, or of one that waits for its first assignment.
	until    Time
	reported Time // when the present interval of counting began
	// seq is the batch with which told was taken first, renewed the one with which it was taken last.
	// They wrap around.
	seq, renewed uint32
	// high is the greatest rate that may be in force: the confirmed one, or any that was taken since.
	// told is the last that was taken, next the one in the outbox. Of a share that is asked, next is
	// what is kept for it until it answers; of one that was told nothing, what it admitted.
	high, told, next Rate
	// demand is requests a second as estimated, last that of the last interval alone, counted those
	// since reported.
	demand, last, counted float32
	at                    uint32 // its place in stream.shares
	state                 state
	idle                  uint8 // reports without a request, one after another
	refused               uint8 // the part of last that was denied, of 255
}

// state are facts about a share.
type state uint16

const (
	assigned    state = 1 << iota // something was taken, and has not been abandoned since
	settling                      // told is unconfirmed, so high may be more
	outstanding                   // an assignment or its renewal is unconfirmed, so nobody knows when it ends
	arrived                       // something that was taken has been confirmed
	listed                        // the bucket is in the stream's outbox
	queued                        // next is to be taken from there, or Abandon
	abandoning                    // Abandon is to be taken, or was the last that was taken
	asked                         // abandoned only to see whether it is reported anew
	answer                        // reported since it was last divided: to be told, be it the same again
	fresh                         // the holder has had no assignment: the bucket is new to it
	measured                      // demand says something
	hungry                        // was denied something in the last interval
	fell                          // wanted much less in the last interval than before
	ended                         // to be removed in this division
	returned                      // the holder knew the bucket before its stream began
)

func (s *share) is(all state) bool { return s.state&all == all }

// lost is what may still be in force without a stream to change it.
type lost struct {
	until Time
	rate  int64
	peer  *peer
	// client is the client that had it, nil if several had.
	client *client
	// succeeded is true if its stream was silent from the opening of its peer's next one until its end.
	succeeded bool
	// unknown says that a predecessor may have assigned it, nobody knows to whom.
	unknown bool
}

// clings reports whether a holder may act on what an earlier stream was told, which nobody knows. It is
// left with that until it can have as much.
func (b *bucket) clings(s *share) bool {
	return s.state&(assigned|fresh) == 0 && len(b.lost) > 0 && !b.learning()
}

// find returns the place of a holder's share.
func (b *bucket) find(h Holder) (int, bool) {
	if len(b.shares) == 1 && b.shares[0].stream.holder == h {
		return 0, true
	}
	return slices.BinarySearchFunc(b.shares, h, func(s share, h Holder) int { return cmp.Compare(s.stream.holder, h) })
}

// reserved is the most that may be in force once what is queued is taken.
func (s *share) reserved() Rate {
	switch {
	case s.is(asked), s.state&(queued|abandoning) == queued:
		return max(s.high, s.next)
	}
	return s.high
}

// inForce returns the most that may be in force once what is queued is taken.
func (b *bucket) inForce() int64 {
	sum := b.lostRate()
	for i := range b.shares {
		sum += int64(b.shares[i].reserved())
	}
	return sum
}

func (b *bucket) lostRate() int64 {
	sum := int64(0)
	for _, l := range b.lost {
		sum += l.rate
	}
	return sum
}

// take returns what is queued as an action of a batch.
func (s *share) take(b *bucket, seq uint32, ttl Time) Action {
	if s.state&(assigned|abandoning) != assigned || s.next != s.told {
		s.seq = seq
		s.state |= settling
	}
	s.renewed = seq
	s.state &^= queued | fresh
	if s.is(abandoning) {
		// It sets nothing in force, so what was confirmed still ends at until.
		s.told = 0
		s.state &^= assigned
		return Action{Bucket: b.key, ID: b.id, Kind: Abandon}
	}
	s.state |= outstanding | assigned
	s.told = s.next
	s.high = max(s.high, s.next)
	a := Action{Bucket: b.key, ID: b.id, Kind: AssignNone, TTL: ttl}
	if s.next == unlimited {
		a.Kind = AssignAll
	} else if s.next > 0 {
		a.Kind, a.Rate, a.MaxTokens = Assign, s.next, b.limit.tokens(s.next)
	}
	return a
}

// confirm says that what was taken up to seq had arrived by now. It reports whether less may be in
// force than before.
func (s *share) confirm(now Time, seq uint32, o *Options) bool {
	before := s.high
	if s.is(outstanding) && int32(seq-s.renewed) >= 0 {
		s.state &^= outstanding
		s.until = now + o.TTL + o.Delta
	}
	if s.is(settling) && int32(seq-s.seq) >= 0 {
		s.state = s.state&^settling | arrived
		s.high = s.told
		if s.state&(abandoning|queued) == abandoning {
			s.until = now + patienceAsked
			return true
		}
	}
	return s.high < before
}

// newBucket makes a bucket. Whatever a predecessor may have assigned counts as lost.
func (d *Divider) newBucket(c *client, r Report) *bucket {
	b := &bucket{key: r.Bucket, id: string(r.ID), owner: c, limit: r.Limit, divided: d.now - 2*mostGap}
	d.learn(b)
	d.buckets[r.Bucket] = b
	d.charge(c, bucketBytes+len(b.id))
	return b
}

// insertShare adds a stream to a bucket, at the place that find returned.
func (d *Divider) insertShare(b *bucket, i int, s *stream, r Report) {
	n := share{stream: s, reported: d.now - min(max(r.span(), 0), time.Hour), at: uint32(len(s.shares))}
	if r.Elapsed > 0 {
		if n.state |= returned; !d.o.Strict {
			n.credit(b, max(d.aged, d.others(b)), r)
		}
	}
	if len(b.shares) == cap(b.shares) { // grown by less than append would, as most of memory is here
		b.shares = append(make([]share, 0, len(b.shares)*5/4+1), b.shares...)
	}
	b.shares = slices.Insert(b.shares, i, n)
	s.shares = append(s.shares, b)
	d.shares++
	d.charge(s.client, shareBytes)
}

// removeEnded removes the shares that have ended, in one pass.
func (d *Divider) removeEnded(b *bucket) {
	kept := 0
	for i := range b.shares {
		if s := &b.shares[i]; s.is(ended) {
			d.charge(s.stream.client, -shareBytes)
			if d.shares--; s.stream.closed {
				d.closed--
			} else {
				s.leave()
			}
			continue
		}
		if kept < i {
			b.shares[kept] = b.shares[i]
		}
		kept++
	}
	clear(b.shares[kept:])
	if b.shares = b.shares[:kept]; cap(b.shares) > 2*kept+8 {
		b.shares = slices.Clone(b.shares)
	}
}

// leave removes a share from the list of its stream. Its entry in the outbox stays, and has no effect.
func (s *share) leave() {
	st, last := s.stream, len(s.stream.shares)-1
	if moved := st.shares[last]; int(s.at) != last {
		st.shares[s.at] = moved
		if j, found := moved.find(st.holder); found {
			moved.shares[j].at = s.at
		}
	}
	st.shares[last] = nil
	st.shares = st.shares[:last]
	st.compactOutbox()
	st.compactSent()
}

// relimit sets another limit, withdraws all assignments of the old one that no holder has taken, and has the bucket divided by
// the next Tick, however recently it was divided.
func (d *Divider) relimit(b *bucket, limit *Limit) {
	b.limit = limit
	d.learn(b)
	for i := range b.shares {
		s := &b.shares[i]
		if s.state |= answer; !s.is(abandoning) {
			s.state &^= queued
		}
	}
	d.dirty.push(b)
}

func (b *bucket) has(h Holder) bool {
	_, found := b.find(h)
	return found
}
