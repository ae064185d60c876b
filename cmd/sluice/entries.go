package main

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// parseEntries reads a descriptor written as k=v,k2=v2. A backslash makes the
// next character part of a key or value; a key without = has the value "".
func parseEntries(text string) ([]descriptors.Entry, error) {
	var entries []descriptors.Entry
	var key, part []byte
	inValue := false
	end := func() error {
		if inValue {
			entries = append(entries, descriptors.Entry{Key: key, Value: part})
		} else {
			entries = append(entries, descriptors.Entry{Key: part, Value: []byte{}})
		}
		if len(entries[len(entries)-1].Key) == 0 {
			return fmt.Errorf("descriptor %q has an entry without a key: write k=v,k2=v2", text)
		}
		key, part, inValue = nil, nil, false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			part = append(part, text[i])
		case c == '=' && !inValue:
			key, part, inValue = part, []byte{}, true
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			part = append(part, c)
		}
	}
	if text == "" {
		return nil, nil // a descriptor may have no entries
	}
	if err := end(); err != nil {
		return nil, err
	}
	return entries, nil
}
