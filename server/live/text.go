package live

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// textBytes is the size of a stored descriptor. A longer one is cut.
const textBytes = 128

// ellipsis ends a descriptor that was cut.
const ellipsis = "…"

// text is an encoded descriptor, cut at [textBytes]. Each key and value is preceded by its length.
type text [textBytes]byte

func (t *text) write(entries []descriptors.Entry) {
	rest := t[:]
	for i := range entries {
		rest = putPart(putPart(rest, entries[i].Key), entries[i].Value)
	}
	if len(rest) > 0 {
		rest[0] = 0 // terminates the text: keys are not empty
	}
}

// DescriptorText returns a descriptor as text, cut at 128 bytes.
func DescriptorText(entries []descriptors.Entry) string {
	var t text
	t.write(entries)
	return t.String()
}

func putPart(to, s []byte) (rest []byte) {
	if len(to) == 0 {
		return nil
	}
	to[0] = byte(min(len(s), 255))
	return to[1+copy(to[1:], s):]
}

// String returns the descriptor in the form k=v,k2=v2 of [descriptors.ParseEntries], with
// backslashes where necessary, and with an ellipsis where it is cut.
func (t *text) String() string {
	var b strings.Builder
	key := true
	rest := t[:]
	for len(rest) > 0 && (!key || rest[0] > 0) {
		n := int(rest[0])
		part := rest[1:min(1+n, len(rest))]
		if key && b.Len() > 0 {
			b.WriteByte(',')
		}
		for _, c := range part {
			if c == ',' || c == '\\' || c == '=' && key {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		if len(part) < n {
			b.WriteString(ellipsis)
			break
		}
		if key {
			b.WriteByte('=')
		}
		key = !key
		rest = rest[1+n:]
	}
	return b.String()
}
