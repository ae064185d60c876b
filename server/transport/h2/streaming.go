package h2

import "encoding/binary"

// receiveMessages receives data of a StreamingCall.
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

// deliver passes the next message to the handler, if it is complete and was requested.
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
	c.glitches.add(glitchesPerCall) // a message earns as much as a call
	t.Receive(s.body[prefixBytes : prefixBytes+size])
	rest := s.body[prefixBytes+size:]
	c.dropBody(s) // so that small messages do not keep the buffer of a large one
	c.appendBody(s, rest)
	c.releaseSlot(s)
	if len(rest) == 0 && s.state != streamOpen {
		c.endMessages(s, Status{})
	}
}

// endMessages ends the client's messages. Further data is dropped.
func (c *Conn) endMessages(s *stream, status Status) {
	s.streaming.requestDone = true
	c.dropBody(s)
	c.releaseSlot(s)
	s.streaming.RequestEnded(status)
}

// RequestMessage requests the next message of a StreamingCall. This method and the following ones
// do nothing if the call has ended.
func (c *Conn) RequestMessage(out []byte, id uint32) []byte {
	return c.withStream(out, c.findStreaming(id), func(s *stream) {
		if !s.streaming.requestDone {
			s.streaming.wantsMessage = true
			s.requestStart = c.now
			c.deliver(s)
		}
	})
}

// SendHeader appends the headers of a StreamingCall's reply, including the given fields, whose
// names must be in lower case. It does nothing if the headers were sent, by this method or by Send.
func (c *Conn) SendHeader(out []byte, id uint32, fields []Field) []byte {
	return c.withStream(out, c.findStreaming(id), func(s *stream) { c.sendHeader(s, fields) })
}

func (c *Conn) sendHeader(s *stream, fields []Field) {
	if !s.streaming.headerSent {
		s.streaming.headerSent = true
		c.pings.strikes = 0
		c.appendBlock(s.id, appendFields([]byte(replyHeaders), fields), false)
	}
}

// Send appends a message of a StreamingCall's reply, or queues it until there is a window.
func (c *Conn) Send(out []byte, id uint32, message []byte) []byte {
	return c.withStream(out, c.findStreaming(id), func(s *stream) {
		c.sendHeader(s, nil)
		c.glitches.add(glitchesPerCall) // a client sends WINDOW_UPDATEs and PINGs for messages
		if s.unsent == nil {
			c.send.queue = append(c.send.queue, s)
		}
		c.send.queuedBytes -= cap(s.unsent)
		if s.sent > len(s.unsent)/2 { // move the unsent rest to the beginning
			s.unsent = append(s.unsent[:0], s.unsent[s.sent:]...)
			s.sent = 0
		}
		s.unsent = binary.BigEndian.AppendUint32(append(s.unsent, 0), uint32(len(message))) //nolint:gosec // a reply has no 4 GiB
		s.unsent = append(s.unsent, message...)
		c.send.queuedBytes += cap(s.unsent)
		c.sendQueued()
	})
}

// Finish ends a StreamingCall, once its messages were sent.
func (c *Conn) Finish(out []byte, id uint32, status Status, fields []Field) []byte {
	return c.withStream(out, c.findStreaming(id), func(s *stream) { c.finishStreaming(s, status, fields) })
}

// Abort resets a StreamingCall at once, and cancels it. Unsent messages are dropped.
func (c *Conn) Abort(out []byte, id uint32) []byte {
	return c.withStream(out, c.findStreaming(id), func(s *stream) { c.reset(s, CodeCancel) })
}

func (c *Conn) finishStreaming(s *stream, status Status, fields []Field) {
	t := s.streaming
	s.pending = nil
	t.finished = true
	t.requestDone = true
	c.dropBody(s)
	c.releaseSlot(s)
	if !t.headerSent { // gRPC over HTTP2, "Trailers-Only"
		t.trailers = []byte(replyHeaders)
	}
	t.trailers = appendFields(appendStatus(t.trailers, status), fields)
	s.unsentSince = c.now
	if s.unsent == nil {
		c.sendTrailers(s)
		return
	}
	c.send.queuedBytes += cap(t.trailers)
}

// findStreaming returns the stream of a StreamingCall that has not finished, or nil.
func (c *Conn) findStreaming(id uint32) *stream {
	s := c.streams[id]
	if s == nil || s.streaming == nil || s.streaming.finished {
		return nil
	}
	return s
}
