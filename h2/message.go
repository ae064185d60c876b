package h2

import (
	"encoding/binary"
	"strconv"
)

// prefixBytes is what comes before a message: a flag, and a length of four bytes.
const prefixBytes = 5

// messageBytes returns the size of the message that a request begins with, 0 as long as that is
// not known.
func (s *stream) messageBytes() int { return messageBytes(s.body) }

func messageBytes(body []byte) int {
	if len(body) < prefixBytes {
		return 0
	}
	return int(min(binary.BigEndian.Uint32(body[1:]), 1<<31-1-prefixBytes))
}

// missing returns how many bytes of the message, or of its prefix, have not come.
func (s *stream) missing() int { return prefixBytes + s.messageBytes() - len(s.body) }

// Texts are those of grpc-go, if it has the same error.
var (
	noMessage       = Status{statusUnimplemented, "the request has no message: this method takes one"}
	tooManyMessages = Status{statusUnimplemented, "the request has more than one message: this method takes one"}
	truncated       = Status{statusInternal, "unexpected EOF"}
	noEncoding      = Status{statusInternal, "grpc: compressed flag set with identity or empty encoding"}
	otherCodec      = Status{statusUnimplemented, "the content type must be application/grpc or application/grpc+proto"}
	tooLate         = Status{statusDeadlineExceeded, "context deadline exceeded"}
)

// flagFault returns what is wrong with a message's flag, if anything is.
func (s *stream) flagFault(flag byte) (fault Status, ok bool) {
	switch {
	case flag == 0:
	case flag != 1:
		return Status{statusInternal, "grpc: received unexpected payload format " + strconv.Itoa(int(flag))}, true
	case s.encoding == "" || s.encoding == identityEncoding:
		return noEncoding, true
	}
	return Status{}, false
}

// finish answers a stream whose request is whole. Its last part is p.
func (c *Conn) finish(s *stream, p []byte) {
	if s.length >= 0 && s.received != s.length {
		c.resetFault(s.id, CodeProtocol) // 8.1.1
		return
	}
	if s.http != 0 {
		s.state = streamWorking
		c.answerHTTP(s)
		return
	}
	if s.talk != nil {
		s.state = streamWorking
		c.listen(s, p)
		return
	}
	if s.body != nil {
		c.appendBody(s, p)
		p = s.body
	}
	s.state = streamWorking // nothing more of it may come
	size := messageBytes(p)
	rest := len(p) - prefixBytes - size
	switch {
	case len(p) == 0:
		c.fail(s, noMessage)
		return
	case size > c.server.most[s.path]:
		c.fail(s, c.exceeded(s, BoundMessage, size))
		return
	case rest < 0:
		c.fail(s, truncated)
		return
	}
	if fault, ok := s.flagFault(p[0]); ok {
		c.fail(s, fault)
		return
	}
	if rest > 0 {
		c.fail(s, tooManyMessages)
		return
	}
	if c.send.waitingBytes > mostWaiting { // more than when the call began
		c.odd.refuse(c.receive.aware)
		c.reset(s, CodeRefusedStream)
		return
	}
	call := &c.call
	*call = Call{Stream: s.id, Method: int(s.path) - 1, Message: p[prefixBytes:]}
	if s.kept != nil {
		call.Fields = s.kept.fields
	}
	if p[0] == 1 {
		call.Encoding = s.encoding
	}
	if s.timed {
		call.Timeout, call.HasTimeout = s.deadline-c.now, true
		if call.Timeout <= 0 {
			c.fail(s, tooLate)
			return
		}
	}
	c.answer(s)
}

// exceeded asks the handler how a call is answered that is beyond a bound.
func (c *Conn) exceeded(s *stream, b Bound, size int) Status {
	call := Call{Stream: s.id, Method: int(s.path) - 1, Encoding: s.encoding}
	if s.kept != nil {
		call.Fields = s.kept.fields
	}
	return c.handler.Exceeded(&call, b, size)
}

// answer has the handler answer.
func (c *Conn) answer(s *stream) {
	call := &c.call
	reply, status, later := c.handler.Call(call)
	if call.Inflated > 0 {
		c.full -= int(call.Inflated / 2)
	}
	switch {
	case later != nil:
		s = c.settle(s)
		s.later = later
		if conversation, ok := later.(Conversation); ok {
			s.talk = &talk{Conversation: conversation, heard: true}
		}
		c.receive.parked -= cap(s.body)
		s.body = nil
	case status.Code != statusOK:
		c.fail(s, status)
	default:
		c.reply(s, reply)
	}
	call.Message, call.Fields = nil, nil
}
