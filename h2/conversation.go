package h2

import "encoding/binary"

// Conversation is a call whose messages come and go one by one. A [Conn] calls its methods, which must
// neither wait nor call those of the Conn.
//
// Of what a client sends, a connection holds no more than the message that was asked for and the
// first window of what comes after it. What it is given to send, it holds until the client has a
// window for it: Sent says how much has left, and the caller has to stop in time.
type Conversation interface {
	Later
	// Receive brings the next message, which is valid until Receive returns. The first comes by
	// itself, and each of the others after it was asked for by [Conn.Want]. Of a call that came
	// by [Handler.Call], none comes.
	Receive(message []byte, compressed bool)
	// End says that no message follows: the client has ended its request, which is OK, or what it
	// sent cannot be taken. The call is not answered by that.
	End(s Status)
	// Sent says that so many bytes of what [Conn.Send] was given have left, with their prefixes.
	Sent(n int)
}

// talk is what a stream with a conversation has beside others.
type talk struct {
	Conversation
	wants    bool // a message was asked for
	heard    bool // End was called, or the call has its answer: what comes is thrown away
	headed   bool // the headers of the reply are out
	finished bool
	trailers []byte // the block, once finished
}

// open has the handler begin a conversation.
func (c *Conn) open(s *stream) {
	call := Call{Stream: s.id, Method: int(s.path) - 1, Encoding: s.encoding}
	if s.kept != nil {
		call.Fields = s.kept.fields
	}
	if s.timed {
		call.Timeout, call.HasTimeout = s.deadline-c.now, true
		if call.Timeout <= 0 {
			c.fail(s, tooLate)
			return
		}
	}
	conversation, status := c.handler.Open(&call)
	if conversation == nil {
		c.fail(s, status)
		return
	}
	s.later = conversation
	s.talk = &talk{Conversation: conversation, wants: true}
	if c.block.end {
		c.finish(s, nil)
	}
}

// listen takes in a part of a client's messages.
func (c *Conn) listen(s *stream, p []byte) {
	if s.talk.heard {
		return
	}
	if len(s.body) == 0 {
		s.begun = c.now
	}
	c.appendBody(s, p)
	c.deliver(s)
}

// deliver gives the handler the next message, if it wants one and it is whole.
func (c *Conn) deliver(s *stream) {
	t := s.talk
	if !t.wants || t.heard {
		return
	}
	size := s.messageBytes()
	switch {
	case size > c.server.most[s.path]:
		c.hear(s, c.exceeded(s, BoundMessage, size))
		return
	case s.missing() > 0 && s.state == streamOpen:
		c.credit(s)
		return
	case len(s.body) == 0:
		c.hear(s, Status{})
		return
	case s.missing() > 0:
		c.hear(s, truncated)
		return
	}
	if fault, ok := s.flagFault(s.body[0]); ok {
		c.hear(s, fault)
		return
	}
	t.wants = false
	c.odd.give(oddActsPerCall) // a message is as good as a call
	t.Receive(s.body[prefixBytes:prefixBytes+size], s.body[0] == 1)
	rest := s.body[prefixBytes+size:]
	c.receive.parked -= cap(s.body)
	s.body = append([]byte(nil), rest...) // the buffer of a large message is not kept for small ones
	c.receive.parked += cap(s.body)
	c.leaveTurns(s)
	if len(rest) == 0 && s.state != streamOpen {
		c.hear(s, Status{})
	}
}

// hear ends what a client says. The rest is thrown away.
func (c *Conn) hear(s *stream, status Status) {
	s.talk.heard = true
	c.receive.parked -= cap(s.body)
	s.body = nil
	c.leaveTurns(s)
	s.talk.End(status)
}

// Want asks for the next message of a conversation. This and the following do nothing if nobody waits
// for the answer any more.
func (c *Conn) Want(out []byte, stream uint32) []byte {
	c.out = out
	if s := c.conversation(stream); s != nil && !s.talk.heard {
		s.talk.wants = true
		s.begun = c.now
		c.deliver(s)
	}
	out, c.out = c.out, nil
	return out
}

// Head appends the headers of a conversation's reply, with fields of the caller's own. The names must
// be in lower case. Only the first call counts, and none after a Send.
func (c *Conn) Head(out []byte, stream uint32, fields []Field) []byte {
	c.out = out
	if s := c.conversation(stream); s != nil {
		c.head(s, fields)
	}
	out, c.out = c.out, nil
	return out
}

func (c *Conn) head(s *stream, fields []Field) {
	if !s.talk.headed {
		s.talk.headed = true
		c.pings.strikes = 0
		c.appendBlock(s.id, appendFields([]byte(replyHeaders), fields), false)
	}
}

// Send appends a message of a conversation's reply, as its windows allow.
func (c *Conn) Send(out []byte, stream uint32, message []byte) []byte {
	c.out = out
	if s := c.conversation(stream); s != nil {
		c.head(s, nil)
		c.odd.give(oddActsPerCall) // a client's windows and pings follow the messages that it gets
		if s.waiting == nil {
			c.send.waiting = append(c.send.waiting, s)
		}
		c.send.waitingBytes -= cap(s.waiting)
		if s.sent > len(s.waiting)/2 { // the rest moves to the beginning
			s.waiting, s.sent = append(s.waiting[:0], s.waiting[s.sent:]...), 0
		}
		s.waiting = binary.BigEndian.AppendUint32(append(s.waiting, 0), uint32(len(message))) //nolint:gosec // a reply has no 4 GiB
		s.waiting = append(s.waiting, message...)
		c.send.waitingBytes += cap(s.waiting)
		c.sendWaiting()
	}
	out, c.out = c.out, nil
	return out
}

// Finish appends the end of a conversation, once its messages have left.
func (c *Conn) Finish(out []byte, stream uint32, status Status, fields []Field) []byte {
	c.out = out
	if s := c.conversation(stream); s != nil {
		c.finishTalk(s, status, fields)
	}
	out, c.out = c.out, nil
	return out
}

func (c *Conn) finishTalk(s *stream, status Status, fields []Field) {
	t := s.talk
	s.later = nil
	t.finished, t.heard = true, true
	c.receive.parked -= cap(s.body)
	s.body = nil
	c.leaveTurns(s)
	if !t.headed { // gRPC over HTTP2, "Trailers-Only"
		t.trailers = []byte(replyHeaders)
	}
	t.trailers = appendFields(appendStatus(t.trailers, status), fields)
	if s.waits = c.now; s.waiting == nil {
		c.endReply(s)
		return
	}
	c.send.waitingBytes += cap(t.trailers)
}

// conversation returns a stream with a conversation that has not finished, or nil.
func (c *Conn) conversation(id uint32) *stream {
	s := c.streams[id]
	if s == nil || s.talk == nil || s.talk.finished {
		return nil
	}
	return s
}

// appendBlock appends a header block, in as many frames as it takes.
func (c *Conn) appendBlock(stream uint32, block []byte, end bool) {
	kind, flags := frameHeaders, byte(0)
	if end {
		flags = flagEndStream
	}
	for {
		n := min(len(block), maxFrameBytes)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		c.out = append(appendFrameHeader(c.out, n, kind, flags, stream), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = frameContinuation, 0
	}
}

// appendFields appends header fields as literals without indexing.
func appendFields(b []byte, fields []Field) []byte {
	for _, f := range fields {
		b = append(appendInteger(append(b, 0), len(f.Name)), f.Name...)
		b = append(appendInteger(b, len(f.Value)), f.Value...)
	}
	return b
}
