package h2

import (
	"encoding/binary"
	"strconv"
)

// Header blocks of replies are constants: entries of the static table, and literals without
// indexing (RFC 7541, section 6.2.2). Indexing would need state, and showed no gain in Envoy or
// here.
const (
	status200   = "\x88"
	status400   = "\x8c"
	contentGRPC = "\x0f\x10\x10application/grpc" // content-type is entry 31
	contentText = "\x0f\x10\x0atext/plain"
	grpcStatus  = "\x00\x0bgrpc-status"

	replyHeaders  = status200 + contentGRPC
	replyTrailers = grpcStatus + "\x010"
)

// Reply appends the reply of a pending call. It does nothing if the call was reset.
func (c *Conn) Reply(out []byte, id uint32, message []byte) []byte {
	return c.withStream(out, c.takePending(id), func(s *stream) { c.sendReply(s, message) })
}

// Fail appends the error of a pending call. It does nothing if the call was reset.
func (c *Conn) Fail(out []byte, id uint32, status Status) []byte {
	return c.withStream(out, c.takePending(id), func(s *stream) { c.sendError(s, status) })
}

// withStream calls act, whose output is appended to out, unless s is nil.
func (c *Conn) withStream(out []byte, s *stream, act func(s *stream)) []byte {
	if s == nil {
		return out
	}
	c.out = out
	act(s)
	out = c.out
	c.out = nil
	return out
}

// takePending returns the stream of a pending call, which is no longer pending, or nil.
func (c *Conn) takePending(id uint32) *stream {
	s := c.streams[id]
	if s == nil || s.pending == nil {
		return nil
	}
	s.pending = nil
	return s
}

// sendReply answers a call: headers, message and trailers.
func (c *Conn) sendReply(s *stream, message []byte) {
	c.out = appendFrameHeader(c.out, len(replyHeaders), frameHeaders, flagEndHeaders, s.id)
	c.out = append(c.out, replyHeaders...)
	var prefix [prefixBytes]byte                                 // not compressed
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(message))) //nolint:gosec // a reply has no 4 GiB
	if n := prefixBytes + len(message); n <= maxFrameBytes && int64(n) <= min(c.send.window, s.sendWindow) &&
		len(c.send.queue) == 0 {
		c.send.window -= int64(n)
		c.out = appendFrameHeader(c.out, n, frameData, 0, s.id)
		c.out = append(append(c.out, prefix[:]...), message...)
		c.sendTrailers(s)
		return
	}
	c.queueReply(s, append(append(make([]byte, 0, prefixBytes+len(message)), prefix[:]...), message...))
}

// queueReply sends the body of a reply as far as its windows allow, and queues the rest.
func (c *Conn) queueReply(s *stream, body []byte) {
	s = c.storeStream(s)
	s.unsent = body
	s.unsentSince = c.now
	c.send.queue = append(c.send.queue, s)
	c.send.queuedBytes += cap(body)
	c.sendQueued()
}

// sendQueued sends queued replies as far as the windows allow, the oldest first.
func (c *Conn) sendQueued() {
	for i := 0; i < len(c.send.queue) && c.send.window > 0; {
		s := c.send.queue[i]
		for s.sent < len(s.unsent) {
			n := int(min(int64(len(s.unsent)-s.sent), c.send.window, s.sendWindow, maxFrameBytes))
			if n <= 0 {
				break // clients count empty frames
			}
			flags := byte(0)
			if s.httpStatus != 0 && s.sent+n == len(s.unsent) {
				flags = flagEndStream
			}
			c.send.window -= int64(n)
			s.sendWindow -= int64(n)
			c.pings.strikes = 0 // gRPC clients send PINGs to measure the bandwidth
			c.out = appendFrameHeader(c.out, n, frameData, flags, s.id)
			c.out = append(c.out, s.unsent[s.sent:s.sent+n]...)
			s.sent += n
			if s.streaming != nil && !s.streaming.finished {
				s.streaming.Sent(n)
			}
		}
		if s.sent < len(s.unsent) {
			i++
			continue
		}
		switch {
		case s.httpStatus != 0:
			c.finishReply(s)
		case s.streaming != nil && !s.streaming.finished: // another message may follow
			c.dequeueReply(s)
			c.sendMark(s)
		default:
			c.sendTrailers(s)
		}
	}
}

// sendTrailers sends the trailers of a reply, and closes the stream.
func (c *Conn) sendTrailers(s *stream) {
	if s.streaming != nil {
		c.appendBlock(s.id, s.streaming.trailers, true)
		c.finishReply(s)
		return
	}
	c.out = appendFrameHeader(c.out, len(replyTrailers), frameHeaders, flagEndHeaders|flagEndStream, s.id)
	c.out = append(c.out, replyTrailers...)
	c.finishReply(s)
}

// finishReply closes the stream of a complete reply. If the client has not ended its request,
// RST_STREAM with NO_ERROR asks it to stop (8.1).
func (c *Conn) finishReply(s *stream) {
	// Not earlier: a call whose reply is queued can still be reset because of the client's error.
	c.glitches.add(glitchesPerAnswer)
	c.pings.answered = true
	clientEnded := s.state != streamOpen
	if !clientEnded {
		c.out = appendRSTStream(c.out, s.id, CodeNo)
	}
	c.closeStream(s, clientEnded)
}

// sendError answers a call with an error, as headers only: gRPC over HTTP2, "Trailers-Only".
func (c *Conn) sendError(s *stream, status Status) { c.sendErrorWith(s, status, status200, "") }

// sendErrorWith is sendError with the encoded HTTP status, and with grpc-accept-encoding if accepts
// is not empty.
func (c *Conn) sendErrorWith(s *stream, status Status, http, accepts string) {
	c.out = appendFrameHeader(c.out, 0, frameHeaders, flagEndHeaders|flagEndStream, s.id)
	from := len(c.out)
	c.out = appendStatus(append(append(c.out, http...), contentGRPC...), status)
	if accepts != "" {
		c.out = appendString(append(c.out, 0), "grpc-accept-encoding")
		c.out = appendString(c.out, accepts)
	}
	binary.BigEndian.PutUint16(c.out[from-8:], uint16(len(c.out)-from)) //nolint:gosec // the text is cut
	c.finishReply(s)
}

func appendStatus(b []byte, status Status) []byte {
	b = appendString(append(b, grpcStatus...), strconv.Itoa(int(status.Code)))
	if status.Message != "" {
		b = appendString(append(b, 0), "grpc-message")
		b = appendMessage(b, status.Message)
	}
	return b
}

// sendHTTPError answers a request that is not gRPC, once: while the answer waits for a window, more
// of the request may be received.
func (c *Conn) sendHTTPError(s *stream) {
	if s.unsent != nil {
		return
	}
	text := "sluice speaks gRPC: the method must be POST\n"
	if s.httpStatus == 415 {
		text = "sluice speaks gRPC: the content type must be application/grpc\n"
	}
	block := appendString([]byte{8}, strconv.Itoa(int(s.httpStatus))) // :status is entry 8
	block = append(block, contentText...)
	c.out = appendFrameHeader(c.out, len(block), frameHeaders, flagEndHeaders, s.id)
	c.out = append(c.out, block...)
	c.queueReply(s, []byte(text))
}

// appendString appends a string literal (RFC 7541, section 5.2) of less than 127 bytes.
func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...) //nolint:gosec // as above
}

// maxMessageText is the length of the longest grpc-message, percent-encoded. It fits into a frame.
const maxMessageText = 8 << 10

// appendMessage appends a grpc-message, percent-encoded (gRPC over HTTP2) and truncated if it is
// long.
func appendMessage(b []byte, s string) []byte {
	encoded := make([]byte, 0, len(s)+16)
	for _, r := range s { // invalid UTF-8 becomes U+FFFD
		if len(encoded) >= maxMessageText {
			break
		}
		if r >= ' ' && r <= '~' && r != '%' {
			encoded = append(encoded, byte(r))
			continue
		}
		const hex = "0123456789ABCDEF"
		for _, c := range []byte(string(r)) {
			encoded = append(encoded, '%', hex[c>>4], hex[c&0xf])
		}
	}
	b = appendInteger(b, len(encoded))
	return append(b, encoded...)
}

// appendInteger appends an integer with a prefix of 7 bits: RFC 7541, section 5.1.
func appendInteger(b []byte, n int) []byte {
	const most = 1<<7 - 1
	if n < most {
		return append(b, byte(n)) //nolint:gosec // it is less than most
	}
	b = append(b, most)
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// appendBlock appends a header block in one or more frames.
func (c *Conn) appendBlock(stream uint32, block []byte, end bool) {
	kind := frameHeaders
	flags := byte(0)
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
		kind = frameContinuation
		flags = 0
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
