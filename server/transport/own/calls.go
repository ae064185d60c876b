package own

import (
	"cmp"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/h2"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// calls answers the calls of a connection, in its turns.
type calls connection

var _ h2.Handler = (*calls)(nil)

// Call implements [h2.Handler].
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
		z, err := c.inflate(call, c.transport.Limits.MaxMessageBytes)
		if err != nil {
			trace.answered(nil, err)
			return nil, statusOf(err), nil
		}
		defer z.Release()
		message = z.Out
	}
	trace.received(message)
	return c.shouldRateLimit(call, message, trace)
}

// Open implements [h2.Handler].
func (c *calls) Open(call *h2.Call) (h2.Conversation, h2.Status) {
	b, s := c.begin(call, false)
	if b == nil {
		return nil, s
	}
	return b, s
}

// Unknown implements [h2.Handler].
func (c *calls) Unknown(path string) h2.Status {
	return h2.Status{Code: uint32(codes.Unimplemented), Message: c.transport.bridge.unknown(path)}
}

// Exceeded implements [h2.Handler].
func (c *calls) Exceeded(call *h2.Call, b h2.Bound, size int) h2.Status {
	h := c.transport.Handler
	if b == h2.BoundHeaders {
		return statusOf(c.transport.HeadersTooLarge(size))
	}
	if call.Method != methodShouldRateLimit {
		m := &c.transport.bridge.methods[call.Method]
		return statusOf(transport.MessageOfOther(m.path, size, cmp.Or(m.mostMessage, c.transport.Limits.MaxMessageBytes)))
	}
	trace := c.trace(call)
	err := h.TooLarge(size, c.transport.Limits.MaxMessageBytes)
	trace.answered(nil, err)
	return statusOf(err)
}

// inflate decompresses a call's message, to at most so many bytes. The caller releases the inflater.
func (c *calls) inflate(call *h2.Call, most int) (*transport.Inflater, error) {
	z, err := (*connection)(c).inflateLocked(call.Message, most)
	if err == nil {
		call.Inflated = uint32(len(z.Out)) //nolint:gosec // a message is smaller
	}
	return z, err
}

// inflateLocked decompresses a message in a turn, which takes a ticket for one that is not small.
func (c *connection) inflateLocked(message []byte, most int) (*transport.Inflater, error) {
	z, err := transport.InflateFreely(message, most)
	if errors.Is(err, transport.ErrNotSmall) {
		c.enterCrowdLocked()
		z, err = transport.InflateLarge(message, most, func(held int) {
			c.parksLocked(held)
			transport.Park()
		})
	}
	if err != nil {
		return nil, notInflated(err, most)
	}
	return z, nil
}

// statusOf is an error's status as h2 has it.
func statusOf(err error) h2.Status {
	if err == nil {
		return h2.Status{}
	}
	s, _ := status.FromError(err)
	return h2.Status{Code: uint32(s.Code()), Message: s.Message()}
}

// notInflated is the answer to a message that could not be inflated, in grpc-go's words.
func notInflated(err error, most int) error {
	if errors.Is(err, transport.ErrInflatedTooLarge) {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	}
	return status.Errorf(codes.Internal, "grpc: failed to decompress the received message: %v", err)
}
