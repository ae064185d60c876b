package live

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// textBytes is how much of a descriptor is kept. It is what one entry costs where values are kept.
const textBytes = 128

// cutMark ends what is not there as a whole.
const cutMark = "…"

// text is a descriptor as it was sent, cut at [textBytes]: each key and value has its length before it.
type text [textBytes]byte

// write makes t a descriptor of these entries.
func (t *text) write(entries []descriptors.Entry) {
	rest := t[:]
	for i := range entries {
		rest = put(put(rest, entries[i].Key), entries[i].Value)
	}
	if len(rest) > 0 {
		rest[0] = 0 // no key is empty
	}
}

// DescriptorText returns a descriptor as people write it, cut at 128 bytes.
func DescriptorText(entries []descriptors.Entry) string {
	var t text
	t.write(entries)
	return t.String()
}

func put(to, s []byte) (rest []byte) {
	if len(to) == 0 {
		return nil
	}
	to[0] = byte(min(len(s), 255))
	return to[1+copy(to[1:], s):]
}

// String returns the descriptor as people write it, k=v,k2=v2, with the backslashes that
// [descriptors.ParseEntries] takes away, and an ellipsis where it is cut.
func (t *text) String() string {
	var b strings.Builder
	key, rest := true, t[:]
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
			b.WriteString(cutMark)
			break
		}
		if key {
			b.WriteByte('=')
		}
		key, rest = !key, rest[1+n:]
	}
	return b.String()
}
