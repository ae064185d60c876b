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
		c.receiveMessages(s, p)
		return
	}
	c.appendBody(s, p)
	fault, faulty := c.messageFault(s, s.body)
	switch {
	case faulty:
		c.fail(s, fault)
	case s.missing() < 0:
		c.fail(s, tooManyMessages)
	default:
		c.credit(s)
	}
}

// open has the handler begin a conversation.
func (c *Conn) open(s *stream) {
	var call Call
	if s.describe(&call, c.now); s.timed && call.Timeout <= 0 {
		c.fail(s, tooLate)
		return
	}
	conversation, status := c.handler.Open(&call)
	if conversation == nil {
		c.fail(s, status)
		return
	}
	s.later = conversation
	s.talk = &talk{Conversation: conversation, wants: true}
	if p, ok := conversation.(Pieces); ok {
		s.talk.pieces.Pieces, s.talk.wants = p, false
		if !c.block.end {
			c.creditPieces(s)
		}
	}
	if c.block.end {
		c.finish(s, nil)
	}
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
		c.receiveMessages(s, p)
		return
	}
	if s.body != nil {
		c.appendBody(s, p)
		p = s.body
	}
	s.state = streamWorking // nothing more of it may come
	fault, faulty := c.messageFault(s, p)
	switch missing := prefixBytes + messageBytes(p) - len(p); {
	case len(p) == 0:
		fault, faulty = noMessage, true
	case faulty:
	case missing > 0:
		fault, faulty = truncated, true
	case missing < 0:
		fault, faulty = tooManyMessages, true
	}
	if faulty {
		c.fail(s, fault)
		return
	}
	if c.send.waitingBytes > mostWaiting { // more than when the call began
		c.odd.refuse(c.receive.aware)
		c.reset(s, CodeRefusedStream)
		return
	}
	call := &c.call
	if s.describe(call, c.now); s.timed && call.Timeout <= 0 && !c.server.options.Methods[call.Method].Late {
		c.fail(s, tooLate)
		return
	}
	if call.Message = p[prefixBytes:]; p[0] == 0 {
		call.Encoding = ""
	}
	c.answer(s)
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
			s.talk = &talk{Conversation: conversation, ended: true}
		}
		c.dropBody(s)
	case status.Code != statusOK:
		c.fail(s, status)
	default:
		c.reply(s, reply)
	}
	call.Message, call.Fields = nil, nil
}
