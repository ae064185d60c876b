package guard

// parked counts the memory of one connection's requests that are not whole yet, as
// grpc-go holds them: buffers of a few sizes for DATA, decoded fields for headers.
type parked struct {
	data    map[uint32]int // of each stream whose request is on its way
	block   int            // bytes of the header block that has not ended
	bytes   int            // in all
	maxList int            // the most that a decoded header list may hold
}

// addData counts a DATA frame, and reports whether the stream's request is now seen
// to be one that may not fit its first window. Buffers have at least the size of what
// is in them, so this comes before the window is full.
func (p *parked) addData(stream uint32, length int) (large bool) {
	if p.data == nil {
		p.data = make(map[uint32]int)
	}
	n := bufferBytes(length)
	before := p.data[stream]
	p.data[stream] = before + n
	p.bytes += n
	return before < firstWindow/2 && before+n >= firstWindow/2
}

// endStream forgets what a stream held.
func (p *parked) endStream(stream uint32) {
	if len(p.data) > 0 {
		p.bytes -= p.data[stream]
		delete(p.data, stream)
	}
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
