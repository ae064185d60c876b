package resp

import "unsafe"

// A Kind is the type of a value. Its byte is that of the protocol.
type Kind byte

// The kinds.
const (
	Integer Kind = ':'
	Bulk    Kind = '$' // a string of any bytes
	Simple  Kind = '+' // a line, such as OK
	Failed  Kind = '-' // an error, such as NOSCRIPT
	Array   Kind = '*' // followed by its elements
	Nil     Kind = '_' // a null string or array
)

// A value is a reply, or an element of one. bits is the number; the number of elements; or the
// position of the text, its beginning in the upper and its end in the lower half.
type value struct {
	bits uint64
	kind Kind
}

// A Reply is the reply to one command: a value, or an array and its elements, which may be arrays.
// Values are numbered in the order of the protocol: the reply itself is 0, and the elements of an
// array follow it. A Reply reuses its memory.
type Reply struct {
	values []value
	text   []byte
	limits Limits
}

// Limits bound the memory of a reply. A caller should set them to the largest expected reply.
type Limits struct {
	Values int // the reply and all elements of arrays
	Bytes  int // total length of strings and lines; below 4 GiB
}

const (
	// keptValues and keptBytes bound the memory that a Reply keeps for its next use.
	keptValues = 4 << 10
	keptBytes  = 64 << 10
)

// Reset empties r, for a reply within the given limits.
func (r *Reply) Reset(limits Limits) {
	if cap(r.values) > keptValues {
		r.values = nil
	}
	if cap(r.text) > keptBytes {
		r.text = nil
	}
	r.values = r.values[:0]
	r.text = r.text[:0]
	r.limits = limits
}

// Len returns the number of values.
func (r *Reply) Len() int { return len(r.values) }

// Kind returns the kind of value i.
func (r *Reply) Kind(i int) Kind { return r.values[i].kind }

// Int returns the number of value i, the number of its elements if it is an array, and 0 otherwise.
func (r *Reply) Int(i int) int64 {
	if v := &r.values[i]; v.kind == Integer || v.kind == Array {
		return int64(v.bits) //nolint:gosec // converted from int64 in Decode
	}
	return 0
}

// Text returns the text of value i, "" if it has none. It is valid until r is reset.
func (r *Reply) Text(i int) string {
	v := &r.values[i]
	if v.kind != Bulk && v.kind != Simple && v.kind != Failed {
		return ""
	}
	b := r.text[v.bits>>32 : uint32(v.bits)]          //nolint:gosec // the lower half
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // b is not written until r is reset
}

// After returns the number of the value after value i and its elements.
func (r *Reply) After(i int) int {
	for left := 1; left > 0; left-- {
		if r.values[i].kind == Array {
			left += int(r.values[i].bits) //nolint:gosec // at most Limits.Values
		}
		i++
	}
	return i
}
