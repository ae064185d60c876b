package resp

import "unsafe"

// A Kind says what a [Value] is. Its bytes are those of the protocol.
type Kind byte

// The kinds.
const (
	Integer Kind = ':'
	Bulk    Kind = '$' // a string of any bytes
	Simple  Kind = '+' // a line, such as OK
	Failed  Kind = '-' // a line that says what went wrong, such as NOSCRIPT
	Array   Kind = '*' // its elements follow
	Nil     Kind = '_' // no string, or no array
)

// A value is a reply, or an element of one. bits are the number, how many elements there are, or where
// the text lies: its beginning, and its end in the lower half.
type value struct {
	bits uint64
	kind Kind
}

// A Reply is what a server says to one command: a value, or an array and its elements, which may be
// arrays themselves. Their numbers are in the order in which they came: the reply itself is 0, and the
// elements of an array come behind it, each with its own. A Reply keeps its memory when it is used again.
type Reply struct {
	values []value
	text   []byte
	limits Limits
}

// Limits are what a reply may take at most. They are for memory, so what a command may be answered by
// should be far below.
type Limits struct {
	Values int // the reply and all elements of arrays
	Bytes  int // of all strings and lines together; below 4 GiB
}

const (
	// keptValues and keptBytes are what a Reply keeps of its memory from one use to the next.
	keptValues = 4 << 10
	keptBytes  = 64 << 10
)

// Reset empties r, for a reply that takes most at most.
func (r *Reply) Reset(most Limits) {
	if cap(r.values) > keptValues {
		r.values = nil
	}
	if cap(r.text) > keptBytes {
		r.text = nil
	}
	r.values, r.text, r.limits = r.values[:0], r.text[:0], most
}

// Len returns how many values r has.
func (r *Reply) Len() int { return len(r.values) }

// Kind returns what the value i is.
func (r *Reply) Kind(i int) Kind { return r.values[i].kind }

// Int returns the number that value i is, how many elements it has if it is an array, and 0 otherwise.
func (r *Reply) Int(i int) int64 {
	if v := &r.values[i]; v.kind == Integer || v.kind == Array {
		return int64(v.bits) //nolint:gosec // the other way round in Decode
	}
	return 0
}

// Text returns the text of value i, empty if it is none. It is r's until that is reset.
func (r *Reply) Text(i int) string {
	v := &r.values[i]
	if v.kind != Bulk && v.kind != Simple && v.kind != Failed {
		return ""
	}
	b := r.text[v.bits>>32 : uint32(v.bits)]          //nolint:gosec // the lower half
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // b is not written until r is reset
}

// After returns the number of the value after value i and all that is in it.
func (r *Reply) After(i int) int {
	for left := 1; left > 0; left-- {
		if r.values[i].kind == Array {
			left += int(r.values[i].bits) //nolint:gosec // at most Limits.Values
		}
		i++
	}
	return i
}
