package h2

import "bytes"

// sameBlock is the last header block that a client may send again: Envoy's calls differ in nothing. One
// that is equal, with the same table, says the same, and costs a comparison instead of decoding.
type sameBlock struct {
	bytes []byte
	table uint64 // its version
	head  head
}

// mostSame is how long such a block may be. Envoy's have some 60 bytes.
const mostSame = 256

// recall reports whether p is the last block again. If so, h is what it says.
func (s *sameBlock) recall(p []byte, t *headerTable, h *head) bool {
	if len(s.bytes) == 0 || s.table != t.version || !bytes.Equal(p, s.bytes) {
		return false
	}
	path, encoding := h.path, h.encoding
	*h = s.head
	h.path, h.encoding = path, encoding
	return true
}

// keep keeps the block p, which a table of the version from has decoded to h, if it says the same again.
// One that changes the table does not, and one of which bytes are kept is left out.
func (s *sameBlock) keep(p []byte, from uint64, t *headerTable, h *head) {
	if from != t.version || len(p) > mostSame || h.malformed != "" || h.trailers || h.kept != nil || len(h.path)+len(h.encoding) > 0 {
		return
	}
	s.bytes, s.table, s.head = append(s.bytes[:0], p...), from, *h
	s.head.path, s.head.encoding = nil, nil
}
