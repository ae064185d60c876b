package resp

import (
	"bytes"
	"fmt"
	"strconv"
)

const (
	// maxDepth is the maximum nesting of arrays. CLUSTER SLOTS has four levels.
	maxDepth = 8
	// maxLine is the maximum length of a line: a number, or the text of an error.
	maxLine = 4 << 10
)

// A ProtocolError describes bytes that are not a reply. The rest of the stream is meaningless.
type ProtocolError string

// Error returns the text.
func (e ProtocolError) Error() string { return string(e) }

func malformed(format string, a ...any) error { return ProtocolError(fmt.Sprintf(format, a...)) }

// A Decoder decodes replies from a stream, whose bytes may come in pieces of any length. It
// allocates no memory for announced lengths. It must not be used concurrently. The zero value is at
// the beginning of a reply.
type Decoder struct {
	line  []byte // the beginning of a line that has not ended
	bulk  int    // remaining bytes of a string and its line end
	start int    // where in the reply's text that string begins
	depth int
	open  [maxDepth]int // remaining elements of each array
}

// Decode decodes bytes of p until r is complete, and returns their number. If done is false, all
// bytes were decoded, and r needs more. After an error the stream must not be used.
func (d *Decoder) Decode(p []byte, r *Reply) (n int, done bool, err error) {
	for n < len(p) {
		read := d.readLine
		if d.bulk > 0 {
			read = d.readString
		}
		took, complete, err := read(p[n:], r)
		n += took
		if err != nil || complete && d.finishElement() {
			return n, err == nil, err
		}
	}
	return n, false, nil
}

// finishElement closes arrays that are complete, and reports whether the reply is complete.
func (d *Decoder) finishElement() bool {
	for d.depth > 0 {
		if d.open[d.depth-1]--; d.open[d.depth-1] > 0 {
			return false
		}
		d.depth--
	}
	return true
}

// readLine reads a line, and reports whether an element ends with it.
func (d *Decoder) readLine(p []byte, r *Reply) (n int, done bool, err error) {
	end := bytes.IndexByte(p, '\n')
	if n = end + 1; end < 0 {
		n = len(p)
	}
	line := p[:n]
	if len(d.line)+n > maxLine {
		return n, false, malformed("a line of more than %d bytes, %s", maxLine, quote(append(d.line, line...)))
	}
	if end < 0 || len(d.line) > 0 {
		d.line = append(d.line, line...)
		if end < 0 {
			return n, false, nil
		}
		line = d.line
	}
	d.line = d.line[:0]
	done, err = d.parseLine(line, r)
	return n, done, err
}

// parseLine parses a complete line.
func (d *Decoder) parseLine(line []byte, r *Reply) (done bool, err error) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return false, malformed("%s, which is not a reply", quote(line))
	}
	if len(r.values) >= r.limits.Values {
		return false, malformed("a reply with more than %d values", r.limits.Values)
	}
	kind := Kind(line[0])
	rest := line[1 : len(line)-2]
	switch kind {
	case Simple, Failed:
		start := len(r.text)
		// A top-level error is bounded by maxLine alone.
		if start+len(rest) > r.limits.Bytes && (kind == Simple || d.depth > 0) {
			return false, malformed("a reply of more than %d bytes", r.limits.Bytes)
		}
		r.text = append(r.text, rest...)
		r.add(kind, start)
		return true, nil
	case Integer, Bulk, Array:
		number, err := strconv.ParseInt(string(rest), 10, 64)
		if err != nil {
			return false, malformed("%s, which is not a number", quote(line))
		}
		return d.parseNumber(kind, number, r)
	default:
		return false, malformed("%s, which is not a reply", quote(line))
	}
}

// parseNumber handles a line with a number.
func (d *Decoder) parseNumber(kind Kind, number int64, r *Reply) (done bool, err error) {
	switch {
	case kind == Integer:
		r.values = append(r.values, value{uint64(number), Integer}) //nolint:gosec // Int turns it back
		return true, nil
	case number == -1:
		r.values = append(r.values, value{0, Nil})
		return true, nil
	case number < 0:
		return false, malformed("%c%d, which is not a length", kind, number)
	case kind == Bulk:
		if number > int64(r.limits.Bytes-len(r.text)) {
			return false, malformed("a string of %d bytes in a reply that may have %d", number, r.limits.Bytes)
		}
		d.bulk = int(number) + 2
		d.start = len(r.text)
		return false, nil
	case number > int64(r.limits.Values-len(r.values)-1):
		return false, malformed("an array of %d elements in a reply that may have %d", number, r.limits.Values)
	case d.depth == maxDepth && number > 0:
		return false, malformed("arrays nested more than %d deep", maxDepth)
	}
	r.values = append(r.values, value{uint64(number), Array})
	if number == 0 {
		return true, nil
	}
	d.open[d.depth] = int(number)
	d.depth++
	return false, nil
}

// readString reads bytes of a string and of the line end after it.
func (d *Decoder) readString(p []byte, r *Reply) (n int, done bool, err error) {
	if text := min(len(p), d.bulk-2); text > 0 {
		r.text = append(r.text, p[:text]...)
		n = text
		d.bulk -= text
	}
	for ; n < len(p) && d.bulk > 0; n++ {
		if d.bulk--; p[n] != "\n\r"[d.bulk] {
			return n, false,
				malformed("%s after a string of %d bytes, want a line end", quote(p[n:]), len(r.text)-d.start)
		}
	}
	if d.bulk > 0 {
		return n, false, nil
	}
	r.add(Bulk, d.start)
	return n, true, nil
}

// add appends a value whose text begins at start.
func (r *Reply) add(kind Kind, start int) {
	r.values = append(r.values, value{uint64(start)<<32 | uint64(len(r.text)), kind}) //nolint:gosec // below 4 GiB
}

// quote quotes the beginning of b.
func quote(b []byte) string {
	const maxQuoted = 40
	if len(b) > maxQuoted {
		return strconv.QuoteToASCII(string(b[:maxQuoted])) + "..."
	}
	return strconv.QuoteToASCII(string(b))
}
