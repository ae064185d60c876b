package answer

import (
	"encoding/binary"
	"maps"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

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

// appendTree appends the content of a Value: a tree of a rule's metadata. Equal trees get equal bytes.
func appendTree(b []byte, tree map[string]any) []byte {
	o, err := structpb.NewStruct(tree)
	if err != nil {
		return b // not a tree of metadata
	}
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, structpb.NewStructValue(o))
	if err != nil {
		return b
	}
	return out
}

// mergeTrees returns the union of two trees, which stay unchanged, and whether second adds something; if
// not, the union is first. For a field that both have, the first one's value is used. If both values are
// trees, they are merged.
func mergeTrees(first, second map[string]any) (all map[string]any, adds bool) {
	all = first
	for name, value := range second {
		own, exists := first[name]
		one, isTree := own.(map[string]any)
		other, ok := value.(map[string]any)
		grows := !exists
		if isTree && ok {
			value, grows = mergeTrees(one, other)
		}
		if !grows {
			continue
		}
		if !adds {
			all = maps.Clone(first)
			adds = true
		}
		all[name] = value
	}
	return all, adds
}
