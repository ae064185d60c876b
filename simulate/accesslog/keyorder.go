package accesslog

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// keyOrder remembers which keys came in the last line, which usually come again.
type keyOrder struct {
	last []keySeen
	// next counts the keys of this line.
	next int
}

type keySeen struct {
	// text is as it stands in the line, with quotes and colon.
	text []byte
	// of is the object that the key stood in, and is the key itself: nil if nobody wants it.
	of, is *node
}

// take takes a key of an object, and its colon. It returns nil if nobody wants the value.
func (o *keyOrder) take(s *jsonview.Scanner, of *node) (*node, error) {
	s.Next()
	i := o.next
	o.next++
	if i < len(o.last) {
		if seen := &o.last[i]; seen.of == of && bytes.HasPrefix(s.Bytes[s.Offset:], seen.text) {
			s.Offset += len(seen.text)
			return seen.is, nil
		}
	}
	from := s.Offset
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	is := of.below[string(key)]
	if is != nil && is.slot < 0 && !is.within && !is.isText {
		is = nil
	}
	if i < mostRemembered {
		for len(o.last) <= i {
			o.last = append(o.last, keySeen{})
		}
		o.last[i] = keySeen{bytes.Clone(s.Bytes[from:s.Offset]), of, is}
	}
	return is, nil
}

// mostRemembered is how many keys of a line are remembered.
const mostRemembered = 256
