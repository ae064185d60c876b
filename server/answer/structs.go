package answer

import (
	"encoding/binary"
	"math"
	"slices"
)

// object is a rule's metadata with sorted fields, so that equal requests get equal bytes.
type object struct {
	names  []string
	values []any // *object, []any, string, float64, bool, nil
}

func newObject(m map[string]any) *object {
	o := &object{}
	for name := range m {
		o.names = append(o.names, name)
	}
	slices.Sort(o.names)
	for _, name := range o.names {
		o.values = append(o.values, sortFields(m[name]))
	}
	return o
}

func sortFields(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return newObject(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = sortFields(v[i])
		}
		return list
	default:
		return v
	}
}

func (o *object) has(name string) bool {
	_, ok := slices.BinarySearch(o.names, name)
	return ok
}

// The functions below encode google.protobuf.Struct and Value. A field of a Struct is a map entry
// (field 1) with a key (1) and a Value (2). A list is a message of Values (1). The fields of a
// Value are null (1), number (2), string (3), bool (4), Struct (5) and list (6).

// appendMember appends a field of a Struct. value appends the content of the field's Value.
func appendMember[N string | []byte](b []byte, name N, value func([]byte) []byte) []byte {
	return appendMessage(b, 1, func(b []byte) []byte { return appendMessage(appendString(b, 1, name), 2, value) })
}

func appendNumberMember[N string | []byte](b []byte, name N, v float64) []byte {
	return appendMember(b, name, func(b []byte) []byte { return appendNumber(b, v) })
}

func appendTextMember[T string | []byte](b []byte, name string, v T) []byte {
	return appendMember(b, name, func(b []byte) []byte { return appendString(b, 3, v) })
}

func appendNumber(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, 2<<3|1), math.Float64bits(v))
}

// appendList appends a list of n Values. element appends the content of the i-th one.
func appendList(b []byte, n int, element func(b []byte, i int) []byte) []byte {
	return appendMessage(b, 6, func(b []byte) []byte {
		for i := range n {
			b = appendMessage(b, 1, func(b []byte) []byte { return element(b, i) })
		}
		return b
	})
}

// appendAny appends the content of a Value.
func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendString(b, 3, v)
	case float64:
		return appendNumber(b, v)
	case bool:
		if v {
			return append(b, 4<<3, 1)
		}
		return append(b, 4<<3, 0)
	case *object:
		return appendMerged(b, []*object{v})
	case []any:
		return appendList(b, len(v), func(b []byte, i int) []byte { return appendAny(b, v[i]) })
	default: // nil
		return append(b, 1<<3, 0)
	}
}

// appendMerged appends the union of objects as a Struct Value. For a field that several objects
// have, the first one's value is used. If it is an object, the objects in the same field of the
// others are merged into it.
func appendMerged(b []byte, objects []*object) []byte {
	return appendMessage(b, 5, func(b []byte) []byte {
		for i, o := range objects {
			for at, name := range o.names {
				if slices.ContainsFunc(objects[:i], func(earlier *object) bool { return earlier.has(name) }) {
					continue
				}
				b = appendMember(b, name, func(b []byte) []byte {
					if inner, ok := o.values[at].(*object); ok {
						return appendMerged(b, objectsNamed(inner, name, objects[i+1:]))
					}
					return appendAny(b, o.values[at])
				})
			}
		}
		return b
	})
}

func objectsNamed(first *object, name string, rest []*object) []*object {
	all := []*object{first}
	for _, o := range rest {
		if i, ok := slices.BinarySearch(o.names, name); ok {
			if inner, ok := o.values[i].(*object); ok {
				all = append(all, inner)
			}
		}
	}
	return all
}
