package rlqs

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/server/access"
)

// Peer is the client that opens a stream.
type Peer struct {
	// Client is nil if it has shown no certificate.
	Client *access.Client
	// Identity names the client: see [access.IdentityOf].
	Identity string
	// Address is that of its machine. It is empty if others may have the same, as behind a socket.
	Address string
}

// Stream is one of an Envoy. Report and Take are called by one goroutine at a time each; the others by any.
type Stream struct {
	service *Service
	peer    Peer
	id      uint64 // of the client
	wake    func()
	holder  quota.Holder
	slot    slot
	wait    wait

	reported bool // a report has come
	periodic bool // the report that comes has a bucket that was reported before
	// seq is the number of the newest message, and confirmable what it was at the last such report: see ConfirmByReports.
	seq, confirmable uint64

	decoder decoder
	counted int    // bytes of the decoder that are in Service.parts
	name    []byte // the domain, nil until the first report
	ended   atomic.Pointer[error]
}

var clientSeed = maphash.MakeSeed()

// Open begins a stream. Wake is called when there may be something to take; it must return at once, and may be called
// by any goroutine.
func (s *Service) Open(p Peer, wake func()) (*Stream, error) {
	st := &Stream{service: s, peer: p, id: maphash.String(clientSeed, p.Identity), wake: wake}
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	m := s.options.Metrics
	m.Calls.Method(MethodName).Requests.Inc()
	if s.options.Allow != nil && !p.Client.MayAny() {
		m.Quota.Refused.Inc()
		return nil, status.Error(codes.PermissionDenied, access.DeniedEverything(p.Client).Error())
	}
	evicted, ok := s.slots.take(st, st.id)
	if !ok {
		m.Quota.Refused.Inc()
		return nil, errNoSlot
	}
	if evicted != nil {
		m.Quota.Refused.Inc()
		s.endLocked(evicted, errEvicted)
	}
	s.newest++
	st.holder = s.newest
	st.decoder.scratch = &s.scratch.decoder
	s.streams[st.holder] = st
	now := s.options.Elapsed()
	s.awaitLocked(st, &s.waits.unreported, now)
	if s.waits.unreported.Len() == 1 && !s.closed {
		s.due.Reset(0)
	}
	s.measureLocked()
	return st, nil
}

// The errors of streams that are over, or for which there is no slot.
var (
	errClosed  = status.Error(codes.Canceled, "the stream has ended")
	errNoSlot  = status.Errorf(codes.ResourceExhausted, "%s is in use: at most %d streams at once, of which a client has no more than are free", MethodName, MostStreams)
	errEvicted = status.Errorf(codes.ResourceExhausted, "%s is in use: this client has the most streams, and another needs one", MethodName)
)

// Close says that the stream has ended. It may be called again.
func (st *Stream) Close() {
	s := st.service
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.streams[st.holder] != st {
		return
	}
	delete(s.streams, st.holder)
	st.ended.CompareAndSwap(nil, &errClosed) // no report that is still on its way counts
	s.releaseLocked(st)
	s.divider.Closed(s.options.Elapsed(), st.holder)
	s.divideLocked()
	s.measureLocked()
}

// releaseLocked frees what the stream has except its shares.
func (s *Service) releaseLocked(st *Stream) {
	s.slots.leave(st)
	s.waits.leave(st)
	s.dropPartLocked(st)
}

// dropPartLocked frees what a stream keeps of a report.
func (s *Service) dropPartLocked(st *Stream) {
	st.decoder.part = nil
	s.countPartLocked(st)
}

// countPartLocked counts what a stream keeps of a report. It reports whether that has grown.
func (s *Service) countPartLocked(st *Stream) (grown bool) {
	more := cap(st.decoder.part) - st.counted
	s.parts, st.counted = s.parts+more, st.counted+more
	return more > 0
}

// endLocked has the stream end with an error, unless it ends already.
func (s *Service) endLocked(st *Stream, err error) {
	if st.ended.CompareAndSwap(nil, &err) {
		s.releaseLocked(st)
		s.wakes = append(s.wakes, st.wake)
	}
}

// Report brings the next piece of a report. Last says that the report ends with it. An error ends the stream.
func (st *Stream) Report(p []byte, last bool) error {
	s := st.service
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if err := st.Ended(); err != nil {
		return err
	}
	err := st.decoder.feed(p, last, (*reader)(st))
	if ended := st.Ended(); ended != nil { // new rules were found meanwhile
		s.dropPartLocked(st)
		return ended
	}
	if s.countPartLocked(st) {
		s.measureLocked()
	}
	if err != nil {
		if _, ok := status.FromError(err); !ok {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		s.options.Metrics.Quota.Refused.Inc()
		s.endLocked(st, err)
		return err
	}
	if last {
		s.options.Metrics.Quota.Reports.Inc()
		s.reportedLocked(st)
		s.divideLocked()
	}
	return nil
}

func (s *Service) reportedLocked(st *Stream) {
	s.dropPartLocked(st)
	if st.reported || st.name == nil {
		return
	}
	st.reported = true
	s.slots.report(st)
	s.waits.leave(st)
	if st.seq > 0 { // it took actions about the buckets that came first
		s.awaitLocked(st, &s.waits.unconfirmed, s.options.Elapsed())
	}
}

// Ended returns why the stream is to end, nil while it is not. It is to be looked at whenever the stream is woken.
func (st *Stream) Ended() error {
	if err := st.ended.Load(); err != nil {
		return *err
	}
	return nil
}

// mostHits bounds what a report says of a bucket's requests, more than an Envoy has in five seconds. So no sum wraps around, and
// metrics are of use behind one that is wrong.
const mostHits = 1 << 32

// reader takes what is in reports. Its methods need the service's lock.
type reader Stream

func (r *reader) domain(name []byte) error {
	if r.name != nil {
		if !bytes.Equal(r.name, name) {
			return status.Errorf(codes.InvalidArgument, "a report for domain %q on a stream for domain %q: each domain has its own stream", name, r.name)
		}
		return nil
	}
	s := r.service
	switch {
	case len(name) == 0:
		return status.Error(codes.InvalidArgument, "the domain of a report is empty")
	case s.options.Allow != nil && !r.peer.Client.May(name):
		return status.Error(codes.PermissionDenied, access.Denied(r.peer.Client, name).Error())
	}
	set := s.currentLocked()
	if !s.holdsLocked(name) {
		return s.elsewhereLocked(name)
	}
	r.name = bytes.Clone(name)
	peer := uint64(0)
	if r.peer.Address != "" && set != nil && set.Knows(name) { // who asks for any domain leaves nothing behind
		var h maphash.Hash
		h.SetSeed(clientSeed)
		_, _ = h.WriteString(r.peer.Address) // it never fails
		_, _ = h.Write(append([]byte{0}, name...))
		peer = h.Sum64()
	}
	s.divider.Opened(s.options.Elapsed(), r.holder, peer, r.id)
	return nil
}

func (r *reader) bucket(u *usage) {
	s := r.service
	m := &s.options.Metrics.Quota
	m.Usages.Inc()
	switch {
	case r.name == nil: // its domain comes behind it, which no Envoy does
		return
	case u.fault == faultText:
		m.NotText.Inc()
		return
	case u.fault == faultSize:
		m.TooLarge.Inc()
		return
	}
	u.allowed, u.denied = min(u.allowed, mostHits), min(u.denied, mostHits)
	set := s.currentLocked()
	rule, entries := r.match(set, u)
	id := appendID(s.scratch.id[:0], u.entries)
	s.scratch.id = id
	report := quota.Report{Bucket: s.bucketOf(r.name, id), ID: id, Allowed: u.allowed, Denied: u.denied, Elapsed: u.elapsed}
	if rule != nil {
		report.Limit = s.limitLocked(rule)
	}
	r.periodic = r.periodic || u.elapsed > 0
	now := s.options.Elapsed()
	if s.divider.Report(now, r.holder, report) == quota.NoRoom {
		m.NoRoom.Inc()
	}
	if report.Limit != nil {
		s.options.Count(set, rule, entries, u.allowed, u.denied, s.divider.Beyond(now, report.Bucket, u.allowed))
	} else {
		r.unmatched(set)
	}
}

// bucketOf returns the bucket of an id.
func (s *Service) bucketOf(domain, id []byte) quota.Bucket {
	h := s.hasher
	h.AddBytes(domain)
	h.AddBytes(id)
	if ours := s.roles[string(domain)]; ours != nil { // nothing of a role that was lost counts under another
		h.AddWord(uint64(ours.since)) //nolint:gosec // not negative
	}
	key := h.Sum()
	return quota.Bucket{key.Hi, key.Lo}
}

// unmatched counts a bucket that no rule divides.
func (r *reader) unmatched(set *descriptors.Set) {
	m := r.service.options.Metrics
	if set == nil || !set.Knows(r.name) {
		m.UnknownDomains.Add(r.name, 1)
		return
	}
	m.Quota.Unmatched.WithLabelValues(descriptors.MetricDomain(string(r.name))).Inc()
}

// match returns the rule of a bucket, or nil, and the entries of its descriptor. Their order is what the entry OrderKey
// says, which names all others.
func (r *reader) match(set *descriptors.Set, u *usage) (*descriptors.Rule, []descriptors.Entry) {
	entries := r.service.scratch.entries[:0]
	order, found := u.find([]byte(OrderKey))
	for found && len(entries) < len(u.entries) {
		var name []byte
		name, order, found = bytes.Cut(order, []byte{','})
		value, ok := u.find(name)
		if !ok || string(name) == OrderKey {
			return nil, nil
		}
		entries = append(entries, descriptors.Entry{Key: name, Value: value})
	}
	// All are named, and none twice: otherwise two ids would lead to one rule, with a limit for each of them.
	if set == nil || found || len(entries) == 0 || len(entries) != len(u.entries)-1 || repeats(entries) {
		return nil, nil
	}
	return set.Match(r.name, entries), entries
}

func repeats(entries []descriptors.Entry) bool {
	for i := range entries {
		for j := range i {
			if bytes.Equal(entries[i].Key, entries[j].Key) {
				return true
			}
		}
	}
	return false
}

func (u *usage) find(key []byte) ([]byte, bool) {
	for i := range u.entries {
		if bytes.Equal(u.entries[i].key, key) {
			return u.entries[i].value, true
		}
	}
	return nil, false
}

// OrderKey is the key of a bucket's id whose value names the others, joined by commas, in the order of the descriptor.
const OrderKey = "sluice"

// How much a message has at most.
const (
	mostMessage = 128 << 10
	mostActions = mostMessage / (mostID + mostAction) // which no message exceeds
)

// Take appends the next message to b. It must be sent, in the order in which messages were taken, or the stream be
// closed. Seq is its number, for [Stream.Confirmed], or 0 if there is none. More says that another is left.
func (st *Stream) Take(b []byte) (message []byte, seq uint64, more bool) {
	s := st.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.holder] != st || st.Ended() != nil || !s.holdsLocked(st.name) {
		return b, 0, false
	}
	now, begun, actions := s.options.Elapsed(), len(b), s.scratch.actions
	for {
		var n uint64
		actions, n, more = s.divider.Take(now, st.holder, actions[:0], mostActions)
		if n == 0 {
			return b, seq, false
		}
		seq, st.seq = n, n
		if st.reported && st.wait.place == nil {
			s.awaitLocked(st, &s.waits.unconfirmed, now)
		}
		for i := range actions {
			b = appendAction(b, &actions[i])
			s.told(actions[i].Kind)
		}
		clear(actions)
		s.scratch.actions = actions
		if !more || len(b)-begun >= mostMessage/2 {
			return b, seq, more
		}
	}
}

func (s *Service) told(k quota.Kind) {
	m := &s.options.Metrics.Quota
	switch k {
	case quota.Assign:
		m.Assigned.Inc()
	case quota.AssignAll:
		m.AllowAll.Inc()
	case quota.AssignNone:
		m.DenyAll.Inc()
	case quota.Abandon:
		m.Abandoned.Inc()
	}
}

// Confirmed says that the client has got all messages up to a number.
func (st *Stream) Confirmed(seq uint64) {
	s := st.service
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.streams[st.holder] != st {
		return
	}
	now := s.options.Elapsed()
	s.progressLocked(st, seq, now)
	s.divider.Confirmed(now, st.holder, seq)
	s.divideLocked()
}

// Sent notes that all messages up to a number were sent. Transports call it that cannot know when messages arrive.
func (st *Stream) Sent(seq uint64) {
	s := st.service
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressLocked(st, seq, s.options.Elapsed())
}

// ConfirmByReports is called after each report where a transport cannot tell that messages have arrived. Envoy reports
// all buckets every five seconds: what was sent before the last such report has arrived when another comes.
func (st *Stream) ConfirmByReports() {
	st.service.mu.Lock()
	seq, periodic := st.confirmable, st.periodic
	if st.periodic = false; periodic {
		st.confirmable = st.seq
	}
	st.service.mu.Unlock()
	if periodic && seq > 0 {
		st.Confirmed(seq)
	}
}
