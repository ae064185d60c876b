package quota

import "time"

// Time is an instant: the time passed on a steady (monotonic) clock since any moment of the caller's
// choice. One that is earlier than the last is taken as the last. A clock that jumps ahead would end
// assignments that still act, so it must not be the wall clock.
type Time = time.Duration

// Holder is a stream, which is all that is known of an Envoy. A number is never used again.
type Holder uint64

// Bucket identifies a bucket: 128 bits of a keyed hash of domain and bucket id, the same for all
// holders.
type Bucket [2]uint64

// Report is what a holder says of one bucket.
type Report struct {
	Bucket Bucket
	// ID is what actions about the bucket carry. It is copied when the bucket is new.
	ID []byte
	// Limit is what the rules say of the bucket now. nil: no rule is about it.
	Limit *Limit
	// Allowed and Denied count requests since the holder's last report of the bucket.
	Allowed, Denied uint64
	// Elapsed is since then by the holder's clock, cut to whole seconds. 0 is the bucket's first report.
	Elapsed time.Duration
}

// Kind is what an action tells.
type Kind uint8

// The kinds.
const (
	Assign     Kind = iota + 1 // a token bucket
	AssignAll                  // the blanket rule ALLOW_ALL
	AssignNone                 // the blanket rule DENY_ALL
	Abandon                    // forget the bucket; the next request reports it anew
)

// Action is something to tell a holder.
type Action struct {
	Bucket Bucket
	ID     string // as first reported
	Kind   Kind
	// Rate and MaxTokens are of Assign: tokens_per_fill and max_tokens; fill_interval is [Fill].
	Rate      Rate
	MaxTokens uint32
	// TTL is of all assignments, in whole seconds.
	TTL time.Duration
}

// Outcome is what became of a report.
type Outcome uint8

// The outcomes.
const (
	// Kept: the bucket is known, and its holder will be told something.
	Kept Outcome = iota
	// NoLimit: no rule is about the bucket. What it was assigned is abandoned, and its requests obey the
	// filter's no_assignment_behavior. Once it has none, the holder is told to forget it.
	NoLimit
	// NoRoom: a bound on buckets is reached. The bucket's requests obey no_assignment_behavior too.
	NoRoom
)

// Divider divides limits. Make one with [New].
type Divider struct {
	o   Options
	now Time
	// learnt is when it knows who holds what, and aged when all that a predecessor assigned has ended.
	learnt, aged Time
	buckets      map[Bucket]*bucket
	streams      map[Holder]*stream
	ready        []*stream
	dirty        queue // buckets to be divided by the next calls of Tick
	due          schedule
	closing      []*stream // closed streams whose shares are to be removed by the next calls of Tick
	nextClosing  int       // the place in closing of the next one: they take turns
	shares       int
	closed       int // number of shares of closed streams
	bytes        int // memory of buckets and shares, as estimated
	peers        map[uint64]*peer
	clients      map[uint64]*client
	purged       Time
	// expected is the time by which Tick is to be called. Nothing can be taken until paused.
	expected, paused Time
	wants            []want // of the bucket that is divided
	// These are of its clients, and of their shares.
	groups, members []want
	parts           []*part
	counts          Counts
}

// New returns a divider that begins at the time now.
func New(now Time, o Options) *Divider {
	o = o.withDefaults()
	d := &Divider{o: o, now: now, expected: never - max(o.MaxLate, 0), buckets: map[Bucket]*bucket{}, streams: map[Holder]*stream{}, peers: map[uint64]*peer{}, clients: map[uint64]*client{}}
	if !o.Fresh {
		d.aged = now + o.TTL + o.Delta
		d.learnt = d.aged
		if !o.Strict {
			d.learnt = min(d.aged, now+learning)
		}
	}
	return d
}

// Opened says that a stream has begun. peer, if not 0, says who it is from, such as a hash of its
// address: a stream that begins after the last one of its peer has ended is of the same Envoy, or of one
// that took its place, and takes over what that one held. So does a stream that reports known buckets
// while the last one is silent until it ends, because ends are noticed late. A peer of which two streams
// report in turn is several Envoys, so its streams take over nothing.
//
// client, if not 0, identifies the client that opened the stream, such as a hash of its certificate or
// of its address. Limits and room are divided among clients first, and then among the streams of each.
// A stream whose client is 0 is a client of its own. Opened must precede the first report of the stream.
func (d *Divider) Opened(now Time, h Holder, peer, client uint64) {
	d.advance(now)
	s := d.stream(h)
	d.joinPeer(s, peer)
	d.joinClient(s, client)
}

// Report takes in what a holder says of one bucket. What it leads to is found by the next [Divider.Tick],
// so that all buckets of a message can be reported first.
func (d *Divider) Report(now Time, h Holder, r Report) Outcome {
	d.advance(now)
	s := d.stream(h)
	d.heard(s)
	b := d.buckets[r.Bucket]
	isNew := b == nil
	switch {
	case r.Limit == nil:
		if b != nil && b.limit != nil {
			d.relimit(b, nil)
		}
		if isNew || !b.has(h) {
			d.stray(s, r)
		}
		return NoLimit
	case isNew:
		if d.isFull(s, bucketBytes+len(r.ID)+lostBytes+shareBytes) {
			return d.noRoom(s, r)
		}
		b = d.newBucket(s.client, r)
	case !same(b.limit, r.Limit):
		d.relimit(b, r.Limit)
	default:
		b.limit = r.Limit // an equal one, of newer rules
	}
	i, found := b.find(h)
	if !found {
		if !isNew && d.isFull(s, shareBytes) {
			return d.noRoom(s, r)
		}
		d.insertShare(b, i, s, r)
	}
	b.shares[i].report(d.now, d.o.Patience, r)
	d.mark(b)
	return Kept
}

// Closed says that a stream has ended: nothing that was taken for it and not yet written will be
// written. Its assignments act until their time to live has passed. The stream's buckets are left to
// the next calls of [Divider.Tick], so Closed costs the same for any number of them.
func (d *Divider) Closed(now Time, h Holder) {
	d.advance(now)
	s := d.streams[h]
	if s == nil {
		return
	}
	delete(d.streams, h)
	d.leavePeer(s)
	s.closed, s.closedAt = true, d.now
	d.closed += len(s.shares)
	d.takeStrays(s, nil, len(s.strays))
	s.outbox, s.sent, s.batches = nil, nil, nil
	s.client.streams--
	d.charge(s.client, 0)
	d.closing = append(d.closing, s)
}

// Confirmed says that everything up to seq, a number of [Divider.Take], has arrived at the holder.
func (d *Divider) Confirmed(now Time, h Holder, seq uint64) {
	d.advance(now)
	s := d.streams[h]
	if s == nil {
		return
	}
	d.heard(s)
	n := s.confirmed(seq)
	for _, b := range s.sent[:n] {
		i, found := b.find(h)
		if !found {
			continue
		}
		if share := &b.shares[i]; share.confirm(d.now, uint32(seq), &d.o) {
			d.mark(b)
		} else if share.high > 0 && !share.is(outstanding) {
			d.due.add(b, share.until)
		}
	}
	s.sent = dropFirst(s.sent, n)
}

// Relimit says that the rules have changed: limit is what they now say of the bucket, nil if no rule is
// about it any more. Reports say it too, but only when they come.
func (d *Divider) Relimit(now Time, key Bucket, limit *Limit) {
	d.advance(now)
	switch b := d.buckets[key]; {
	case b == nil:
	case same(b.limit, limit):
		b.limit = limit
	default:
		d.relimit(b, limit)
	}
}

// Tick divides buckets that events have changed, and those that are due. It returns when it is to be
// called again, at the latest; calls in between do no harm. Once it has looked at [Options.TickShares]
// shares it returns now, at the end of a bucket, so that its caller can release a lock before the next
// call. Buckets are divided in the order in which they changed, and each is in the queue once at most. So
// a bucket waits for one division of each of the others at most, whichever client changes them how often.
func (d *Divider) Tick(now Time) Time {
	d.advance(now)
	for looked := 0; looked < d.o.TickShares; {
		before := looked
		if b := d.nextOfClosed(); b != nil {
			d.mark(b)
			looked++
		}
		if b := d.due.pop(d.now); b != nil {
			d.mark(b)
			looked++
		}
		if b := d.dirty.pop(); b != nil {
			looked += 1 + len(b.shares) + len(b.lost)
			d.divide(b)
		}
		if looked == before {
			d.expected = d.nextTick()
			return d.expected
		}
	}
	d.expected = d.now
	return d.now
}

// nextTick returns when Tick is to be called again if there is nothing left to do now.
func (d *Divider) nextTick() Time {
	next := d.due.next(d.now + time.Minute)
	if d.paused > d.now {
		next = min(next, d.paused)
	}
	if d.o.MaxLate > 0 && len(d.streams) > 0 {
		next = min(next, d.now+d.o.MaxLate)
	}
	return next
}

// nextOfClosed returns the next bucket of a closed stream, nil if there is none.
func (d *Divider) nextOfClosed() *bucket {
	for len(d.closing) > 0 {
		d.nextClosing++
		if d.nextClosing >= len(d.closing) {
			d.nextClosing = 0
		}
		s := d.closing[d.nextClosing]
		if last := len(s.shares) - 1; last >= 0 {
			b := s.shares[last]
			s.shares = s.shares[:last]
			return b
		}
		s.shares = nil
		last := len(d.closing) - 1
		d.closing[d.nextClosing] = d.closing[last]
		d.closing[last] = nil
		d.closing = d.closing[:last]
	}
	return nil
}

// Ready appends the holders that have become ready since it was last called: there is something to
// [Divider.Take] for them.
func (d *Divider) Ready(to []Holder) []Holder {
	if d.paused > d.now {
		return to
	}
	for i, s := range d.ready {
		s.ready = false
		to = append(to, s.holder)
		d.ready[i] = nil
	}
	d.ready = d.ready[:0]
	return to
}

// Take appends at most most actions that the holder is to be told, in any order, and forgets them. They
// count as in force from now on, so they must be written, in the order in which they were taken, or the
// stream must be closed. Only the newest action of a bucket is kept until it is taken. seq numbers what
// was taken, for [Divider.Confirmed]; it is 0 if there was nothing. more says that something is left.
func (d *Divider) Take(now Time, h Holder, to []Action, most int) (actions []Action, seq uint64, more bool) {
	d.advance(now)
	s := d.streams[h]
	if s == nil || len(s.outbox)+len(s.strays) == 0 || most <= 0 {
		return to, 0, false
	}
	if d.paused > d.now {
		d.wake(s)
		return to, 0, false
	}
	s.seq++
	begun := len(to)
	to = d.takeStrays(s, to, most)
	n := min(most-(len(to)-begun), len(s.outbox))
	for _, b := range s.outbox[:n] {
		if i, found := b.find(h); found && b.shares[i].unlist() {
			to = append(to, b.shares[i].take(b, uint32(s.seq), d.o.TTL))
			s.sent = append(s.sent, b)
		}
	}
	s.outbox = dropFirst(s.outbox, n)
	s.batches = append(s.batches, batch{s.seq, len(s.sent)})
	s.compactSent()
	return to, s.seq, len(s.outbox)+len(s.strays) > 0
}

// pauseLate is the time for which nothing can be taken after the caller stood still.
const pauseLate = 250 * time.Millisecond

func (d *Divider) advance(now Time) {
	d.now = max(d.now, now)
	if d.o.MaxLate > 0 && d.now-d.o.MaxLate > d.expected {
		d.expected, d.paused = never-d.o.MaxLate, d.now+pauseLate
	}
}

// mark has a bucket divided, at the next Tick or when there has been enough time since the last.
func (d *Divider) mark(b *bucket) {
	if b.removed {
		return
	}
	if n := len(b.shares); n > 8 {
		if at := b.divided + min(Time(n)*gapEach, mostGap); at > d.now {
			d.due.add(b, at)
			return
		}
	}
	d.dirty.push(b)
}

func (d *Divider) wake(s *stream) {
	if !s.ready {
		s.ready = true
		d.ready = append(d.ready, s)
	}
}
