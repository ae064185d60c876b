package rlqs

import (
	"container/list"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/heap"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// MaxStreams is the maximum number of open streams. Each Envoy has one for each domain.
const MaxStreams = 10_000

// slots are the slots of open streams. A client may acquire a free slot while it has fewer slots
// than are free, so a single client gets at most half of all slots, and the next client at most
// half of the rest.
//
// Beyond that, the client takes a slot from the client with the most streams if that one has at
// least two more. It takes the slot of the other client's oldest stream without a report. If there
// is no such stream and no slot is free, it takes that of the newest stream.
type slots struct {
	used      int
	clients   map[uint64]*client
	byStreams heap.Heap[*client] // the first client has the most streams
}

// client is a client with slots.
type client struct {
	id    uint64
	index int // index in slots.byStreams
	// unreported contains its streams without a report, and reported the others, the oldest first.
	unreported, reported list.List
}

func (c *client) streams() int { return c.unreported.Len() + c.reported.Len() }

// Less implements [heap.Element]: the client with the most streams is the first one.
func (c *client) Less(other *client) bool { return c.streams() > other.streams() }

// SetIndex implements [heap.Element].
func (c *client) SetIndex(i int) { c.index = i }

type slot struct {
	client  *client // nil if it has none
	element *list.Element
}

// acquire acquires a slot for a stream of the client with the given ID. evicted is the stream that
// loses its slot, nil for none. ok is false if the client may not have another slot.
func (s *slots) acquire(st *Stream, id uint64) (evicted *Stream, ok bool) {
	streams := 0
	if c := s.clients[id]; c != nil {
		streams = c.streams()
	}
	if streams >= MaxStreams-s.used {
		if evicted = s.evictionCandidate(streams); evicted == nil {
			return nil, false
		}
		s.release(evicted)
	}
	c := s.clients[id]
	if c == nil {
		c = &client{id: id}
		s.clients[id] = c
		s.byStreams.Push(c)
	}
	s.used++
	st.slot = slot{c, c.unreported.PushBack(st)}
	s.byStreams.Fix(c.index)
	return evicted, true
}

// evictionCandidate returns the stream whose slot a client with the given number of streams may
// take, nil for none.
func (s *slots) evictionCandidate(streams int) *Stream {
	if len(s.byStreams) == 0 || s.byStreams[0].streams() <= streams+1 {
		return nil
	}
	e := s.byStreams[0].unreported.Front()
	if e == nil && s.used == MaxStreams {
		e = s.byStreams[0].reported.Back()
	}
	if e == nil {
		return nil
	}
	st, _ := e.Value.(*Stream)
	return st
}

// markReported records that a stream has reported.
func (s *slots) markReported(st *Stream) {
	if c := st.slot.client; c != nil {
		c.unreported.Remove(st.slot.element)
		st.slot.element = c.reported.PushBack(st)
	}
}

// release frees the slot of a stream, if it has one.
func (s *slots) release(st *Stream) {
	c := st.slot.client
	if c == nil {
		return
	}
	c.unreported.Remove(st.slot.element) // no effect if it is in the other list
	c.reported.Remove(st.slot.element)
	st.slot = slot{}
	s.used--
	if c.streams() == 0 {
		s.byStreams.Remove(c.index)
		delete(s.clients, c.id)
		return
	}
	s.byStreams.Fix(c.index)
}

const (
	// reportTimeout is the time limit for the first report of a stream.
	reportTimeout = 10 * time.Second
	// readTimeout is the longest time without the receipt of a message while messages are
	// unconfirmed. It is longer than a TTL, after which a stalled Envoy loses its assignments.
	readTimeout = 30 * time.Second
)

var (
	errNoReport     = status.Errorf(codes.DeadlineExceeded, "no complete report within %v of opening the stream", reportTimeout)
	errNotDelivered = status.Errorf(codes.DeadlineExceeded, "the client has not received a message within %v", readTimeout)
)

// waits contains the streams that wait for their clients, the longest wait first: for a first
// report, or for the confirmation that a message was received.
type waits struct{ unreported, unconfirmed list.List }

type wait struct {
	in      *list.List    // waits.unreported or waits.unconfirmed
	element *list.Element // nil if it does not wait
	since   division.Time
}

// startWaitLocked starts a wait of a stream and ends its previous one.
func (s *Service) startWaitLocked(st *Stream, in *list.List, now division.Time) {
	s.waits.stop(st)
	st.wait = wait{in, in.PushBack(st), now}
}

// stop ends the wait of a stream, if there is one.
func (w *waits) stop(st *Stream) {
	if st.wait.element != nil {
		st.wait.in.Remove(st.wait.element)
		st.wait = wait{}
	}
}

// noteDeliveredLocked records that the messages up to number seq have been received.
func (s *Service) noteDeliveredLocked(st *Stream, seq uint64, now division.Time) {
	switch {
	case st.wait.in != &s.waits.unconfirmed:
	case seq >= st.seq:
		s.waits.stop(st)
	default: // later messages are unconfirmed
		s.startWaitLocked(st, &s.waits.unconfirmed, now)
	}
}

// failTimedOutLocked fails the streams whose wait exceeds its time limit. It returns when it must
// be called next.
func (s *Service) failTimedOutLocked(now division.Time) (next division.Time) {
	next = now + readTimeout
	for _, w := range []struct {
		in      *list.List
		timeout time.Duration
		err     error
	}{{&s.waits.unreported, reportTimeout, errNoReport}, {&s.waits.unconfirmed, readTimeout, errNotDelivered}} {
		for e := w.in.Front(); e != nil; e = w.in.Front() {
			st, _ := e.Value.(*Stream)
			if at := st.wait.since + w.timeout; at > now {
				next = min(next, at)
				break
			}
			s.options.Metrics.Quota.RejectedStreams.Inc()
			s.failLocked(st, w.err)
		}
	}
	return next
}
