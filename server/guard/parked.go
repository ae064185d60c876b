package guard

// parked counts the memory of one connection's requests that are not whole yet, as
// grpc-go holds them: buffers of a few sizes for DATA, decoded fields for headers.
type parked struct {
	data    map[uint32]request // of streams whose requests are on their way
	block   int                // bytes of the header block that has not ended
	bytes   int                // in all
	early   int                // bytes of requests whose turn has not come
	maxList int                // the most that a decoded header list may hold
}

// request is a request that is on its way.
type request struct {
	bytes int
	turn  bool // its turn has come; see windows
}

// addData counts a DATA frame, and reports whether the stream's request is now seen
// to be one that may not fit its first window. Buffers have at least the size of what
// is in them, so this comes before the window is full.
func (p *parked) addData(stream uint32, length int) (large bool) {
	if p.data == nil {
		p.data = make(map[uint32]request)
	}
	r, n := p.data[stream], bufferBytes(length)
	large = r.bytes < firstWindow/2 && r.bytes+n >= firstWindow/2
	r.bytes += n
	p.data[stream] = r
	p.bytes += n
	if !r.turn {
		p.early += n
	}
	return large
}

// beginTurn says that a stream's turn has come.
func (p *parked) beginTurn(stream uint32) {
	if r, ok := p.data[stream]; ok && !r.turn {
		p.early -= r.bytes
		r.turn = true
		p.data[stream] = r
	}
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

// addBlock counts a part of a header block that goes on. endBlock forgets it.
func (p *parked) addBlock(length int) {
	p.bytes -= p.blockBytes()
	p.block += length
	p.bytes += p.blockBytes()
}

func (p *parked) endBlock() {
	p.bytes -= p.blockBytes()
	p.block = 0
}

// blockBytes is what a header block of p.block bytes may take when decoded. An
// index of one byte becomes a field of 40 bytes, in a slice that is at most half
// empty, until the list is full, where each field counts 32 bytes.
func (p *parked) blockBytes() int {
	const field = 2 * 40
	return min(p.block*field, p.maxList*field/32)
}

// bufferBytes is the size of the buffer in which grpc-go reads a DATA frame: that
// of its default pool, of which a frame never needs the largest.
func bufferBytes(length int) int {
	for _, size := range [...]int{256, 4 << 10, 16 << 10, 32 << 10} {
		if length <= size {
			return size
		}
	}
	return length
}
