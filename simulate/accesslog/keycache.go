package accesslog

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// keyCache remembers which keys came in the last line, which usually come again.
type keyCache struct {
	keys []cachedKey
	// next counts the keys of this line.
	next int
}

type cachedKey struct {
	// text is as it stands in the line, with quotes and colon.
	text []byte
	// of is the object that the key stood in, and is the key itself: nil if nobody wants it.
	parent, child *node
}

// readKey takes a key of an object, and its colon. It returns nil if nobody wants the value.
func (o *keyCache) readKey(s *jsonview.Scanner, of *node) (*node, error) {
	s.Next()
	i := o.next
	o.next++
	if i < len(o.keys) {
		if seen := &o.keys[i]; seen.parent == of && bytes.HasPrefix(s.Bytes[s.Offset:], seen.text) {
			s.Offset += len(seen.text)
			return seen.child, nil
		}
	}
	from := s.Offset
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	is := of.children[string(key)]
	if is != nil && is.slot < 0 && !is.wantedBelow && !is.embedded {
		is = nil
	}
	if i < maxCachedKeys {
		for len(o.keys) <= i {
			o.keys = append(o.keys, cachedKey{})
		}
		o.keys[i] = cachedKey{bytes.Clone(s.Bytes[from:s.Offset]), of, is}
	}
	return is, nil
}

// maxCachedKeys is how many keys of a line are remembered.
const maxCachedKeys = 256
