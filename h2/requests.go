package h2

import (
	"slices"
	"strconv"
)

// What is wrong with a host: gRPC's proposal A41.
var (
	manyHosts   = Status{statusInternal, "more than one host header"}
	noAuthority = Status{statusInternal, "no host or :authority header present"}
)

// begin begins the stream of the block.
func (c *Conn) begin(id uint32) {
	h := &c.block.head
	c.newest = stream{
		id: id, state: streamOpen, path: h.kinds[namePath],
		receiveWindow: c.receive.initial, sendWindow: c.send.initial,
		length: h.length, begun: c.now,
		kept: h.kept,
	}
	s := &c.newest
	if c.block.end {
		s.state = streamWorking
	}
	limits := &c.server.options.Limits
	// In the order of grpc-go, since more than one may hold.
	switch {
	case h.hosts > 1:
		c.failWith(s, manyHosts, status400, "")
		return
	case !h.has(nameContentType), h.kinds[nameContentType] == contentNotGRPC:
		s.http = 415
	case h.fault != "":
		c.failWith(s, Status{statusInternal, h.fault}, status400, "")
		return
	case h.hosts == 0 && !h.has(nameAuthority):
		c.failWith(s, noAuthority, status400, "")
		return
	case h.kinds[nameMethod] == methodOther:
		s.http = 405
	case h.size > limits.MaxHeaderBytes:
		c.fail(s, c.exceeded(s, BoundHeaders, h.size))
		return
	case h.has(nameTimeout) && h.timeout == 0:
		c.fail(s, tooLate)
		return
	case h.kinds[nameContentType] == contentNotProto:
		c.fail(s, otherCodec)
		return
	case s.path == 0:
		c.fail(s, c.handler.Unknown(string(h.path)))
		return
	case h.has(nameEncoding) && !c.server.decodes(h.encoding):
		c.failWith(s, Status{statusUnimplemented, "grpc: Decompressor is not installed for grpc-encoding " + strconv.Quote(string(h.encoding))}, status200, c.server.accepts)
		return
	}
	if h.has(nameEncoding) {
		s.encoding = string(h.encoding)
	}
	if h.has(nameTimeout) {
		s.timed, s.deadline = true, c.now+h.timeout
	}
	if s.http == 0 && c.server.options.Methods[s.path-1].Streams {
		c.open(c.settle(s))
		return
	}
	if c.block.end {
		c.finish(s, nil)
	}
}

// decodes reports whether the server knows a grpc-encoding.
func (s *Server) decodes(encoding []byte) bool {
	return len(encoding) == 0 || string(encoding) == identityEncoding || slices.Contains(s.options.Encodings, string(encoding))
}

const identityEncoding = "identity"

// receiveData takes in a part of a request (6.1).
func (c *Conn) receiveData(f *frame) error {
	if c.idle(f.stream) {
		return &ConnError{CodeProtocol, "DATA on a stream that has not begun"}
	}
	if err := c.receiveBytes(len(f.payload)); err != nil {
		return err
	}
	p, err := f.unpad()
	if err != nil {
		return err
	}
	end := f.has(flagEndStream)
	if len(p) < smallFrame && !end {
		c.odd.left--
	}
	s := c.find(f.stream)
	switch {
	case s == nil:
		return c.receiveLate(f.stream, end)
	case s.state != streamOpen:
		c.resetFault(s.id, CodeStreamClosed) // 5.1, half-closed (remote)
		return nil
	}
	// What is thrown away needs no window: the connection's is enough.
	if s.receiveWindow -= int64(len(f.payload)); s.receiveWindow < 0 && len(f.payload) > 0 && s.http == 0 {
		return &ConnError{CodeFlowControl, "more DATA than a stream's window allows"} // 6.9.1
	}
	s.received += int64(len(p))
	if s.length >= 0 && s.received > s.length {
		c.resetFault(s.id, CodeProtocol) // 8.1.1
		return nil
	}
	switch {
	case end:
		c.finish(s, p)
	default:
		c.gather(c.settle(s), p)
	}
	return nil
}

// receiveLate takes in DATA of a stream that has ended. If we ended it, the client did not know.
func (c *Conn) receiveLate(id uint32, end bool) error {
	if _, client := c.ended.find(id); client {
		return &ConnError{CodeStreamClosed, "DATA on a stream that the client has ended"} // 5.1
	}
	if end {
		c.endLate()
	}
	return nil
}

// endLate takes in the client's end of a stream that we have ended. Each may still end once: thousands do
// at once if the client began them before it knew how many it may.
func (c *Conn) endLate() {
	if c.ended.late > 0 {
		c.ended.late--
	} else {
		c.odd.left--
	}
}

// gather keeps a part of a request that has not ended.
func (c *Conn) gather(s *stream, p []byte) {
	if s.http != 0 {
		if s.received > firstWindow/2 {
			c.answerHTTP(s) // its client could wait for a window that it does not get
		}
		return
	}
	if s.talk != nil {
		c.listen(s, p)
		return
	}
	c.appendBody(s, p)
	if size := s.messageBytes(); size > c.server.most[s.path] {
		c.fail(s, c.exceeded(s, BoundMessage, size))
		return
	}
	if missing := s.missing(); missing <= 0 {
		if fault, ok := s.flagFault(s.body[0]); ok {
			c.fail(s, fault)
			return
		}
		if missing < 0 {
			c.fail(s, tooManyMessages)
			return
		}
	}
	c.credit(s)
}

// appendBody keeps p. The memory is counted as parked.
func (c *Conn) appendBody(s *stream, p []byte) {
	was := cap(s.body)
	s.body = append(s.body, p...)
	c.receive.parked += cap(s.body) - was
}
