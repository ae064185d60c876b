package h2

import (
	"strconv"
	"strings"
	"time"
)

// requestHeaders is what the header fields of a request say, and whether they may be there.
type requestHeaders struct {
	kinds [nameConnection]byte // the meaning of each header that came
	seen  uint16               // one bit for each header that came

	size       int    // of the list (6.5.2)
	path       []byte // an unknown one; it is kept as long as the call
	encoding   []byte // grpc-encoding; likewise
	timeout    time.Duration
	badRequest string // why the call is answered with 400, or ""
	hosts      int
	length     int64  // content-length, -1 without
	malformed  string // why (8.1.1), or ""
	regular    bool   // a header that is no pseudo-header has come
	trailers   bool   // these are a request's trailers

	kept *kept // nil if none is
}

// kept are the headers of a call that its method wants.
type kept struct {
	fields []Field
	size   int // as they count in the list of headers
	bytes  int // of memory
}

// reset forgets all but the memory.
func (h *requestHeaders) reset(trailers bool) {
	*h = requestHeaders{path: h.path[:0], encoding: h.encoding[:0], length: -1, trailers: trailers}
}

func (h *requestHeaders) has(name headerName) bool { return h.seen>>name&1 == 1 }

// maxKeptText is how much is kept of a path or an encoding: enough for an error.
const maxKeptText = 1 << 10

// add takes in a field.
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
		f.meaning = min(f.meaning, h.kinds[nameContentType]) // as grpc-go: one that is valid is enough
	}
	h.seen |= 1 << f.headerName
	h.kinds[f.headerName] = f.meaning
	h.readValue(f)
}

// readValue takes in the value of a header that its meaning does not say all of.
func (h *requestHeaders) readValue(f *field) {
	switch f.headerName { //nolint:exhaustive // of the others the meaning says all
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

// keepField keeps a field that has been added, if the method wants it. Pseudo-headers come first, so the
// method is known.
//
// A call with more headers than it may have keeps none, since it is not answered: a byte of a block
// may stand for a field as large as the table.
func (h *requestHeaders) keepField(f *field, known *knownHeaders, path byte, most int) {
	switch {
	case h.size > most:
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

// invalidTimeout is a grpc-timeout that cannot be read.
const invalidTimeout time.Duration = -1

// parseTimeout reads a grpc-timeout: at most 8 digits, and a unit.
func parseTimeout(value []byte) time.Duration {
	if len(value) < 2 || len(value) > 9 {
		return invalidTimeout
	}
	n, err := strconv.ParseUint(string(value[:len(value)-1]), 10, 32)
	i := strings.IndexByte("HMSmun", value[len(value)-1])
	if i < 0 || err != nil {
		return invalidTimeout
	}
	unit := [...]time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond, time.Nanosecond}[i]
	const longest = 100 * 365 * 24 * time.Hour
	if time.Duration(n) > longest/unit {
		return longest
	}
	return time.Duration(n) * unit
}

// parseLength reads a content-length.
func parseLength(value []byte) (n int64, ok bool) {
	length, err := strconv.ParseUint(string(value), 10, 53)
	return int64(length), err == nil
}
