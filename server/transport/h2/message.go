package h2

import (
	"encoding/binary"
	"strconv"
	"time"
)

// identityEncoding is the only grpc-encoding that is accepted: messages must not be compressed.
const identityEncoding = "identity"

// prefixBytes is the size of a message's prefix: a flag and a length of four bytes.
const prefixBytes = 5

// messageBytes returns the length of the first message of a request, or 0 while it is not known.
func (s *stream) messageBytes() int { return messageBytes(s.body) }

func messageBytes(body []byte) int {
	if len(body) < prefixBytes {
		return 0
	}
	return int(min(binary.BigEndian.Uint32(body[1:]), 1<<31-1-prefixBytes))
}

// missingBytes returns how many bytes of the message or its prefix were not received yet.
func (s *stream) missingBytes() int { return prefixBytes + s.messageBytes() - len(s.body) }

// The texts are those of grpc-go, where it has the same error.
var (
	errNoMessage        = Status{statusUnimplemented, "the request has no message, but this method takes one"}
	errTooManyMessages  = Status{statusUnimplemented, "the request has more than one message, but this method takes one"}
	errTruncated        = Status{statusInternal, "unexpected EOF"}
	errNoEncoding       = Status{statusInternal, "grpc: compressed flag set with identity or empty encoding"}
	errOtherCodec       = Status{statusUnimplemented, "the content type must be application/grpc or application/grpc+proto"}
	errDeadlineExceeded = Status{statusDeadlineExceeded, "context deadline exceeded"}
)

// messageFault returns the error of the first message in body, if it is invalid.
func (c *Conn) messageFault(s *stream, body []byte) (fault Status, faulty bool) {
	size := messageBytes(body)
	switch {
	case size > c.server.maxMessage[s.path]:
		return c.limitExceeded(s, LimitMessageBytes, size), true
	case len(body) < prefixBytes+size, body[0] == 0:
		return Status{}, false
	default:
		return flagFault(body[0]), true
	}
}

// flagFault returns the error of a message whose flag is not 0.
func flagFault(flag byte) Status {
	if flag == 1 {
		return errNoEncoding
	}
	return Status{statusInternal, "grpc: received unexpected payload format " + strconv.Itoa(int(flag))}
}

// fillCall sets all fields of call but the message, for the time now.
func (s *stream) fillCall(call *Call, now time.Duration) {
	*call = Call{Stream: s.id, Method: int(s.path) - 1}
	if s.kept != nil {
		call.Fields = s.kept.fields
	}
	if s.timed {
		call.Timeout = s.deadline - now
		call.HasTimeout = true
	}
}

// limitExceeded returns the handler's status for a call that exceeds a limit.
func (c *Conn) limitExceeded(s *stream, b Limit, size int) Status {
	var call Call
	s.fillCall(&call, c.now)
	return c.handler.LimitExceeded(&call, b, size)
}

func (c *Conn) appendBody(s *stream, p []byte) {
	was := cap(s.body)
	s.body = append(s.body, p...)
	c.receive.buffered += cap(s.body) - was
	c.receive.bodyBytes += len(p)
}

func (c *Conn) dropBody(s *stream) {
	c.receive.buffered -= cap(s.body)
	c.receive.bodyBytes -= len(s.body)
	s.body = nil
}
