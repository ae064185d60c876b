package rlqs

import (
	"container/list"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

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

// wait is the wait of a stream for its client.
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
