package builtin

import (
	"cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// calls answers the calls of a connection, in its turns.
type calls connection

var _ h2.Handler = (*calls)(nil)

func (c *calls) Call(call *h2.Call) ([]byte, h2.Status, h2.Later) {
	if call.Method != methodShouldRateLimit {
		b, s := c.begin(call, true)
		if b == nil {
			return nil, s, nil
		}
		return nil, s, b
	}
	trace, message := c.trace(call), call.Message
	if call.Encoding != "" {
		z, err := c.inflate(call, c.Limits.MaxMessageBytes)
		if err != nil {
			trace.answered(nil, err)
			return nil, statusOf(err), nil
		}
		defer z.release()
		message = z.out
	}
	trace.received(message)
	return (*connection)(c).shouldRateLimit(call, message, trace)
}

func (c *calls) Open(call *h2.Call) (h2.Conversation, h2.Status) {
	if c.Quotas != nil && call.Method == methodQuotas {
		return c.openQuotas(call)
	}
	b, s := c.begin(call, false)
	if b == nil {
		return nil, s
	}
	return b, s
}

func (c *calls) Unknown(path string) h2.Status {
	return h2.Status{Code: uint32(codes.Unimplemented), Message: c.bridge.unknown(path)}
}

// trace begins the trace of a rate-limit request, unless there is no tracing.
func (c *calls) trace(call *h2.Call) *callTrace {
	if c.Tracer == nil {
		return nil
	}
	return newCallTrace(c.Tracer, c.bridge.methods[call.Method].path, (*connection)(c).peer(), call)
}

func (c *calls) Exceeded(call *h2.Call, b h2.Bound, size int) h2.Status {
	h := c.Handler
	if b == h2.BoundHeaders {
		return statusOf(headersTooLarge(&c.Config, size, c.lessee.Addr))
	}
	if call.Method != methodShouldRateLimit {
		m := &c.bridge.methods[call.Method]
		return statusOf(messageOfOther(m.path, size, cmp.Or(m.mostMessage, c.Limits.MaxMessageBytes)))
	}
	trace := c.trace(call)
	err := h.TooLarge(size, c.Limits.MaxMessageBytes, c.lessee)
	trace.answered(nil, err)
	return statusOf(err)
}

func (c *calls) Reset(stream uint32) { c.lessee.ResetCall(stream) }

// inflate decompresses a call's message, to at most so many bytes. The caller releases the inflater.
func (c *calls) inflate(call *h2.Call, most int) (*inflater, error) {
	z, err := (*connection)(c).inflateLocked(call.Message, most)
	if err == nil {
		call.Inflated = uint32(len(z.out)) //nolint:gosec // a message is smaller
	}
	return z, err
}

// maxWatches is how many streams of a method a connection may have on which only the server sends. They
// stay open for as long as a client likes, with a goroutine each.
const maxWatches = 64

// begin starts the goroutine of a call. If whole is set, call.Message is the call's request; otherwise
// messages are yet to come. A stream for which there is no place starts no goroutine: a crowd of clients
// that opens such streams without a pause would make others wait.
func (c *calls) begin(call *h2.Call, whole bool) (*bridged, h2.Status) {
	if c.bridged.Load() >= int64(c.Limits.MaxStreams) { // the client has reset them faster than they can end
		return nil, h2.Status{Code: uint32(codes.ResourceExhausted), Message: "too many calls at once"}
	}
	m := &c.bridge.methods[call.Method]
	if err := c.place(m); err != nil {
		return nil, statusOf(err)
	}
	b, err := newBridged((*connection)(c), call, m, whole)
	if err != nil {
		c.leavePlace(m)
		return nil, statusOf(err)
	}
	c.bridged.Add(1)
	go func() {
		b.run()
		c.leavePlace(m)
		c.bridged.Add(-1)
	}()
	return b, h2.Status{}
}

// place takes the places of a stream: one of the connection's, if only the server sends on it, and one of
// all connections'. A unary call needs none.
func (c *calls) place(m *bridgedMethod) error {
	if m.stream == nil {
		return nil
	}
	if !m.stream.ClientStreams {
		if err := c.watches.Take(m.path, maxWatches); err != nil {
			return status.Error(codes.ResourceExhausted, status.Convert(err).Message()+" on a connection")
		}
	}
	err := c.bridge.others.Begin(m.path, m.stream.ClientStreams)
	if err != nil && !m.stream.ClientStreams {
		c.watches.Leave(m.path)
	}
	return err
}

func (c *calls) leavePlace(m *bridgedMethod) {
	if m.stream == nil {
		return
	}
	c.bridge.others.End(m.path)
	if !m.stream.ClientStreams {
		c.watches.Leave(m.path)
	}
}
