package accesslog

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// keyCache remembers the keys of the last line, which usually occur in the same order in the next.
type keyCache struct {
	keys []cachedKey
	// next is the index of the next key of this line.
	next int
}

type cachedKey struct {
	// text is the encoded key with its quotes and the colon.
	text []byte
	// parent is the object that contains the key. child is the key's node, or nil if it is not
	// selected.
	parent, child *node
}

// readKey consumes a key of an object and the colon. It returns nil if the value is not selected.
func (o *keyCache) readKey(s *jsonview.Scanner, parent *node) (*node, error) {
	s.Next()
	i := o.next
	o.next++
	if i < len(o.keys) {
		if seen := &o.keys[i]; seen.parent == parent && bytes.HasPrefix(s.Bytes[s.Offset:], seen.text) {
			s.Offset += len(seen.text)
			return seen.child, nil
		}
	}
	from := s.Offset
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	child := parent.children[string(key)]
	if child != nil && child.slot < 0 && !child.wantedBelow {
		child = nil
	}
	if i < maxCachedKeys {
		for len(o.keys) <= i {
			o.keys = append(o.keys, cachedKey{})
		}
		o.keys[i] = cachedKey{bytes.Clone(s.Bytes[from:s.Offset]), parent, child}
	}
	return child, nil
}

// maxCachedKeys limits the remembered keys of a line.
const maxCachedKeys = 256
