package accesslog

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/jsonview"
)

// keyOrder remembers which keys came in the last line, which usually come again.
type keyOrder struct {
	// keys are as they stand in the line, with quotes and colon.
	keys [][]byte
	// slots is parallel to keys: where the value goes, -1 for nowhere.
	slots []int
}

// take takes the i-th key and its colon, and returns where its value goes.
func (o *keyOrder) take(s *jsonview.Scanner, i int, slots map[string]int) (slot int, err error) {
	s.Next()
	if i < len(o.keys) && bytes.HasPrefix(s.Bytes[s.At:], o.keys[i]) {
		s.At += len(o.keys[i])
		return o.slots[i], nil
	}
	from := s.At
	key, _, err := s.Quoted()
	if err == nil {
		err = s.Take(':')
	}
	if err != nil {
		return -1, err
	}
	slot, wanted := slots[string(key)]
	if !wanted {
		slot = -1
	}
	if i < mostRemembered {
		for len(o.keys) <= i {
			o.keys, o.slots = append(o.keys, []byte{0}), append(o.slots, -1)
		}
		o.keys[i], o.slots[i] = bytes.Clone(s.Bytes[from:s.At]), slot
	}
	return slot, nil
}

// mostRemembered is how many keys of a line are remembered.
const mostRemembered = 256
