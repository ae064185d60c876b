package division

import (
	"cmp"
	"slices"
	"time"
)

// bucket is a bucket that streams have reported.
type bucket struct {
	key       Bucket
	id        string
	owner     *client // first client that reported it
	limit     *Limit  // nil: all streams abandon it, and it is removed once no rate is in effect
	shares    []share
	lost      []lost
	due       Time // time of the next division, if heapIndex is not 0
	heapIndex int  // index in Divider.due plus 1, 0 if not scheduled
	restUntil Time // when it may be divided again
	dirty     bool // whether it is in Divider.dirty
	removed   bool // whether it was removed from Divider.buckets
	// shadowTokens is the number of tokens of a shadow limit at the time shadowAt; see
	// [Divider.CountShadowHits].
	shadowTokens float64
	shadowAt     Time
}

// share is the entry of one stream in a bucket.
type share struct {
	stream *stream
	expiry Time // when maxRate expires, unless expiryUnknown is set
	// deadline is the end of the time in which a probed Envoy may report the bucket again, or in
	// which an unassigned bucket may wait for a rate.
	deadline Time
	reported Time // start of the interval that counted covers
	// rateSeq is the batch that first contained current, renewalSeq the last one that did. They
	// wrap around.
	rateSeq, renewalSeq uint32
	// maxRate is the greatest rate that may be in effect: the maximum of the confirmed rate and all
	// rates taken since. current is the rate taken last, and next the rate of a queued assignment.
	maxRate, current, next Rate
	reserved               Rate // for a probed Envoy, in case it reports the bucket again
	admitted               Rate // lower bound of the rate admitted in the last interval before an assignment
	// demand is the estimated number of requests per second, lastRate that of the last interval,
	// and counted the number of requests since reported.
	demand, lastRate, counted float32
	index                     uint32 // index in stream.shares
	flags                     flags
	assignment                assignment
	abandonment               abandonment
	outbox                    outboxEntry
	ended                     bool  // to be removed in this division
	idleReports               uint8 // consecutive reports without a request
	deniedPart                uint8 // denied part of lastRate, in 255ths
}

// assignment is what an Envoy applies to a bucket.
type assignment uint8

const (
	unknown    assignment = iota // nothing of this stream; maybe a rate of an earlier one
	unassigned                   // nothing: it waits for an assignment
	assigned                     // an assignment of this stream was taken, and no Abandon since
)

// abandonment is the reason why the last action of a share, taken or not, is Abandon.
type abandonment uint8

const (
	kept    abandonment = iota // the last action is not Abandon
	retired                    // Abandon, since the bucket has no requests or no limit
	probed                     // Abandon, to find out whether the Envoy reports the bucket again
)

// outboxEntry is the entry of a share in the outbox of its stream.
type outboxEntry uint8

const (
	absent    outboxEntry = iota
	withdrawn             // an entry without an action
	queued                // an assignment of next, or Abandon
)

// flags is a set of independent facts about a share.
type flags uint8

const (
	rateUnconfirmed flags = 1 << iota // current is unconfirmed, so maxRate may be greater
	expiryUnknown                     // an assignment or its renewal is unconfirmed, so its expiry is unknown
	everConfirmed                     // an action was confirmed
	replyDue                          // reported since the last division: an assignment is due, even an unchanged one
	measured                          // demand has been measured
	denied                            // requests were denied in the last interval
	demandFell                        // demand was much lower in the last interval than before
	reconnected                       // the Envoy knew the bucket before this stream was opened
)

// has reports whether all given flags are set.
func (s *share) has(f flags) bool { return s.flags&f == f }

// lost is a rate that may still be in effect although its stream is closed.
type lost struct {
	expiry Time
	rate   int64
	peer   *peer
	// client is the client of the stream, nil if rates of several were merged.
	client *client
	// succeeded is true if the stream was silent from the opening of its peer's next stream until
	// its own end.
	succeeded bool
	// unknown is true if a predecessor may have assigned the rate to an unknown stream.
	unknown bool
}

// mayActOnLost reports whether the Envoy of s may still apply a lost rate, which was assigned over
// an earlier stream. Such a share gets no assignment until it can get about the same rate.
func (b *bucket) mayActOnLost(s *share) bool {
	return s.assignment == unknown && len(b.lost) > 0 && !b.isLearning()
}

// findShare returns the index of a stream's share, or the index at which to insert it.
func (b *bucket) findShare(id StreamID) (int, bool) {
	if len(b.shares) == 1 && b.shares[0].stream.id == id {
		return 0, true
	}
	return slices.BinarySearchFunc(b.shares, id, func(s share, id StreamID) int { return cmp.Compare(s.stream.id, id) })
}

// reservedRate returns the greatest rate that is or will be in effect if all queued actions are
// taken.
func (s *share) reservedRate() Rate {
	switch {
	case s.abandonment == probed:
		return max(s.maxRate, s.reserved)
	case s.abandonment == kept && s.outbox == queued:
		return max(s.maxRate, s.next)
	}
	return s.maxRate
}

// assignedRate returns the sum of all reserved and lost rates.
func (b *bucket) assignedRate() int64 {
	sum := b.lostRate()
	for i := range b.shares {
		sum += int64(b.shares[i].reservedRate())
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

// takeAction returns the queued action and records that batch seq contains it.
func (s *share) takeAction(b *bucket, seq uint32) Action {
	isRenewal := s.assignment == assigned && s.abandonment == kept && s.next == s.current
	if !isRenewal {
		s.rateSeq = seq
		s.flags |= rateUnconfirmed
	}
	s.renewalSeq = seq
	if s.abandonment != kept {
		// Abandon puts no rate into effect, so a confirmed rate still expires at expiry.
		s.current = 0
		s.assignment = unknown
		return Action{Bucket: b.key, ID: b.id, Kind: Abandon}
	}
	s.flags |= expiryUnknown
	s.assignment = assigned
	s.current = s.next
	s.maxRate = max(s.maxRate, s.next)
	a := Action{Bucket: b.key, ID: b.id, Kind: AssignDenyAll, TTL: TTL}
	if s.next == unlimited {
		a.Kind = AssignAllowAll
	} else if s.next > 0 {
		a.Kind = Assign
		a.Rate = s.next
		a.MaxTokens = b.limit.maxTokens(s.next)
	}
	return a
}

// confirm records that the Envoy has received all actions up to batch seq. It reports whether
// maxRate fell.
func (s *share) confirm(now Time, seq uint32) bool {
	before := s.maxRate
	if s.has(expiryUnknown) && int32(seq-s.renewalSeq) >= 0 {
		s.flags &^= expiryUnknown
		s.expiry = now + maxLife
	}
	if s.has(rateUnconfirmed) && int32(seq-s.rateSeq) >= 0 {
		s.flags = s.flags&^rateUnconfirmed | everConfirmed
		s.maxRate = s.current
		if s.abandonment != kept && s.outbox != queued {
			s.deadline = now + probeTimeout
			return true
		}
	}
	return s.maxRate < before
}

// newBucket adds a bucket. The rates that a predecessor may have assigned count as lost.
func (d *Divider) newBucket(c *client, r Report) *bucket {
	b := &bucket{key: r.Bucket, id: string(r.ID), owner: c, limit: r.Limit, restUntil: d.now - maxDivideGap}
	d.addUnknown(b)
	d.buckets[r.Bucket] = b
	d.addBytes(c, bucketBytes+len(b.id))
	return b
}

// insertShare adds a share at the index that findShare returned.
func (d *Divider) insertShare(b *bucket, i int, s *stream, r Report) {
	n := share{stream: s, reported: d.now - min(max(r.envoyInterval(), 0), time.Hour), index: uint32(len(s.shares))}
	if r.Elapsed > 0 {
		n.flags |= reconnected
		n.adoptReportedRate(b, max(d.predecessorExpiry, d.handoverExpiry(b)), r)
	}
	if len(b.shares) == cap(b.shares) { // shares use most of the memory, so grow by a quarter; append would double
		b.shares = append(make([]share, 0, len(b.shares)*5/4+1), b.shares...)
	}
	b.shares = slices.Insert(b.shares, i, n)
	s.shares = append(s.shares, b)
	d.shares++
	d.addBytes(s.client, shareBytes)
}

// removeEnded removes the shares marked ended, in one pass.
func (d *Divider) removeEnded(b *bucket) {
	kept := 0
	for i := range b.shares {
		if s := &b.shares[i]; s.ended {
			d.addBytes(s.stream.client, -shareBytes)
			if d.shares--; s.stream.closed {
				d.closedShares--
			} else {
				s.detach()
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

// detach removes a share from the list of its stream. Its entry in the outbox stays and has no
// effect.
func (s *share) detach() {
	st := s.stream
	last := len(s.stream.shares) - 1
	if moved := st.shares[last]; int(s.index) != last {
		st.shares[s.index] = moved
		if j, found := moved.findShare(st.id); found {
			moved.shares[j].index = s.index
		}
	}
	st.shares[last] = nil
	st.shares = st.shares[:last]
	st.compactOutbox()
	st.compactSent()
}

// setLimit sets a limit, withdraws the queued assignments of the old one, and schedules the bucket
// for the next Tick, even if it was divided recently.
func (d *Divider) setLimit(b *bucket, limit *Limit) {
	b.limit = limit
	d.addUnknown(b)
	for i := range b.shares {
		s := &b.shares[i]
		s.flags |= replyDue
		if s.abandonment == kept {
			s.withdraw()
		}
	}
	d.dirty.push(b)
}

func (b *bucket) hasShare(id StreamID) bool {
	_, found := b.findShare(id)
	return found
}
