package h2

import "time"

// receiveHeaders begins a header block (6.2).
func (c *Conn) receiveHeaders(f *frame) error {
	b := &c.block
	if f.stream&1 == 0 {
		return &ConnError{CodeProtocol, "HEADERS on a stream that is not a client's"} // 5.1.1
	}
	fragment, err := f.unpad()
	if err != nil {
		return err
	}
	b.kind, b.end = blockRequest, f.has(flagEndStream)
	if f.stream <= c.last {
		switch found, client := c.ended.find(f.stream); {
		case c.find(f.stream) != nil:
			b.kind = blockTrailers
		case found && client:
			return &ConnError{CodeStreamClosed, "HEADERS on a stream that has ended"} // 5.1
		case found, c.ended.late > 0: // of those that have ended, only the last are remembered
			b.kind = blockLate
		default:
			return &ConnError{CodeProtocol, "HEADERS on a stream with a lower number than the last"} // 5.1.1
		}
	} else {
		c.last = f.stream
		c.odd.begun++
		c.odd.give(oddActsPerCall)
		if f.stream > lastComfortable {
			c.out = c.Drain(c.out, c.now, "stream numbers run out")
		}
		if c.newest.id != 0 {
			c.settle(&c.newest)
		}
	}
	b.stream, b.bytes, b.since = f.stream, 0, c.now
	b.head.begin(b.kind != blockRequest)
	fields := f.payload
	if f.has(flagPadded) {
		fields = fields[1:]
	}
	if f.has(flagPriority) && dependsOnItself(fields, f.stream) {
		b.head.malformed = "a stream that depends on itself"
	}
	c.decoder.begin()
	return c.receiveFragment(fragment, f.has(flagEndHeaders))
}

// BlockSince returns when the header block began that has not ended, if there is one. Nothing else may
// come before its end, so a connection whose client does not send it is to be closed.
func (c *Conn) BlockSince() (since time.Duration, unfinished bool) {
	return c.block.since, c.block.stream != 0
}

// receiveContinuation takes in more of a header block (6.10).
func (c *Conn) receiveContinuation(f *frame) error {
	end := f.has(flagEndHeaders)
	switch {
	case c.block.stream == 0:
		return &ConnError{CodeProtocol, "CONTINUATION of no header block"}
	case len(f.payload) == 0 && !end:
		return &ConnError{CodeEnhanceYourCalm, "an empty CONTINUATION"}
	case len(f.payload) < smallFrame && !end:
		c.odd.left--
	}
	return c.receiveFragment(f.payload, end)
}

// mostBlock is the largest header block. It is decoded as it comes, so it takes no memory, only time.
// Envoys send at most 8 MiB (max_request_headers_kb), if so configured. With a smaller bound, one end
// client could end the connection and with it the calls of all others.
const mostBlock = 16 << 20

// receiveFragment decodes what has come of a block. All of it is decoded, even of a call that is
// rejected, and none of it is kept but for one field that is not whole.
func (c *Conn) receiveFragment(p []byte, end bool) error {
	b := &c.block
	if b.bytes += len(p); b.bytes > mostBlock {
		return &ConnError{CodeEnhanceYourCalm, "a header block of more than 16 MiB"}
	}
	whole := end && b.bytes == len(p) && b.kind == blockRequest && b.head.malformed == ""
	if whole && c.same.recall(p, &c.decoder.table, &b.head) {
		return c.endBlock()
	}
	block, version := p, c.decoder.table.version
	if b.skip > 0 {
		n := min(b.skip, len(p))
		b.skip -= n
		p = p[n:]
	}
	if len(b.tail) > 0 {
		b.tail = append(b.tail, p...)
		p = b.tail
	}
	for len(p) > 0 {
		f, n, err := c.decoder.next(p)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		b.head.add(&f)
		if path := b.head.kinds[namePath]; c.server.known.keeps[path] != nil {
			b.head.keep(&f, c.server.known, path, c.server.options.Limits.MaxHeaderBytes)
		}
		if n > len(p) {
			b.skip = n - len(p)
			n = len(p)
		}
		p = p[n:]
	}
	if cap(c.decoder.scratch) > mostScratch {
		c.decoder.scratch = nil
	}
	if !end {
		c.keepTail(p)
		return nil
	}
	if len(p) > 0 || b.skip > 0 || !c.decoder.between() {
		return compressionError("a header block that ends within a field")
	}
	c.keepTail(nil)
	if whole {
		c.same.keep(block, version, &c.decoder.table, &b.head)
	}
	return c.endBlock()
}

func (c *Conn) endBlock() error {
	id := c.block.stream
	c.block.stream = 0
	c.receiveBlock(id)
	c.block.head.kept = nil // it is the stream's
	return nil
}

// mostScratch is how much memory for strings a connection keeps between frames.
const mostScratch = 1 << 10

// keepTail keeps p for the next frame of the block. The memory is counted as parked.
func (c *Conn) keepTail(p []byte) {
	b := &c.block
	if len(p) == 0 {
		b.tail = nil
	} else {
		b.tail = append(b.tail[:0], p...) // p may be a view of it, further on
	}
	c.receive.parked += cap(b.tail) - b.parked
	b.parked = cap(b.tail)
}

// receiveBlock takes in a header block that is whole.
func (c *Conn) receiveBlock(id uint32) {
	h := &c.block.head
	malformed := h.end()
	switch c.block.kind {
	case blockLate:
		c.endLate()
		return
	case blockTrailers:
		s := c.find(id)
		switch {
		case s == nil: // we have ended it since the block began
			c.endLate()
		case s.state != streamOpen:
			c.resetFault(id, CodeStreamClosed) // 5.1, half-closed (remote)
		case malformed != "" || !c.block.end:
			c.resetFault(id, CodeProtocol) // 8.1
		default:
			c.finish(s, nil)
		}
		return
	case blockRequest:
	}
	if malformed != "" {
		c.odd.left -= 1 + oddActsPerCall
		c.refuse(id, CodeProtocol)
		return
	}
	if c.drain.ignores(id) {
		c.ended.add(id, c.block.end)
		return
	}
	if c.Open() >= c.server.options.Limits.MaxStreams || c.send.waitingBytes > mostWaiting {
		c.odd.refuse(c.receive.aware)
		c.refuse(id, CodeRefusedStream)
		return
	}
	c.begin(id)
}

// refuse resets a stream that has not begun.
func (c *Conn) refuse(id uint32, code Code) {
	c.ended.add(id, c.block.end)
	c.out = appendRSTStream(c.out, id, code)
}
