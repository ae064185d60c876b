package rlqs

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// Stream implements [quota.Stream].
type Stream struct {
	service  *Service
	peer     quota.Peer
	clientID uint64
	wake     func()
	id       division.StreamID
	slot     slot
	wait     wait

	reported bool // whether the first report is complete
	periodic bool // whether the current report contains a bucket that was reported before
	// seq is the number of the newest message. confirmable is the value of seq at the last periodic
	// report; see ConfirmByReports.
	seq, confirmable uint64

	decoder        decoder
	partialCounted int    // bytes of the decoder included in Service.partialBytes
	domain         []byte // nil until the first report
	err            atomic.Pointer[error]
}

var clientSeed = maphash.MakeSeed()

// Open adds a stream. wake is called, by any goroutine, when there may be a message to send or the
// stream has failed. It must not block.
func (s *Service) Open(p quota.Peer, wake func()) (quota.Stream, error) {
	st := &Stream{service: s, peer: p, clientID: maphash.String(clientSeed, p.Identity), wake: wake}
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	m := s.options.Metrics
	m.Calls.Method(quota.MethodName).Requests.Inc()
	if s.options.Allow != nil && !p.Client.CanAccessAny() {
		m.Quota.RejectedStreams.Inc()
		return nil, status.Error(codes.PermissionDenied, access.DeniedEverything(p.Client).Error())
	}
	evicted, ok := s.slots.acquire(st, st.clientID)
	if !ok {
		m.Quota.RejectedStreams.Inc()
		return nil, errNoSlot
	}
	if evicted != nil {
		m.Quota.RejectedStreams.Inc()
		s.failLocked(evicted, errEvicted)
	}
	s.lastID++
	st.id = s.lastID
	st.decoder.scratch = &s.scratch.decoder
	s.streams[st.id] = st
	now := s.options.Elapsed()
	s.startWaitLocked(st, &s.waits.unreported, now)
	if s.waits.unreported.Len() == 1 && !s.closed {
		s.divideTimer.Reset(0)
	}
	s.updateGaugesLocked()
	return st, nil
}

// Errors of streams that have ended or that get no slot.
var (
	errClosed  = status.Error(codes.Canceled, "the stream has ended")
	errNoSlot  = status.Errorf(codes.ResourceExhausted, "%s: too many streams: at most %d may be open, and a client may have no more than are free", quota.MethodName, MaxStreams)
	errEvicted = status.Errorf(codes.ResourceExhausted, "%s: too many streams: another client needs a slot, and this client has the most", quota.MethodName)
)

// Close removes the stream. It may be called more than once.
func (st *Stream) Close() {
	s := st.service
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.streams[st.id] != st {
		return
	}
	delete(s.streams, st.id)
	st.err.CompareAndSwap(nil, &errClosed) // reports that are still in transit are ignored
	s.releaseLocked(st)
	s.divider.CloseStream(s.options.Elapsed(), st.id)
	s.divideLocked()
	s.updateGaugesLocked()
}

// releaseLocked releases the stream's resources except its shares.
func (s *Service) releaseLocked(st *Stream) {
	s.slots.release(st)
	s.waits.stop(st)
	s.dropPartialLocked(st)
}

// dropPartialLocked releases the buffered part of a report.
func (s *Service) dropPartialLocked(st *Stream) {
	st.decoder.partial = nil
	s.countPartialLocked(st)
}

// countPartialLocked updates partialBytes with the size of the stream's buffer. It reports whether
// the buffer has grown.
func (s *Service) countPartialLocked(st *Stream) (grown bool) {
	delta := cap(st.decoder.partial) - st.partialCounted
	s.partialBytes += delta
	st.partialCounted += delta
	return delta > 0
}

// failLocked makes the stream fail with err unless it has failed already.
func (s *Service) failLocked(st *Stream, err error) {
	if st.err.CompareAndSwap(nil, &err) {
		s.releaseLocked(st)
		s.pendingWakes = append(s.pendingWakes, st.wake)
	}
}

// Feed processes the next bytes of a report; last is true at its end. After an error the stream has
// failed.
func (st *Stream) Feed(p []byte, last bool) error {
	s := st.service
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if err := st.Err(); err != nil {
		return err
	}
	err := st.decoder.feed(p, last, (*reader)(st))
	if failure := st.Err(); failure != nil { // the visitor activated new rules, which failed the stream
		s.dropPartialLocked(st)
		return failure
	}
	if s.countPartialLocked(st) {
		s.updateGaugesLocked()
	}
	if err != nil {
		if _, ok := status.FromError(err); !ok {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		s.options.Metrics.Quota.RejectedStreams.Inc()
		s.failLocked(st, err)
		return err
	}
	if last {
		s.options.Metrics.Quota.Reports.Inc()
		s.finishReportLocked(st)
		s.divideLocked()
	}
	return nil
}

func (s *Service) finishReportLocked(st *Stream) {
	s.dropPartialLocked(st)
	if st.reported || st.domain == nil {
		return
	}
	st.reported = true
	s.slots.markReported(st)
	s.waits.stop(st)
	if st.seq > 0 { // actions for its first buckets were sent before the report was complete
		s.startWaitLocked(st, &s.waits.unconfirmed, s.options.Elapsed())
	}
}

// Err returns the error with which the stream has failed, or nil. The transport must check it
// whenever wake is called.
func (st *Stream) Err() error {
	if err := st.err.Load(); err != nil {
		return *err
	}
	return nil
}

// maxHits bounds the counts of a report. An Envoy has fewer requests in five seconds. The bound
// prevents sums from overflowing, and keeps metrics useful after a wrong report.
const maxHits = 1 << 32

// reader is the visitor of a stream's reports. Its methods require Service.mu.
type reader Stream

func (r *reader) visitDomain(name []byte) error {
	if r.domain != nil {
		if !bytes.Equal(r.domain, name) {
			return status.Errorf(codes.InvalidArgument,
				"report for domain %q on a stream for domain %q: open a stream for each domain", name, r.domain)
		}
		return nil
	}
	s := r.service
	switch {
	case len(name) == 0:
		return status.Error(codes.InvalidArgument, "the domain of a report is empty")
	case s.options.Allow != nil && !r.peer.Client.CanAccess(name):
		return status.Error(codes.PermissionDenied, access.Denied(r.peer.Client, name).Error())
	}
	set := s.activeRulesLocked()
	if !s.leadsLocked(name) {
		return s.notLeaderErrorLocked(name)
	}
	r.domain = bytes.Clone(name)
	peer := uint64(0)
	if r.peer.Address != "" && set != nil && set.Knows(name) { // a client that names arbitrary domains leaves no state
		var h maphash.Hash
		h.SetSeed(clientSeed)
		_, _ = h.WriteString(r.peer.Address) // never fails
		_, _ = h.Write(append([]byte{0}, name...))
		peer = h.Sum64()
	}
	s.divider.OpenStream(s.options.Elapsed(), r.id, peer, r.clientID)
	return nil
}

func (r *reader) visitBucket(u *usage) {
	s := r.service
	m := &s.options.Metrics.Quota
	m.Usages.Inc()
	switch {
	case r.domain == nil: // the bucket precedes the domain; no Envoy sends that
		return
	case u.fault == faultInvalidUTF8:
		m.InvalidUTF8.Inc()
		return
	case u.fault == faultTooLarge:
		m.TooLarge.Inc()
		return
	}
	u.allowed = min(u.allowed, maxHits)
	u.denied = min(u.denied, maxHits)
	set := s.activeRulesLocked()
	rule, entries := r.matchRule(set, u)
	id := appendID(s.scratch.id[:0], u.entries)
	s.scratch.id = id
	report := division.Report{
		Bucket: s.bucketOf(r.domain, id), ID: id, Allowed: u.allowed, Denied: u.denied, Elapsed: u.elapsed,
	}
	if rule != nil {
		report.Limit = s.limitLocked(rule)
	}
	r.periodic = r.periodic || u.elapsed > 0
	now := s.options.Elapsed()
	if s.divider.Report(now, r.id, report) == division.TooManyBuckets {
		m.TooManyBuckets.Inc()
	}
	if report.Limit != nil {
		s.options.Count(set, rule, entries, u.allowed, u.denied,
			s.divider.CountShadowHits(now, report.Bucket, u.allowed))
	} else {
		r.countUnmatched(set)
	}
}

// bucketOf returns the key of a bucket ID.
func (s *Service) bucketOf(domain, id []byte) division.Bucket {
	h := s.hasher
	h.AddBytes(domain)
	h.AddBytes(id)
	if l := s.leaderships[string(domain)]; l != nil { // a new leadership uses new keys, so that it ignores the state of an earlier one
		h.AddWord(uint64(l.predecessorUntil)) //nolint:gosec // not negative
	}
	key := h.Sum()
	return division.Bucket{key.Hi, key.Lo}
}

// countUnmatched counts a usage of a bucket that no rule with quota matches.
func (r *reader) countUnmatched(set *descriptors.Set) {
	m := r.service.options.Metrics
	if set == nil || !set.Knows(r.domain) {
		m.UnknownDomains.Add(r.domain, 1)
		return
	}
	m.Quota.Unmatched.WithLabelValues(descriptors.MetricDomain(string(r.domain))).Inc()
}

// matchRule returns the rule of a bucket, or nil, and the entries of its descriptor, in the order
// given by the entry OrderKey, which must name all others.
func (r *reader) matchRule(set *descriptors.Set, u *usage) (*descriptors.Rule, []descriptors.Entry) {
	entries := r.service.scratch.entries[:0]
	order, found := u.findEntry([]byte(OrderKey))
	for found && len(entries) < len(u.entries) {
		var name []byte
		name, order, found = bytes.Cut(order, []byte{','})
		value, ok := u.findEntry(name)
		if !ok || string(name) == OrderKey {
			return nil, nil
		}
		entries = append(entries, descriptors.Entry{Key: name, Value: value})
	}
	// Each entry must be named exactly once: otherwise two IDs would match one rule, each with the
	// complete limit.
	if set == nil || found || len(entries) == 0 || len(entries) != len(u.entries)-1 || hasDuplicateKeys(entries) {
		return nil, nil
	}
	return set.Match(r.domain, entries), entries
}

func hasDuplicateKeys(entries []descriptors.Entry) bool {
	for i := range entries {
		for j := range i {
			if bytes.Equal(entries[i].Key, entries[j].Key) {
				return true
			}
		}
	}
	return false
}

func (u *usage) findEntry(key []byte) ([]byte, bool) {
	for i := range u.entries {
		if bytes.Equal(u.entries[i].key, key) {
			return u.entries[i].value, true
		}
	}
	return nil, false
}

// OrderKey is the key of the ID entry whose value lists the other keys, joined by commas, in the
// order of the descriptor.
const OrderKey = "sluice"

// Bounds on a message.
const (
	maxMessageBytes = 128 << 10
	maxActions      = maxMessageBytes / (maxIDBytes + maxActionBytes) // fits in maxMessageBytes
)

// AppendMessage appends the next message to b. The caller must send messages in the order in which
// it got them, or close the stream. seq is the number of the message for [Stream.Confirm], 0 if
// there is none. more reports whether another message is ready.
func (st *Stream) AppendMessage(b []byte) (message []byte, seq uint64, more bool) {
	s := st.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] != st || st.Err() != nil || !s.leadsLocked(st.domain) {
		return b, 0, false
	}
	now := s.options.Elapsed()
	start := len(b)
	actions := s.scratch.actions
	for {
		var n uint64
		actions, n, more = s.divider.TakeActions(now, st.id, actions[:0], maxActions)
		if n == 0 {
			return b, seq, false
		}
		seq = n
		st.seq = n
		if st.reported && st.wait.element == nil {
			s.startWaitLocked(st, &s.waits.unconfirmed, now)
		}
		for i := range actions {
			b = appendAction(b, &actions[i])
			s.countAction(actions[i].Kind)
		}
		clear(actions)
		s.scratch.actions = actions
		if !more || len(b)-start >= maxMessageBytes/2 {
			return b, seq, more
		}
	}
}

func (s *Service) countAction(k division.Kind) {
	m := &s.options.Metrics.Quota
	switch k {
	case division.Assign:
		m.Assigned.Inc()
	case division.AssignAllowAll:
		m.AllowAll.Inc()
	case division.AssignDenyAll:
		m.DenyAll.Inc()
	case division.Abandon:
		m.Abandoned.Inc()
	}
}

// Confirm records that the client has received all messages up to number seq.
func (st *Stream) Confirm(seq uint64) {
	s := st.service
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.streams[st.id] != st {
		return
	}
	now := s.options.Elapsed()
	s.noteDeliveredLocked(st, seq, now)
	s.divider.Confirm(now, st.id, seq)
	s.divideLocked()
}

// MarkSent records that all messages up to number seq were sent. It is called by transports that do
// not learn when messages arrive.
func (st *Stream) MarkSent(seq uint64) {
	s := st.service
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteDeliveredLocked(st, seq, s.options.Elapsed())
}

// ConfirmByReports is called after each report by transports that do not learn when messages
// arrive. Envoy reports all buckets every five seconds. A message that was sent before one of these
// reports has arrived when the next one comes.
func (st *Stream) ConfirmByReports() {
	st.service.mu.Lock()
	seq := st.confirmable
	periodic := st.periodic
	st.periodic = false
	if periodic {
		st.confirmable = st.seq
	}
	st.service.mu.Unlock()
	if periodic && seq > 0 {
		st.Confirm(seq)
	}
}
