package descriptors

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// ParseEntries parses a descriptor written as k=v,k2=v2. A backslash escapes the next character.
func ParseEntries(text string) ([]Entry, error) {
	var entries []Entry
	var key, part []byte
	inValue := false
	endEntry := func() error {
		switch {
		case !inValue && len(part) > 0:
			return fmt.Errorf("descriptor %q: the entry %q has no =: write k=v,k2=v2, or k= for an empty value", text,
				part)
		case len(key) == 0:
			return fmt.Errorf("descriptor %q has an entry without a key: write k=v,k2=v2", text)
		}
		entries = append(entries, Entry{Key: key, Value: part})
		key = nil
		part = nil
		inValue = false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			part = append(part, text[i])
		case c == '=' && !inValue:
			key = part
			part = []byte{}
			inValue = true
		case c == ',':
			if err := endEntry(); err != nil {
				return nil, err
			}
		default:
			part = append(part, c)
		}
	}
	if text == "" {
		return nil, nil // a descriptor without entries
	}
	if err := endEntry(); err != nil {
		return nil, err
	}
	return entries, nil
}

// ParseOverride parses the limit of a request, written as 5/hour or 100/10minute. Overrides do not
// support weeks.
func ParseOverride(text string) (Override, error) {
	wrong := fmt.Errorf("limit %q: write 5/hour or 100/10minute, the unit one of second, minute, hour, day, month, year", text)
	number, window, ok := strings.Cut(text, "/")
	if !ok {
		return Override{}, wrong
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return Override{}, wrong
	}
	o := Override{RequestsPerUnit: uint32(n)}
	unit := strings.TrimLeft(window, "0123456789")
	if digits := window[:len(window)-len(unit)]; digits != "" {
		m, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || m == 0 {
			return Override{}, wrong
		}
		o.UnitMultiplier = uint32(m)
	}
	u, ok := rules.UnitNamed(unit)
	if !ok || u == rules.Week {
		return Override{}, wrong
	}
	o.Unit = int32(u)
	return o, nil
}
