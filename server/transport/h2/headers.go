package h2

import (
	"strconv"
	"strings"
	"time"
)

type requestHeaders struct {
	kinds [nameConnection]byte // the meaning of each known header
	seen  uint16               // one bit for each known header

	size       int    // size of the header list (6.5.2)
	path       []byte // kept if it is unknown; the memory is reused
	encoding   []byte // grpc-encoding; the memory is reused
	timeout    time.Duration
	badRequest string // reason for an HTTP status of 400, or ""
	hosts      int
	length     int64  // content-length, or -1
	malformed  string // reason (8.1.1), or ""
	regular    bool   // a header other than a pseudo-header was received
	trailers   bool   // these are trailers

	kept *kept // nil if none
}

// kept are the headers that the method keeps.
type kept struct {
	fields []Field
	size   int // size in the header list
	bytes  int // bytes of memory
}

// reset clears h, but keeps its memory.
func (h *requestHeaders) reset(trailers bool) {
	*h = requestHeaders{path: h.path[:0], encoding: h.encoding[:0], length: -1, trailers: trailers}
}

func (h *requestHeaders) has(name headerName) bool { return h.seen>>name&1 == 1 }

// maxKeptText limits a path or encoding that is kept for an error message.
const maxKeptText = 1 << 10

func (h *requestHeaders) add(f *field) {
	h.size += f.size
	if f.tooLong || f.size == 0 || h.malformed != "" {
		return
	}
	switch {
	case f.meaning == valueInvalid:
		h.malformed = "a header with a byte that no value may have"
		return
	case f.headerName == nameOther:
		h.regular = true
		return
	case f.headerName >= nameConnection:
		h.malformed = [...]string{
			"a header of HTTP/1 connections", "an unknown pseudo-header", "a header with a byte that no name may have",
		}[f.headerName-nameConnection]
		return
	case f.headerName <= nameAuthority:
		switch {
		case h.regular:
			h.malformed = "a pseudo-header after other headers"
		case h.trailers:
			h.malformed = "a pseudo-header in trailers"
		case h.has(f.headerName):
			h.malformed = "a pseudo-header twice"
		}
	default:
		h.regular = true
	}
	if f.headerName == nameContentType && h.has(nameContentType) {
		f.meaning = min(f.meaning, h.kinds[nameContentType]) // as grpc-go: one valid value is enough
	}
	h.seen |= 1 << f.headerName
	h.kinds[f.headerName] = f.meaning
	h.readValue(f)
}

// readValue handles values that are not completely represented by their meaning.
func (h *requestHeaders) readValue(f *field) {
	switch f.headerName { //nolint:exhaustive // the meaning of the others is complete
	case namePath:
		if f.meaning == 0 {
			h.path = append(h.path[:0], f.value[:min(len(f.value), maxKeptText)]...)
		}
	case nameEncoding:
		h.encoding = append(h.encoding[:0], f.value[:min(len(f.value), maxKeptText)]...)
	case nameTE:
		if f.meaning == teOther {
			h.malformed = "te other than trailers"
		}
	case nameHost:
		h.hosts++
	case nameTimeout:
		if h.timeout = parseTimeout(f.value); h.timeout == invalidTimeout {
			h.badRequest = "malformed grpc-timeout"
		}
	case nameBinary:
		if f.meaning == binaryInvalid {
			h.badRequest = "malformed binary metadata"
		}
	case nameContentLength:
		n, ok := parseLength(f.value)
		if !ok || h.length >= 0 && h.length != n {
			h.malformed = "an invalid content-length"
		}
		h.length = n
	}
}

// keepField keeps an added field, if the method wants it. The method is known because
// pseudo-headers come first.
//
// A call whose headers are too large keeps none, since it will be rejected: with the header table,
// one byte of a block can stand for a field of 4 KiB.
func (h *requestHeaders) keepField(f *field, known *knownHeaders, path byte, limit int) {
	switch {
	case h.size > limit:
		h.kept = nil
		return
	case f.tooLong, f.size == 0, h.malformed != "", !h.regular, !known.keepHeader[path](f.name, f.size):
		return
	}
	if h.kept == nil {
		h.kept = new(kept)
	}
	k := h.kept
	if k.size += f.size; k.size > known.maxKeptBytes[path] {
		k.size -= f.size // a later one may be smaller
		return
	}
	k.bytes -= cap(k.fields) * fieldBytes
	k.fields = append(k.fields, Field{string(f.name), string(f.value)})
	k.bytes += cap(k.fields)*fieldBytes + len(f.name) + len(f.value)
}

// validate returns why the request is malformed, or "".
func (h *requestHeaders) validate() string {
	switch {
	case h.malformed != "" || h.trailers:
	case !h.has(nameMethod), !h.has(nameScheme), !h.has(namePath):
		h.malformed = "no :method, :scheme or :path" // 8.3.1
	case h.kinds[namePath] == pathRelative:
		h.malformed = "a :path without a slash at its beginning"
	}
	return h.malformed
}

const invalidTimeout time.Duration = -1

// parseTimeout parses a grpc-timeout: at most 8 digits, and a unit.
func parseTimeout(value []byte) time.Duration {
	if len(value) < 2 || len(value) > 9 {
		return invalidTimeout
	}
	n, err := strconv.ParseUint(string(value[:len(value)-1]), 10, 32)
	i := strings.IndexByte("HMSmun", value[len(value)-1])
	if i < 0 || err != nil {
		return invalidTimeout
	}
	unit := [...]time.Duration{
		time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond, time.Nanosecond,
	}[i]
	const longest = 100 * 365 * 24 * time.Hour
	if time.Duration(n) > longest/unit {
		return longest
	}
	return time.Duration(n) * unit
}

// maxLengthDigits is the number of digits of 2^53.
const maxLengthDigits = 16

// parseLength parses a content-length. It rejects a long value without reading it, because one byte
// can refer to it in the header table.
func parseLength(value []byte) (n int64, ok bool) {
	if len(value) > maxLengthDigits {
		return 0, false
	}
	length, err := strconv.ParseUint(string(value), 10, 53)
	return int64(length), err == nil
}
