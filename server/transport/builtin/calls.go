package builtin

import (
	"cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// calls is a connection as the [h2.Handler] of its calls.
type calls connection

var _ h2.Handler = (*calls)(nil)

func (c *calls) Call(call *h2.Call) ([]byte, h2.Status, h2.PendingCall) {
	if call.Method != methodShouldRateLimit {
		b, s := c.startBridged(call, true)
		if b == nil {
			return nil, s, nil
		}
		return nil, s, b
	}
	trace := c.startTrace(call)
	trace.received(call.Message)
	return (*connection)(c).shouldRateLimit(call, trace)
}

func (c *calls) Open(call *h2.Call) (h2.StreamingCall, h2.Status) {
	if c.Quotas != nil && call.Method == methodQuotas {
		return (*connection)(c).openQuotas(call)
	}
	b, s := c.startBridged(call, false)
	if b == nil {
		return nil, s
	}
	return b, s
}

func (c *calls) UnknownMethod(path string) h2.Status {
	return h2.Status{Code: uint32(codes.Unimplemented), Message: c.bridge.unknownMethodMessage(path)}
}

// startTrace starts the trace of a rate-limit request. It returns nil without tracing.
func (c *calls) startTrace(call *h2.Call) *callTrace {
	if c.Tracer == nil {
		return nil
	}
	return newCallTrace(c.Tracer, c.bridge.methods[call.Method].path, (*connection)(c).peer(), call)
}

func (c *calls) LimitExceeded(call *h2.Call, b h2.Limit, size int) h2.Status {
	h := c.Handler
	if b == h2.LimitHeaderBytes {
		return statusOf(headersTooLargeError(&c.Config, size, c.leaseConn.Addr))
	}
	if call.Method != methodShouldRateLimit {
		m := &c.bridge.methods[call.Method]
		limit := cmp.Or(m.maxMessageBytes, c.Limits.MaxMessageBytes)
		return statusOf(status.Errorf(codes.ResourceExhausted, "message of %d bytes exceeds the limit of %s: %d", size,
			m.path, limit))
	}
	trace := c.startTrace(call)
	err := h.RejectTooLarge(size, c.Limits.MaxMessageBytes, c.leaseConn)
	trace.answered(nil, err)
	return statusOf(err)
}

func (c *calls) Reset(stream uint32) { c.leaseConn.ResetCall(stream) }

// maxServerStreams limits, per connection and method, the streams on which only the server sends.
// Each has a goroutine, and stays open as long as the client likes.
const maxServerStreams = 64

// startBridged starts the goroutine of a call. If complete is set, call.Message is the request;
// otherwise messages will follow. The limits are checked first: clients that open streams in a loop
// would otherwise keep the scheduler busy.
func (c *calls) startBridged(call *h2.Call, complete bool) (*bridgedCall, h2.Status) {
	// A client can reset calls faster than their goroutines end.
	if c.bridgedCalls.Load() >= int64(c.Limits.MaxStreams) {
		return nil, h2.Status{Code: uint32(codes.ResourceExhausted), Message: "too many calls at once"}
	}
	m := &c.bridge.methods[call.Method]
	if err := c.acquireStreamSlot(m); err != nil {
		return nil, statusOf(err)
	}
	b, err := newBridgedCall((*connection)(c), call, m, complete)
	if err != nil {
		c.releaseStreamSlot(m)
		return nil, statusOf(err)
	}
	c.bridgedCalls.Add(1)
	go func() {
		b.finish(b.runHandler())
		c.releaseStreamSlot(m)
		c.bridgedCalls.Add(-1)
	}()
	return b, h2.Status{}
}

// acquireStreamSlot reserves a stream within the limits of the server and, if only the server sends
// on it, of the connection. A unary call needs no slot.
func (c *calls) acquireStreamSlot(m *bridgedMethod) error {
	if m.stream == nil {
		return nil
	}
	if !m.stream.ClientStreams {
		if err := c.serverStreams.Acquire(m.path, maxServerStreams); err != nil {
			return status.Error(codes.ResourceExhausted, status.Convert(err).Message()+" on a connection")
		}
	}
	err := c.bridge.interceptors.BeginStream(m.path, m.stream.ClientStreams)
	if err != nil && !m.stream.ClientStreams {
		c.serverStreams.Release(m.path)
	}
	return err
}

func (c *calls) releaseStreamSlot(m *bridgedMethod) {
	if m.stream == nil {
		return
	}
	c.bridge.interceptors.EndStream(m.path)
	if !m.stream.ClientStreams {
		c.serverStreams.Release(m.path)
	}
}
