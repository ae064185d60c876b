package h2

import "encoding/binary"

// receiveMessages takes in a part of a client's messages.
func (c *Conn) receiveMessages(s *stream, p []byte) {
	if s.streaming.requestDone {
		return
	}
	if s.streaming.chunks.ChunkedCall != nil {
		c.receiveChunks(s, p)
		return
	}
	if len(s.body) == 0 {
		s.requestStart = c.now
	}
	c.appendBody(s, p)
	c.deliver(s)
}

// deliver gives the handler the next message, if it wants one and it is whole.
func (c *Conn) deliver(s *stream) {
	t := s.streaming
	if !t.wantsMessage || t.requestDone {
		return
	}
	fault, faulty := c.messageFault(s, s.body)
	switch {
	case faulty:
		c.endMessages(s, fault)
		return
	case s.missingBytes() > 0 && s.state == streamOpen:
		c.extendWindow(s)
		return
	case len(s.body) == 0:
		c.endMessages(s, Status{})
		return
	case s.missingBytes() > 0:
		c.endMessages(s, errTruncated)
		return
	}
	size := s.messageBytes()
	t.wantsMessage = false
	c.glitches.add(glitchesPerCall) // a message is as good as a call
	t.Receive(s.body[prefixBytes:prefixBytes+size], s.body[0] == 1)
	rest := s.body[prefixBytes+size:]
	c.dropBody(s) // the buffer of a large message is not kept for small ones
	c.appendBody(s, rest)
	c.releaseSlot(s)
	if len(rest) == 0 && s.state != streamOpen {
		c.endMessages(s, Status{})
	}
}

// endMessages ends what a client says. The rest is thrown away.
func (c *Conn) endMessages(s *stream, status Status) {
	s.streaming.requestDone = true
	c.dropBody(s)
	c.releaseSlot(s)
	s.streaming.RequestEnded(status)
}

// RequestMessage asks for the next message of a conversation. This and the following do nothing if nobody waits
// for the answer any more.
func (c *Conn) RequestMessage(out []byte, id uint32) []byte {
	return c.withStream(out, c.conversation(id), func(s *stream) {
		if !s.streaming.requestDone {
			s.streaming.wantsMessage = true
			s.requestStart = c.now
			c.deliver(s)
		}
	})
}

// SendHeader appends the headers of a conversation's reply, with fields of the caller's own. The names must
// be in lower case. Only the first call counts, and none after a Send.
func (c *Conn) SendHeader(out []byte, id uint32, fields []Field) []byte {
	return c.withStream(out, c.conversation(id), func(s *stream) { c.sendHeader(s, fields) })
}

func (c *Conn) sendHeader(s *stream, fields []Field) {
	if !s.streaming.headerSent {
		s.streaming.headerSent = true
		c.pings.strikes = 0
		c.appendBlock(s.id, appendFields([]byte(replyHeaders), fields), false)
	}
}

// Send appends a message of a conversation's reply, as its windows allow.
func (c *Conn) Send(out []byte, id uint32, message []byte) []byte {
	return c.withStream(out, c.conversation(id), func(s *stream) {
		c.sendHeader(s, nil)
		c.glitches.add(glitchesPerCall) // a client's windows and pings follow the messages that it gets
		if s.unsent == nil {
			c.send.queue = append(c.send.queue, s)
		}
		c.send.queuedBytes -= cap(s.unsent)
		if s.sent > len(s.unsent)/2 { // the rest moves to the beginning
			s.unsent, s.sent = append(s.unsent[:0], s.unsent[s.sent:]...), 0
		}
		s.unsent = binary.BigEndian.AppendUint32(append(s.unsent, 0), uint32(len(message))) //nolint:gosec // a reply has no 4 GiB
		s.unsent = append(s.unsent, message...)
		c.send.queuedBytes += cap(s.unsent)
		c.sendQueued()
	})
}

// Finish appends the end of a conversation, once its messages have left.
func (c *Conn) Finish(out []byte, id uint32, status Status, fields []Field) []byte {
	return c.withStream(out, c.conversation(id), func(s *stream) { c.finishTalk(s, status, fields) })
}

// Abort resets a conversation at once, and cancels it: its messages that have not left never will.
func (c *Conn) Abort(out []byte, id uint32) []byte {
	return c.withStream(out, c.conversation(id), func(s *stream) { c.reset(s, CodeCancel) })
}

func (c *Conn) finishTalk(s *stream, status Status, fields []Field) {
	t := s.streaming
	s.pending = nil
	t.finished, t.requestDone = true, true
	c.dropBody(s)
	c.releaseSlot(s)
	if !t.headerSent { // gRPC over HTTP2, "Trailers-Only"
		t.trailers = []byte(replyHeaders)
	}
	t.trailers = appendFields(appendStatus(t.trailers, status), fields)
	if s.unsentSince = c.now; s.unsent == nil {
		c.sendTrailers(s)
		return
	}
	c.send.queuedBytes += cap(t.trailers)
}

// conversation returns a stream with a conversation that has not finished, or nil.
func (c *Conn) conversation(id uint32) *stream {
	s := c.streams[id]
	if s == nil || s.streaming == nil || s.streaming.finished {
		return nil
	}
	return s
}
