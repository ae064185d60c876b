package h2

import (
	"encoding/binary"
	"strconv"
)

// Header blocks of replies are constant bytes: static table and literals without indexing (RFC 7541,
// section 6.2.2). Indexing them would have state, and measured no gain at Envoy or here.
const (
	status200   = "\x88"
	status400   = "\x8c"
	contentGRPC = "\x0f\x10\x10application/grpc" // content-type is entry 31
	contentText = "\x0f\x10\x0atext/plain"
	grpcStatus  = "\x00\x0bgrpc-status"

	replyHeaders  = status200 + contentGRPC
	replyTrailers = grpcStatus + "\x010"
)

// Reply appends the reply of a call that was to be answered later. It does nothing if nobody waits for
// it any more.
func (c *Conn) Reply(out []byte, id uint32, message []byte) []byte {
	return c.withStream(out, c.takePending(id), func(s *stream) { c.sendReply(s, message) })
}

// Fail appends the error of a call that was to be answered later. It does nothing if nobody waits for
// it any more.
func (c *Conn) Fail(out []byte, id uint32, status Status) []byte {
	return c.withStream(out, c.takePending(id), func(s *stream) { c.sendError(s, status) })
}

// withStream has act append to out, for a stream that is not nil.
func (c *Conn) withStream(out []byte, s *stream, act func(s *stream)) []byte {
	if s == nil {
		return out
	}
	c.out = out
	act(s)
	out, c.out = c.out, nil
	return out
}

// takePending returns a stream that is to be answered later, for its answer, or nil.
func (c *Conn) takePending(id uint32) *stream {
	s := c.streams[id]
	if s == nil || s.pending == nil {
		return nil
	}
	s.pending = nil
	return s
}

// sendReply answers a call: headers, message, trailers.
func (c *Conn) sendReply(s *stream, message []byte) {
	c.out = appendFrameHeader(c.out, len(replyHeaders), frameHeaders, flagEndHeaders, s.id)
	c.out = append(c.out, replyHeaders...)
	var prefix [prefixBytes]byte                                 // the flag says that it is not compressed
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(message))) //nolint:gosec // a reply has no 4 GiB
	if n := prefixBytes + len(message); n <= maxFrameBytes && int64(n) <= min(c.send.window, s.sendWindow) && len(c.send.queue) == 0 {
		c.send.window -= int64(n)
		c.out = appendFrameHeader(c.out, n, frameData, 0, s.id)
		c.out = append(append(c.out, prefix[:]...), message...)
		c.sendTrailers(s)
		return
	}
	c.queueReply(s, append(append(make([]byte, 0, prefixBytes+len(message)), prefix[:]...), message...))
}

// queueReply sends the body of a reply as its windows allow.
func (c *Conn) queueReply(s *stream, body []byte) {
	s = c.storeStream(s)
	s.unsent, s.unsentSince = body, c.now
	c.send.queue = append(c.send.queue, s)
	c.send.queuedBytes += cap(body)
	c.sendQueued()
}

// sendQueued sends what the windows allow of replies that wait, the oldest first.
func (c *Conn) sendQueued() {
	for i := 0; i < len(c.send.queue) && c.send.window > 0; {
		s := c.send.queue[i]
		for s.sent < len(s.unsent) {
			n := int(min(int64(len(s.unsent)-s.sent), c.send.window, s.sendWindow, maxFrameBytes))
			if n <= 0 {
				break // an empty frame would count against us
			}
			flags := byte(0)
			if s.httpStatus != 0 && s.sent+n == len(s.unsent) {
				flags = flagEndStream
			}
			c.send.window -= int64(n)
			s.sendWindow -= int64(n)
			c.pings.strikes = 0 // gRPC's clients measure the bandwidth with pings
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

// sendTrailers appends the trailers of a reply.
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

// finishReply ends a stream whose answer is whole. A client that has not ended its request is told to
// (8.1).
func (c *Conn) finishReply(s *stream) {
	// Not before: a call whose reply waits may still be reset by the client's fault.
	c.glitches.add(glitchesPerAnswer)
	c.pings.answered = true
	clientEnded := s.state != streamOpen
	if !clientEnded {
		c.out = appendRSTStream(c.out, s.id, CodeNo)
	}
	c.closeStream(s, clientEnded)
}

// sendError answers a call with an error, in headers alone: gRPC over HTTP2, "Trailers-Only".
func (c *Conn) sendError(s *stream, status Status) { c.sendErrorWith(s, status, status200, "") }

// sendErrorWith is fail with a field of the HTTP status, and with a grpc-accept-encoding unless that is
// empty.
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

// appendStatus appends the fields of a status.
func appendStatus(b []byte, status Status) []byte {
	b = appendString(append(b, grpcStatus...), strconv.Itoa(int(status.Code)))
	if status.Message != "" {
		b = appendString(append(b, 0), "grpc-message")
		b = appendMessage(b, status.Message)
	}
	return b
}

// sendHTTPError answers a request that is no gRPC, once. The answer may wait for a window, and more of the
// request come meanwhile.
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

// appendString appends a string literal: RFC 7541, section 5.2. It must be shorter than 127 bytes.
func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...) //nolint:gosec // as above
}

// maxMessageText is the longest grpc-message, percent-encoded. It fits a frame.
const maxMessageText = 8 << 10

// appendMessage appends a grpc-message, percent-encoded as gRPC over HTTP2 says, and cut if it is
// long.
func appendMessage(b []byte, s string) []byte {
	encoded := make([]byte, 0, len(s)+16)
	for _, r := range s { // what is no UTF-8 becomes U+FFFD, since clients want text
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

// appendInteger appends the length of a string: RFC 7541, section 5.1, with a prefix of 7 bits.
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
