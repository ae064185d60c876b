package server

import (
	"cmp"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/h2"
)

// wireCalls answers the calls of a connection, in its turns.
type wireCalls wireConn

var _ h2.Handler = (*wireCalls)(nil)

// Call implements [h2.Handler].
func (c *wireCalls) Call(call *h2.Call) ([]byte, h2.Status, h2.Later) {
	if call.Method != methodShouldRateLimit {
		b, s := c.begin(call, true)
		if b == nil {
			return nil, s, nil
		}
		return nil, s, b
	}
	trace, message := c.trace(call), call.Message
	if call.Encoding != "" {
		z, err := c.inflate(call, c.wire.Limits.MaxMessageBytes)
		if err != nil {
			trace.answered(nil, err)
			return nil, statusOf(err), nil
		}
		defer z.release()
		message = z.out
	}
	trace.received(message)
	return c.shouldRateLimit(call, message, trace)
}

// Open implements [h2.Handler].
func (c *wireCalls) Open(call *h2.Call) (h2.Conversation, h2.Status) {
	b, s := c.begin(call, false)
	if b == nil {
		return nil, s
	}
	return b, s
}

// Unknown implements [h2.Handler].
func (c *wireCalls) Unknown(path string) h2.Status {
	return h2.Status{Code: uint32(codes.Unimplemented), Message: c.wire.bridge.unknown(path)}
}

// Exceeded implements [h2.Handler].
func (c *wireCalls) Exceeded(call *h2.Call, b h2.Bound, size int) h2.Status {
	h := c.wire.Handler
	if b == h2.BoundHeaders {
		return statusOf(c.wire.HeadersTooLarge(size))
	}
	if call.Method != methodShouldRateLimit {
		m := &c.wire.bridge.methods[call.Method]
		return statusOf(MessageOfOther(m.path, size, cmp.Or(m.mostMessage, c.wire.Limits.MaxMessageBytes)))
	}
	trace := c.trace(call)
	err := h.TooLarge(size, c.wire.Limits.MaxMessageBytes)
	trace.answered(nil, err)
	return statusOf(err)
}

// inflate decompresses a call's message, to at most so many bytes. The caller releases the inflater.
func (c *wireCalls) inflate(call *h2.Call, most int) (*inflater, error) {
	z, err := (*wireConn)(c).inflateLocked(call.Message, most)
	if err == nil {
		call.Inflated = uint32(len(z.out)) //nolint:gosec // a message is smaller
	}
	return z, err
}

// inflateLocked decompresses a message in a turn, which takes a ticket for one that is not small.
func (c *wireConn) inflateLocked(message []byte, most int) (*inflater, error) {
	z, err := inflateFreely(message, most)
	if errors.Is(err, errNotSmall) {
		c.enterCrowdLocked()
		z, err = inflateLarge(message, most, func(held int) {
			c.parksLocked(held)
			Park()
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
