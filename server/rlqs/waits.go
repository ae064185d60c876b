package rlqs

import (
	"container/list"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/quota"
)

const (
	// reportTimeout is how long a client has for the first report of a stream.
	reportTimeout = 10 * time.Second
	// readTimeout is how long a client has to take in a message, or one behind it: longer than a time to live, in which an
	// Envoy that stands still loses what it was assigned.
	readTimeout = 30 * time.Second
)

var (
	errNoReport = status.Errorf(codes.DeadlineExceeded, "no report within %v: a stream begins with one", reportTimeout)
	errUnread   = status.Errorf(codes.DeadlineExceeded, "no message was taken in within %v", readTimeout)
)

// waits are the streams that wait for their clients, those that have waited for longest first: for the first report, or
// until a message has arrived.
type waits struct{ unreported, unconfirmed list.List }

// wait is a stream's wait for its client.
type wait struct {
	in    *list.List    // one of waits
	place *list.Element // nil: it does not wait
	since quota.Time
}

// awaitLocked has a stream wait from now on.
func (s *Service) awaitLocked(st *Stream, in *list.List, now quota.Time) {
	s.waits.leave(st)
	st.wait = wait{in, in.PushBack(st), now}
}

// leave ends the wait of a stream, if it waits.
func (w *waits) leave(st *Stream) {
	if st.wait.place != nil {
		st.wait.in.Remove(st.wait.place)
		st.wait = wait{}
	}
}

// progressLocked notes that the messages up to a number have arrived.
func (s *Service) progressLocked(st *Stream, seq uint64, now quota.Time) {
	switch {
	case st.wait.in != &s.waits.unconfirmed:
	case seq >= st.seq:
		s.waits.leave(st)
	default:
		s.awaitLocked(st, &s.waits.unconfirmed, now)
	}
}

// endLateLocked ends the streams that have waited for too long. It returns when it is to be called again.
func (s *Service) endLateLocked(now quota.Time) (next quota.Time) {
	next = now + readTimeout
	for _, w := range []struct {
		in      *list.List
		timeout time.Duration
		err     error
	}{{&s.waits.unreported, reportTimeout, errNoReport}, {&s.waits.unconfirmed, readTimeout, errUnread}} {
		for e := w.in.Front(); e != nil; e = w.in.Front() {
			st, _ := e.Value.(*Stream)
			if at := st.wait.since + w.timeout; at > now {
				next = min(next, at)
				break
			}
			s.options.Metrics.Quota.Refused.Inc()
			s.endLocked(st, w.err)
		}
	}
	return next
}
