package h2

import "strconv"

// Invalid authorities: see gRPC proposal A41.
var (
	errManyHosts   = Status{statusInternal, "more than one host header"}
	errNoAuthority = Status{statusInternal, "no host or :authority header present"}
)

// startRequest opens the stream of the block.
func (c *Conn) startRequest(id uint32) {
	h := &c.block.headers
	c.newest = stream{
		id: id, state: streamOpen, path: h.kinds[namePath],
		receiveWindow: c.receive.initial, sendWindow: c.send.initial,
		length: h.length, requestStart: c.now,
		kept: h.kept,
	}
	s := &c.newest
	if c.block.end {
		s.state = streamWorking
	}
	limits := &c.server.options.Limits
	// The order is that of grpc-go, since several conditions may hold.
	switch {
	case h.hosts > 1:
		c.sendErrorWith(s, errManyHosts, status400, "")
		return
	case !h.has(nameContentType), h.kinds[nameContentType] == contentNotGRPC:
		s.httpStatus = 415
	case h.badRequest != "":
		c.sendErrorWith(s, Status{statusInternal, h.badRequest}, status400, "")
		return
	case h.hosts == 0 && !h.has(nameAuthority):
		c.sendErrorWith(s, errNoAuthority, status400, "")
		return
	case h.kinds[nameMethod] == methodOther:
		s.httpStatus = 405
	case h.size > limits.MaxHeaderBytes:
		c.sendError(s, c.limitExceeded(s, LimitHeaderBytes, h.size))
		return
	case h.has(nameTimeout) && h.timeout == 0:
		c.sendError(s, errDeadlineExceeded)
		return
	case h.kinds[nameContentType] == contentNotProto:
		c.sendError(s, errOtherCodec)
		return
	case s.path == 0:
		c.sendError(s, c.handler.UnknownMethod(string(h.path)))
		return
	case h.has(nameEncoding) && len(h.encoding) > 0 && string(h.encoding) != identityEncoding:
		fault := Status{
			statusUnimplemented, "grpc: Decompressor is not installed for grpc-encoding " + strconv.Quote(string(h.encoding)),
		}
		c.sendErrorWith(s, fault, status200, identityEncoding)
		return
	}
	if h.has(nameTimeout) {
		s.timed = true
		s.deadline = c.now + h.timeout
	}
	if s.httpStatus == 0 && c.server.options.Methods[s.path-1].ClientStreams {
		c.openStreaming(c.storeStream(s))
		return
	}
	if c.block.end {
		c.finishRequest(s, nil)
	}
}

// receiveData handles DATA (6.1).
func (c *Conn) receiveData(f *frame) error {
	if c.idle(f.stream) {
		return &ConnError{CodeProtocol, "DATA on an idle stream"}
	}
	if err := c.receiveFlowControlled(len(f.payload)); err != nil {
		return err
	}
	p, err := f.unpad()
	if err != nil {
		return err
	}
	end := f.has(flagEndStream)
	if len(p) < smallFrame && !end {
		c.glitches.left--
	}
	s := c.find(f.stream)
	switch {
	case s == nil:
		return c.receiveClosedData(f.stream, end)
	case s.state != streamOpen:
		c.resetForError(s.id, CodeStreamClosed) // 5.1, half-closed (remote)
		return nil
	}
	// Data that is dropped needs no stream window; that of the connection is sufficient.
	if s.receiveWindow -= int64(len(f.payload)); s.receiveWindow < 0 && len(f.payload) > 0 && s.httpStatus == 0 {
		return &ConnError{CodeFlowControl, "DATA exceeds the stream's window"} // 6.9.1
	}
	s.received += int64(len(p))
	if s.length >= 0 && s.received > s.length {
		c.resetForError(s.id, CodeProtocol) // 8.1.1
		return nil
	}
	switch {
	case end:
		c.finishRequest(s, p)
	default:
		c.bufferData(c.storeStream(s), p)
	}
	return nil
}

// receiveClosedData handles DATA of a closed stream. If we closed it, the client may not have known
// that.
func (c *Conn) receiveClosedData(id uint32, end bool) error {
	if _, client := c.closedStreams.find(id); client {
		return &ConnError{CodeStreamClosed, "DATA on a closed stream"} // 5.1
	}
	if end {
		c.receiveClosedEnd()
	}
	return nil
}

// receiveClosedEnd handles END_STREAM on a stream that we have closed. Each such stream allows one;
// a client that did not know our SETTINGS can end thousands at once.
func (c *Conn) receiveClosedEnd() {
	if c.closedStreams.openByClient > 0 {
		c.closedStreams.openByClient--
	} else {
		c.glitches.left--
	}
}

// bufferData buffers data of an incomplete request.
func (c *Conn) bufferData(s *stream, p []byte) {
	if s.httpStatus != 0 {
		if s.received > streamWindow/2 {
			c.sendHTTPError(s) // the client may be waiting for a window
		}
		return
	}
	if s.streaming != nil {
		c.receiveMessages(s, p)
		return
	}
	c.appendBody(s, p)
	fault, faulty := c.messageFault(s, s.body)
	switch {
	case faulty:
		c.sendError(s, fault)
	case s.missingBytes() < 0:
		c.sendError(s, errTooManyMessages)
	default:
		c.extendWindow(s)
	}
}

// openStreaming starts a StreamingCall.
func (c *Conn) openStreaming(s *stream) {
	var call Call
	if s.fillCall(&call, c.now); s.timed && call.Timeout <= 0 {
		c.sendError(s, errDeadlineExceeded)
		return
	}
	streamingCall, status := c.handler.Open(&call)
	if streamingCall == nil {
		c.sendError(s, status)
		return
	}
	s.pending = streamingCall
	s.streaming = &streaming{StreamingCall: streamingCall, wantsMessage: true}
	if p, ok := streamingCall.(ChunkedCall); ok {
		s.streaming.chunks.ChunkedCall = p
		s.streaming.wantsMessage = false
		if !c.block.end {
			c.extendChunkedWindow(s)
		}
	}
	if c.block.end {
		c.finishRequest(s, nil)
	}
}

// finishRequest handles the end of a request, whose last part is p.
func (c *Conn) finishRequest(s *stream, p []byte) {
	if s.length >= 0 && s.received != s.length {
		c.resetForError(s.id, CodeProtocol) // 8.1.1
		return
	}
	if s.httpStatus != 0 {
		s.state = streamWorking
		c.sendHTTPError(s)
		return
	}
	if s.streaming != nil {
		s.state = streamWorking
		c.receiveMessages(s, p)
		return
	}
	if s.body != nil {
		c.appendBody(s, p)
		p = s.body
	}
	s.state = streamWorking // no further data is allowed
	fault, faulty := c.messageFault(s, p)
	switch missing := prefixBytes + messageBytes(p) - len(p); {
	case len(p) == 0:
		fault = errNoMessage
		faulty = true
	case faulty:
	case missing > 0:
		fault = errTruncated
		faulty = true
	case missing < 0:
		fault = errTooManyMessages
		faulty = true
	}
	if faulty {
		c.sendError(s, fault)
		return
	}
	if c.send.queuedBytes > maxQueuedBytes { // more than when the call began
		c.glitches.chargeRefusal(c.receive.settingsAcked)
		c.reset(s, CodeRefusedStream)
		return
	}
	call := &c.call
	if s.fillCall(call, c.now); s.timed && call.Timeout <= 0 && !c.server.options.Methods[call.Method].AllowExpired {
		c.sendError(s, errDeadlineExceeded)
		return
	}
	call.Message = p[prefixBytes:]
	c.callHandler(s)
}

// callHandler calls the handler, and sends the answer if there is one.
func (c *Conn) callHandler(s *stream) {
	call := &c.call
	reply, status, later := c.handler.Call(call)
	switch {
	case later != nil:
		s = c.storeStream(s)
		s.pending = later
		if streamingCall, ok := later.(StreamingCall); ok {
			s.streaming = &streaming{StreamingCall: streamingCall, requestDone: true}
		}
		c.dropBody(s)
	case status.Code != statusOK:
		c.sendError(s, status)
	default:
		c.sendReply(s, reply)
	}
	call.Message = nil
	call.Fields = nil
}
