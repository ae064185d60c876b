package h2

import (
	"bytes"
	"time"
)

// receiveHeaders handles HEADERS (6.2).
func (c *Conn) receiveHeaders(f *frame) error {
	b := &c.block
	if f.stream&1 == 0 {
		return &ConnError{CodeProtocol, "HEADERS on a stream with an even number"} // 5.1.1
	}
	fragment, err := f.unpad()
	if err != nil {
		return err
	}
	b.kind = blockRequest
	b.end = f.has(flagEndStream)
	if f.stream <= c.lastStream {
		switch found, client := c.closedStreams.find(f.stream); {
		case c.find(f.stream) != nil:
			b.kind = blockTrailers
		case found && client:
			return &ConnError{CodeStreamClosed, "HEADERS on a closed stream"} // 5.1
		case found, c.closedStreams.openByClient > 0: // it may be an older closed stream that is not remembered
			b.kind = blockClosedStream
		default:
			return &ConnError{CodeProtocol, "HEADERS with a stream number that does not increase"} // 5.1.1
		}
	} else {
		c.lastStream = f.stream
		c.glitches.opened++
		c.glitches.add(glitchesPerCall)
		if f.stream > maxStreamNumber {
			c.out = c.Drain(c.out, c.now, "stream numbers run out")
		}
		if c.newest.id != 0 {
			c.storeStream(&c.newest)
		}
	}
	b.stream = f.stream
	b.length = 0
	b.since = c.now
	b.headers.reset(b.kind != blockRequest)
	fields := f.payload
	if f.has(flagPadded) {
		fields = fields[1:]
	}
	if f.has(flagPriority) && dependsOnItself(fields, f.stream) {
		b.headers.malformed = "a stream that depends on itself"
	}
	c.decoder.beginBlock()
	return c.receiveFragment(fragment, f.has(flagEndHeaders))
}

// IncompleteHeaderBlock returns when the current header block began, if there is one. No other
// frame may come before its end, so a client that does not finish it in time must be disconnected.
func (c *Conn) IncompleteHeaderBlock() (start time.Duration, incomplete bool) {
	return c.block.since, c.block.stream != 0
}

// receiveContinuation handles CONTINUATION (6.10).
func (c *Conn) receiveContinuation(f *frame) error {
	end := f.has(flagEndHeaders)
	switch {
	case c.block.stream == 0:
		return &ConnError{CodeProtocol, "CONTINUATION outside a header block"}
	case len(f.payload) == 0 && !end:
		return &ConnError{CodeEnhanceYourCalm, "an empty CONTINUATION"}
	case len(f.payload) < smallFrame && !end:
		c.glitches.left--
	}
	return c.receiveFragment(f.payload, end)
}

// maxBlockBytes is the size of the largest header block. A block is decoded while it arrives, so it
// costs time but no memory. Envoy can be configured to send up to 8 MiB (max_request_headers_kb).
// With a smaller limit, an end client could close the connection and with it the calls of all
// others.
const maxBlockBytes = 16 << 20

// receiveFragment decodes a fragment of a block. Everything is decoded, even if the call is
// rejected, and only an incomplete field is buffered.
func (c *Conn) receiveFragment(p []byte, end bool) error {
	b := &c.block
	if b.length += len(p); b.length > maxBlockBytes {
		return &ConnError{CodeEnhanceYourCalm, "a header block of more than 16 MiB"}
	}
	cacheable := end && b.length == len(p) && b.kind == blockRequest && b.headers.malformed == ""
	if cacheable && c.lastBlock.lookup(p, &c.decoder.table, &b.headers) {
		return c.finishBlock()
	}
	block := p
	version := c.decoder.table.version
	if b.skip > 0 { // the rest of a string of the last fragment
		n := min(b.skip, len(p))
		b.skip -= n
		p = p[n:]
	}
	if len(b.partialField) > 0 {
		b.partialField = append(b.partialField, p...)
		p = b.partialField
	}
	for len(p) > 0 {
		f, n, err := c.decoder.nextField(p)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		b.headers.add(&f)
		if path := b.headers.kinds[namePath]; c.server.known.keepHeader[path] != nil {
			b.headers.keepField(&f, c.server.known, path, c.server.options.Limits.MaxHeaderBytes)
		}
		if n > len(p) {
			b.skip = n - len(p)
			n = len(p)
		}
		p = p[n:]
	}
	if cap(c.decoder.scratch) > maxScratchBytes {
		c.decoder.scratch = nil
	}
	if !end {
		c.keepPartialField(p)
		return nil
	}
	if len(p) > 0 || b.skip > 0 || !c.decoder.atFieldBoundary() {
		return compressionError("a header block that ends inside a field")
	}
	c.keepPartialField(nil)
	if cacheable {
		c.lastBlock.store(block, version, &c.decoder.table, &b.headers)
	}
	return c.finishBlock()
}

func (c *Conn) finishBlock() error {
	id := c.block.stream
	c.block.stream = 0
	c.processBlock(id)
	c.block.headers.kept = nil // owned by the stream
	return nil
}

// maxScratchBytes is how much memory for strings a connection keeps between frames.
const maxScratchBytes = 1 << 10

// keepPartialField buffers an incomplete field until the next frame of the block.
func (c *Conn) keepPartialField(p []byte) {
	b := &c.block
	if len(p) == 0 {
		b.partialField = nil
	} else {
		b.partialField = append(b.partialField[:0], p...) // p may be a part of partialField
	}
	c.receive.buffered += cap(b.partialField) - b.counted
	b.counted = cap(b.partialField)
}

// processBlock handles a complete header block.
func (c *Conn) processBlock(id uint32) {
	h := &c.block.headers
	malformed := h.validate()
	switch c.block.kind {
	case blockClosedStream:
		c.receiveClosedEnd()
		return
	case blockTrailers:
		s := c.find(id)
		switch {
		case s == nil: // we have closed it since the block began
			c.receiveClosedEnd()
		case s.state != streamOpen:
			c.resetForError(id, CodeStreamClosed) // 5.1, half-closed (remote)
		case malformed != "" || !c.block.end:
			c.resetForError(id, CodeProtocol) // 8.1
		default:
			c.finishRequest(s, nil)
		}
		return
	case blockRequest:
	}
	if malformed != "" {
		c.glitches.left -= 1 + glitchesPerCall
		c.refuseStream(id, CodeProtocol)
		return
	}
	if c.drain.ignores(id) {
		c.closedStreams.add(id, c.block.end)
		return
	}
	if c.OpenStreams() >= c.server.options.Limits.MaxStreams || c.send.queuedBytes > maxQueuedBytes {
		c.glitches.chargeRefusal(c.receive.settingsAcked)
		c.refuseStream(id, CodeRefusedStream)
		return
	}
	c.startRequest(id)
}

func (c *Conn) refuseStream(id uint32, code Code) {
	c.closedStreams.add(id, c.block.end)
	c.out = appendRSTStream(c.out, id, code)
}

// lastBlock caches the last decoded header block: Envoy's calls usually have equal ones. An equal
// block, decoded with the same table, has the same result, so comparing it replaces decoding.
type lastBlock struct {
	bytes   []byte
	table   uint64 // version of the header table
	headers requestHeaders
}

// maxLastBlock is the size of the largest cached block. Envoy's have some 60 bytes.
const maxLastBlock = 256

// lookup reports whether p is the cached block, and if so sets h to its headers.
func (s *lastBlock) lookup(p []byte, t *headerTable, h *requestHeaders) bool {
	if len(s.bytes) == 0 || s.table != t.version || !bytes.Equal(p, s.bytes) {
		return false
	}
	path := h.path // empty, with memory to reuse, like encoding
	encoding := h.encoding
	*h = s.headers
	h.path = path
	h.encoding = encoding
	return true
}

// store caches the block p. from is the table's version before p was decoded. A block is not cached
// if it changes the table, or if the call keeps some of its headers.
func (s *lastBlock) store(p []byte, from uint64, t *headerTable, h *requestHeaders) {
	if from != t.version || len(p) > maxLastBlock || h.malformed != "" || h.trailers || h.kept != nil ||
		len(h.path)+len(h.encoding) > 0 {
		return
	}
	s.bytes = append(s.bytes[:0], p...)
	s.table = from
	s.headers = *h
	s.headers.path = nil
	s.headers.encoding = nil
}
