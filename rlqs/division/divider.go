package division

import "time"

// Time is the time elapsed on a monotonic clock since an arbitrary start. A time before the last
// one counts as the last one. It must not be the wall clock: a forward jump would expire
// assignments that are still in effect.
type Time = time.Duration

// StreamID identifies a stream of an Envoy. IDs are never reused.
type StreamID uint64

// Bucket identifies a bucket: 128 bits of a keyed hash of domain and bucket ID, the same for all
// streams.
type Bucket [2]uint64

// Report is a stream's usage report of one bucket.
type Report struct {
	Bucket Bucket
	// ID is the bucket ID that actions contain. It is copied when the bucket is new.
	ID []byte
	// Limit is the bucket's limit in the active rules, nil if no rule matches.
	Limit *Limit
	// Allowed and Denied count requests since the Envoy's last report of the bucket.
	Allowed, Denied uint64
	// Elapsed is the time since the Envoy's last report of the bucket, by Envoy's clock, truncated
	// to seconds. It is 0 in the first report of a bucket.
	Elapsed time.Duration
}

// Kind is the kind of an action.
type Kind uint8

// The kinds of actions.
const (
	Assign         Kind = iota + 1 // a token bucket
	AssignAllowAll                 // the blanket rule ALLOW_ALL
	AssignDenyAll                  // the blanket rule DENY_ALL
	Abandon                        // forget the bucket; the next request makes Envoy report it again
)

// Action is a message about one bucket to a stream.
type Action struct {
	Bucket Bucket
	ID     string // as first reported
	Kind   Kind
	// Rate and MaxTokens are set for Assign: tokens_per_fill and max_tokens. The fill_interval is
	// [Fill].
	Rate      Rate
	MaxTokens uint32
	// TTL is the time to live of an assignment, in whole seconds.
	TTL time.Duration
}

// Outcome is the result of a report.
type Outcome uint8

const (
	// Accepted means that the bucket is divided, and an assignment will follow.
	Accepted Outcome = iota
	// NoLimit means that no rule matches the bucket. Existing assignments are abandoned, and its
	// requests follow the filter's no_assignment_behavior. If it has no requests, it is abandoned.
	NoLimit
	// TooManyBuckets means that a bound on buckets is reached. The bucket's requests follow
	// no_assignment_behavior.
	TooManyBuckets
)

// Divider divides limits among streams. Create one with [New].
type Divider struct {
	bounds

	now Time
	// learnUntil is when the learning period ends, predecessorExpiry when all assignments of a
	// predecessor have expired.
	learnUntil, predecessorExpiry Time
	buckets                       map[Bucket]*bucket
	streams                       map[StreamID]*stream
	readyStreams                  []*stream
	dirty                         queue // buckets to be divided by the next calls of Tick
	due                           schedule
	closing                       []*stream // closed streams whose shares are to be removed by the next calls of Tick
	nextClosing                   int       // index in closing; the streams are visited round robin
	shares                        int
	closedShares                  int // shares of closed streams
	bytes                         int // estimated memory of buckets and shares
	peers                         map[uint64]*peer
	clients                       map[uint64]*client
	peersPurgedAt                 Time
	// nextTickBy is when the next call of Tick is due. Until pausedUntil no action can be taken.
	nextTickBy, pausedUntil Time
	counts                  Counts
	// Memory of divide, reused for each bucket: the demands of the bucket's shares, the demands of
	// their clients, the demands of the shares grouped by client, and the clients' totals.
	demands, clientDemands, memberDemands []demand
	clientTotals                          []*totals
}

// New returns a divider. Its first call of any method may be at the time now.
//
// maxBytes bounds the estimated memory of all buckets. A bucket counts as 320 bytes plus its ID, plus
// 135 bytes for each stream that has reported it. A client may use at most as much memory as is left
// free, so a single client gets at most half of it, and k clients leave at least one part in k+1 to
// others. If a client uses more than half of its bound, its idle buckets are abandoned after one
// report without a request.
//
// Assignments of a predecessor of this divider may still be in effect, so it starts with a learning
// period of 6 s, in which Envoys reconnect. During this period the complete limit counts as in
// effect. An Envoy that reports a bucket for the first time gets no assignment; one that has reported
// it before keeps the rate at which it admitted requests, up to half of the limit. The limit may be
// exceeded in two cases: the predecessor changed rates in its last seconds, or an Envoy continues to
// serve but cannot reconnect. At most twice the limit is then in effect, for a TTL.
func New(now Time, maxBytes int) *Divider {
	return &Divider{
		bounds: bounds{maxBytes, idleReports, maxStreamBuckets, tickShares, maxLate},
		now:    now, nextTickBy: never - maxLate,
		learnUntil: now + learnPeriod, predecessorExpiry: now + maxLife,
		buckets: map[Bucket]*bucket{}, streams: map[StreamID]*stream{}, peers: map[uint64]*peer{}, clients: map[uint64]*client{},
	}
}

// OpenStream adds a stream. It must precede the first report of the stream.
//
// peer, if not 0, identifies the stream's origin, such as a hash of the address. If the previous
// stream of the peer is closed, the new one belongs to the same Envoy or to its replacement, and
// inherits the rates of the previous one. The end of a connection may be noticed late, so the new
// stream also inherits if it reports buckets that the Envoy knew before, and the previous stream
// reports nothing more until it is closed. A peer with two streams that report alternately is
// several Envoys, and its streams inherit nothing.
//
// client, if not 0, identifies the client, such as a hash of its certificate or address. Limits and
// memory are divided among clients first, and then among the streams of each. A stream whose client
// is 0 is a client of its own.
func (d *Divider) OpenStream(now Time, id StreamID, peer, client uint64) {
	d.advance(now)
	s := d.findStream(id)
	d.joinPeer(s, peer)
	d.joinClient(s, client)
}

// Report processes the usage report of one bucket. Its effects appear after the next
// [Divider.Tick], so that a caller can report all buckets of a message first.
func (d *Divider) Report(now Time, id StreamID, r Report) Outcome {
	d.advance(now)
	s := d.findStream(id)
	d.checkPeer(s)
	b := d.buckets[r.Bucket]
	isNew := b == nil
	switch {
	case r.Limit == nil:
		if b != nil && b.limit != nil {
			d.setLimit(b, nil)
		}
		if isNew || !b.hasShare(id) {
			d.abandonUntracked(s, r)
		}
		return NoLimit
	case isNew:
		if d.isFull(s, bucketBytes+len(r.ID)+lostBytes+shareBytes) {
			return d.rejectBucket(s, r)
		}
		b = d.newBucket(s.client, r)
	case !equalLimits(b.limit, r.Limit):
		d.setLimit(b, r.Limit)
	default:
		b.limit = r.Limit // equal, but of newer rules
	}
	i, found := b.findShare(id)
	if !found {
		if !isNew && d.isFull(s, shareBytes) {
			return d.rejectBucket(s, r)
		}
		d.insertShare(b, i, s, r)
	}
	share := &b.shares[i]
	wasProbed := share.abandonment == probed && b.limit.Strategy == Divide && b.assignedRate() <= b.limit.perFill()
	share.addReport(d.now, r)
	if wasProbed && share.abandonment == kept { // the Envoy need not wait for the next division
		d.queueAssignment(b, share, share.reserved)
	}
	d.markDirty(b)
	return Accepted
}

// CloseStream removes a stream. Actions that were taken and not written must not be written
// afterwards. The stream's assignments stay in effect until their time to live has passed. Its
// buckets are processed by the next calls of [Divider.Tick], so the cost of CloseStream does not
// depend on their number.
func (d *Divider) CloseStream(now Time, id StreamID) {
	d.advance(now)
	s := d.streams[id]
	if s == nil {
		return
	}
	delete(d.streams, id)
	d.leavePeer(s)
	s.closed = true
	s.closedAt = d.now
	d.closedShares += len(s.shares)
	d.takeUntracked(s, nil, len(s.untracked))
	s.outbox = nil
	s.sent = nil
	s.batches = nil
	s.client.streams--
	d.addBytes(s.client, 0)
	d.closing = append(d.closing, s)
}

// Confirm records that the Envoy has received everything up to batch seq of [Divider.TakeActions].
func (d *Divider) Confirm(now Time, id StreamID, seq uint64) {
	d.advance(now)
	s := d.streams[id]
	if s == nil {
		return
	}
	d.checkPeer(s)
	n := s.popConfirmed(seq)
	for _, b := range s.sent[:n] {
		i, found := b.findShare(id)
		if !found {
			continue
		}
		if share := &b.shares[i]; share.confirm(d.now, uint32(seq)) {
			d.markDirty(b)
		} else if share.maxRate > 0 && !share.has(expiryUnknown) {
			d.due.add(b, share.expiry)
		}
	}
	s.sent = dropFirst(s.sent, n)
}

// SetLimit sets the limit of a bucket after the rules have changed, nil if no rule matches any
// more. A report sets the limit too, but it may arrive seconds later.
func (d *Divider) SetLimit(now Time, key Bucket, limit *Limit) {
	d.advance(now)
	switch b := d.buckets[key]; {
	case b == nil:
	case equalLimits(b.limit, limit):
		b.limit = limit
	default:
		d.setLimit(b, limit)
	}
}

// Tick divides the buckets that events have changed and those that are due. It returns when the
// next call is due; earlier calls are harmless. After visiting tickShares shares it
// returns now, at the end of a bucket, so that its caller can release a lock before the next call.
// Buckets are divided in the order in which they changed, and each is queued at most once. A bucket
// therefore waits for at most one division of each other bucket, however often clients change
// those.
func (d *Divider) Tick(now Time) Time {
	d.advance(now)
	for visited := 0; visited < d.tickShares; {
		before := visited
		if b := d.nextClosedBucket(); b != nil {
			d.markDirty(b)
			visited++
		}
		if b := d.due.pop(d.now); b != nil {
			d.markDirty(b)
			visited++
		}
		if b := d.dirty.pop(); b != nil {
			visited += 1 + len(b.shares) + len(b.lost)
			d.divide(b)
		}
		if visited == before {
			d.nextTickBy = d.nextTick()
			return d.nextTickBy
		}
	}
	d.nextTickBy = d.now
	return d.now
}

// nextTick returns when the next call of Tick is due if no work is left now.
func (d *Divider) nextTick() Time {
	next := d.due.next(d.now + time.Minute)
	if d.pausedUntil > d.now {
		next = min(next, d.pausedUntil)
	}
	if len(d.streams) > 0 {
		next = min(next, d.now+d.maxLate)
	}
	return next
}

// nextClosedBucket returns the next bucket of a closed stream, nil if there is none.
func (d *Divider) nextClosedBucket() *bucket {
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

// AppendReady appends the streams that have become ready since the last call: [Divider.TakeActions]
// has actions for them.
func (d *Divider) AppendReady(dst []StreamID) []StreamID {
	if d.pausedUntil > d.now {
		return dst
	}
	for i, s := range d.readyStreams {
		s.ready = false
		dst = append(dst, s.id)
		d.readyStreams[i] = nil
	}
	d.readyStreams = d.readyStreams[:0]
	return dst
}

// TakeActions removes up to maxActions queued actions of a stream and appends them to dst, in any
// order. They count as in effect from now on, so they must be written, in the order in which they
// were taken, or the stream must be closed. Only the newest action of a bucket is queued. seq
// identifies the batch for [Divider.Confirm]; it is 0 if there was no action. more reports whether
// actions are left.
func (d *Divider) TakeActions(
	now Time, id StreamID, dst []Action, maxActions int,
) (actions []Action, seq uint64, more bool) {
	d.advance(now)
	s := d.streams[id]
	if s == nil || len(s.outbox)+len(s.untracked) == 0 || maxActions <= 0 {
		return dst, 0, false
	}
	if d.pausedUntil > d.now {
		d.markReady(s)
		return dst, 0, false
	}
	s.seq++
	before := len(dst)
	dst = d.takeUntracked(s, dst, maxActions)
	n := min(maxActions-(len(dst)-before), len(s.outbox))
	for _, b := range s.outbox[:n] {
		if i, found := b.findShare(id); found && b.shares[i].removeFromOutbox() {
			dst = append(dst, b.shares[i].takeAction(b, uint32(s.seq)))
			s.sent = append(s.sent, b)
		}
	}
	s.outbox = dropFirst(s.outbox, n)
	s.batches = append(s.batches, batch{s.seq, len(s.sent)})
	s.compactSent()
	return dst, s.seq, len(s.outbox)+len(s.untracked) > 0
}

// stallPause is how long no action can be taken after the caller stalled.
const stallPause = 250 * time.Millisecond

func (d *Divider) advance(now Time) {
	d.now = max(d.now, now)
	if d.now-d.maxLate > d.nextTickBy {
		d.nextTickBy = never - d.maxLate
		d.pausedUntil = d.now + stallPause
	}
}

// markDirty schedules a bucket for the next Tick, or for later if it was divided too often.
func (d *Divider) markDirty(b *bucket) {
	switch {
	case b.removed:
	case b.restUntil > d.now:
		d.due.add(b, b.restUntil)
	default:
		d.dirty.push(b)
	}
}

func (d *Divider) markReady(s *stream) {
	if !s.ready {
		s.ready = true
		d.readyStreams = append(d.readyStreams, s)
	}
}
