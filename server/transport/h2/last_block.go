package h2

import "bytes"

// lastBlock is the last header block that a client may send again: Envoy's calls differ in nothing. One
// that is equal, with the same table, says the same, and costs a comparison instead of decoding.
type lastBlock struct {
	bytes   []byte
	table   uint64 // its version
	headers requestHeaders
}

// maxLastBlock is how long such a block may be. Envoy's have some 60 bytes.
const maxLastBlock = 256

// lookup reports whether p is the last block again. If so, h is what it says.
func (s *lastBlock) lookup(p []byte, t *headerTable, h *requestHeaders) bool {
	if len(s.bytes) == 0 || s.table != t.version || !bytes.Equal(p, s.bytes) {
		return false
	}
	path, encoding := h.path, h.encoding
	*h = s.headers
	h.path, h.encoding = path, encoding
	return true
}

// store keeps the block p, which a table of the version from has decoded to h, if it says the same again.
// One that changes the table does not, and one of which bytes are kept is left out.
func (s *lastBlock) store(p []byte, from uint64, t *headerTable, h *requestHeaders) {
	if from != t.version || len(p) > maxLastBlock || h.malformed != "" || h.trailers || h.kept != nil || len(h.path)+len(h.encoding) > 0 {
		return
	}
	s.bytes, s.table, s.headers = append(s.bytes[:0], p...), from, *h
	s.headers.path, s.headers.encoding = nil, nil
}
