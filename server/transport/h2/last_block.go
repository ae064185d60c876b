package h2

import "bytes"

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
	path, encoding := h.path, h.encoding
	*h = s.headers
	h.path, h.encoding = path, encoding
	return true
}

// store caches the block p. from is the table's version before p was decoded. A block is not cached
// if it changes the table, or if the call keeps some of its headers.
func (s *lastBlock) store(p []byte, from uint64, t *headerTable, h *requestHeaders) {
	if from != t.version || len(p) > maxLastBlock || h.malformed != "" || h.trailers || h.kept != nil || len(h.path)+len(h.encoding) > 0 {
		return
	}
	s.bytes, s.table, s.headers = append(s.bytes[:0], p...), from, *h
	s.headers.path, s.headers.encoding = nil, nil
}
