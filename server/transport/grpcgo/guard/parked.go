package guard

// parked counts the memory of one connection's requests that are on their way, as grpc-go holds
// it: buffers of a few sizes for DATA, decoded fields for headers.
type parked struct {
	data    map[uint32]request // by stream
	block   int                // bytes of the header block that has not ended
	bytes   int                // in all
	early   int                // bytes of requests whose turn has not come
	maxList int                // the most that a decoded header list may hold
}

// request is a request that is on its way.
type request struct {
	bytes    int
	received int  // bytes, with those of messages that were read
	unread   int  // bytes of DATA of messages that were not read
	turn     bool // its turn has come; see windows
}

// addData counts a DATA frame. It reports, once for each stream, that the request may not fit
// its first window: its buffers have half the window's size. Buffers are at least as large as
// what is in them, so this happens before the window is full. Later, a client with a full window
// could wait for an update that nobody asks for.
func (p *parked) addData(stream uint32, length int) (large bool) {
	if p.data == nil {
		p.data = make(map[uint32]request)
	}
	r, n := p.data[stream], bufferBytes(length)
	large = r.received < firstWindow/2 && r.received+n >= firstWindow/2
	r.bytes, r.received, r.unread = r.bytes+n, r.received+n, r.unread+length
	p.data[stream] = r
	p.bytes += n
	if !r.turn {
		p.early += n
	}
	return large
}

// beginTurn records that a stream's turn has come. It reports whether the stream holds memory.
func (p *parked) beginTurn(stream uint32) bool {
	r, ok := p.data[stream]
	if ok && !r.turn {
		p.early -= r.bytes
		r.turn = true
		p.data[stream] = r
	}
	return r.bytes > 0
}

// read forgets a message of a stream, of the given length with its prefix, that was read: its part of the buffers.
func (p *parked) read(stream uint32, length int) {
	r, ok := p.data[stream]
	if !ok || r.unread == 0 {
		return
	}
	length = min(length, r.unread)
	n := r.bytes * length / r.unread
	r.bytes, r.unread = r.bytes-n, r.unread-length
	p.bytes -= n
	if !r.turn {
		p.early -= n
	}
	p.data[stream] = r
}

// endStream forgets what a stream held.
func (p *parked) endStream(stream uint32) {
	if len(p.data) == 0 {
		return
	}
	r := p.data[stream]
	p.bytes -= r.bytes
	if !r.turn {
		p.early -= r.bytes
	}
	delete(p.data, stream)
}

// addBlock counts a part of a header block that has not ended. endBlock forgets the block.
func (p *parked) addBlock(length int) {
	p.bytes -= p.blockBytes()
	p.block += length
	p.bytes += p.blockBytes()
}

func (p *parked) endBlock() {
	p.bytes -= p.blockBytes()
	p.block = 0
}

// blockBytes is what a header block of p.block bytes may take when it is decoded. An index of one
// byte becomes a field of 40 bytes, in a slice that is at most half empty. The list is full at
// p.maxList, where each field counts 32 bytes.
func (p *parked) blockBytes() int {
	const field = 2 * 40
	return min(p.block*field, p.maxList*field/32)
}

// bufferBytes is the size of the buffer in which grpc-go reads a DATA frame. The sizes are those
// of its default pool. A frame never needs the largest.
func bufferBytes(length int) int {
	for _, size := range [...]int{256, 4 << 10, 16 << 10, 32 << 10} {
		if length <= size {
			return size
		}
	}
	return length
}
