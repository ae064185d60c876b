package answer

import (
	"encoding/binary"
	"math"
	"slices"
)

// object is a rule's metadata with its fields sorted, so that equal requests get equal bytes.
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
		o.values = append(o.values, sorted(m[name]))
	}
	return o
}

func sorted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return newObject(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = sorted(v[i])
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

// The functions below write google.protobuf.Struct and Value. A Struct's field is a map entry
// (field 1) of a key (1) and a Value (2), a list is a message of Values (1). The fields of a Value
// are null (1), number (2), string (3), bool (4), Struct (5) and list (6).

// member appends a field of a Struct. value appends the inside of its Value.
func member[N string | []byte](b []byte, name N, value func([]byte) []byte) []byte {
	return message(b, 1, func(b []byte) []byte { return message(appendString(b, 1, name), 2, value) })
}

func memberNumber[N string | []byte](b []byte, name N, v float64) []byte {
	return member(b, name, func(b []byte) []byte { return appendNumber(b, v) })
}

func memberText[T string | []byte](b []byte, name string, v T) []byte {
	return member(b, name, func(b []byte) []byte { return appendString(b, 3, v) })
}

func appendNumber(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, 2<<3|1), math.Float64bits(v))
}

// appendList appends a list of n Values. element appends the inside of one.
func appendList(b []byte, n int, element func(b []byte, i int) []byte) []byte {
	return message(b, 6, func(b []byte) []byte {
		for i := range n {
			b = message(b, 1, func(b []byte) []byte { return element(b, i) })
		}
		return b
	})
}

// appendAny appends the inside of a Value.
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

// appendMerged appends the union of objects as a Struct Value. The value of a name is that of the
// first object that has it. If that is an object, it is merged with the others of the same name.
func appendMerged(b []byte, objects []*object) []byte {
	return message(b, 5, func(b []byte) []byte {
		for i, o := range objects {
			for at, name := range o.names {
				if slices.ContainsFunc(objects[:i], func(earlier *object) bool { return earlier.has(name) }) {
					continue
				}
				b = member(b, name, func(b []byte) []byte {
					if inner, ok := o.values[at].(*object); ok {
						return appendMerged(b, sameName(inner, name, objects[i+1:]))
					}
					return appendAny(b, o.values[at])
				})
			}
		}
		return b
	})
}

func sameName(first *object, name string, rest []*object) []*object {
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
