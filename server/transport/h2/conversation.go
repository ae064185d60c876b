package h2

import "encoding/binary"

// receiveMessages takes in a part of a client's messages.
func (c *Conn) receiveMessages(s *stream, p []byte) {
	if s.talk.ended {
		return
	}
	if s.talk.pieces.Pieces != nil {
		c.receivePieces(s, p)
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
	if !t.wants || t.ended {
		return
	}
	fault, faulty := c.messageFault(s, s.body)
	switch {
	case faulty:
		c.endMessages(s, fault)
		return
	case s.missing() > 0 && s.state == streamOpen:
		c.credit(s)
		return
	case len(s.body) == 0:
		c.endMessages(s, Status{})
		return
	case s.missing() > 0:
		c.endMessages(s, truncated)
		return
	}
	size := s.messageBytes()
	t.wants = false
	c.odd.give(oddActsPerCall) // a message is as good as a call
	t.Receive(s.body[prefixBytes:prefixBytes+size], s.body[0] == 1)
	rest := s.body[prefixBytes+size:]
	c.dropBody(s) // the buffer of a large message is not kept for small ones
	c.appendBody(s, rest)
	c.leaveTurns(s)
	if len(rest) == 0 && s.state != streamOpen {
		c.endMessages(s, Status{})
	}
}

// endMessages ends what a client says. The rest is thrown away.
func (c *Conn) endMessages(s *stream, status Status) {
	s.talk.ended = true
	c.dropBody(s)
	c.leaveTurns(s)
	s.talk.End(status)
}

// Want asks for the next message of a conversation. This and the following do nothing if nobody waits
// for the answer any more.
func (c *Conn) Want(out []byte, id uint32) []byte {
	return c.with(out, c.conversation(id), func(s *stream) {
		if !s.talk.ended {
			s.talk.wants = true
			s.begun = c.now
			c.deliver(s)
		}
	})
}

// Head appends the headers of a conversation's reply, with fields of the caller's own. The names must
// be in lower case. Only the first call counts, and none after a Send.
func (c *Conn) Head(out []byte, id uint32, fields []Field) []byte {
	return c.with(out, c.conversation(id), func(s *stream) { c.head(s, fields) })
}

func (c *Conn) head(s *stream, fields []Field) {
	if !s.talk.headed {
		s.talk.headed = true
		c.pings.strikes = 0
		c.appendBlock(s.id, appendFields([]byte(replyHeaders), fields), false)
	}
}

// Send appends a message of a conversation's reply, as its windows allow.
func (c *Conn) Send(out []byte, id uint32, message []byte) []byte {
	return c.with(out, c.conversation(id), func(s *stream) {
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
	})
}

// Finish appends the end of a conversation, once its messages have left.
func (c *Conn) Finish(out []byte, id uint32, status Status, fields []Field) []byte {
	return c.with(out, c.conversation(id), func(s *stream) { c.finishTalk(s, status, fields) })
}

// Abort resets a conversation at once, and cancels it: its messages that have not left never will.
func (c *Conn) Abort(out []byte, id uint32) []byte {
	return c.with(out, c.conversation(id), func(s *stream) { c.reset(s, CodeCancel) })
}

func (c *Conn) finishTalk(s *stream, status Status, fields []Field) {
	t := s.talk
	s.later = nil
	t.finished, t.ended = true, true
	c.dropBody(s)
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
