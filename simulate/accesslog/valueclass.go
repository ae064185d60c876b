package accesslog

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// valueClass restricts the values of an operator.
type valueClass uint8

const (
	// anyText is anything that a client may send.
	anyText valueClass = iota
	// word has neither spaces nor quotes.
	word
	// integer is a number, or "-" if there is none. HAProxy writes -1 instead of "-".
	integer
	jsonObject
	// escaped has quotes only after a backslash.
	escaped
	// untilLiteral ends at the first occurrence of the next literal.
	untilLiteral
	// addressList is words separated by a comma and a space.
	addressList
)

func (op *operator) fits(value []byte) bool {
	switch op.class {
	case word:
		return bytes.IndexByte(value, ' ') < 0 && bytes.IndexByte(value, '"') < 0
	case addressList:
		for {
			i := bytes.IndexByte(value, ' ')
			if i < 0 {
				return true
			}
			if i == 0 || value[i-1] != ',' {
				return false
			}
			value = value[i+1:]
		}
	case integer:
		return isNumber(value)
	case escaped:
		return quoteEnd(value) < 0
	case jsonObject:
		return isAbsent(value) || objectLength(value) == len(value)
	default:
		return true
	}
}

// objectLength returns the length of the JSON object at the start of b, or 0.
func objectLength(b []byte) int {
	if len(b) == 0 || b[0] != '{' {
		return 0
	}
	s := jsonview.Scanner{Bytes: b}
	if s.Skip() != nil {
		return 0
	}
	return s.Offset
}

func isNumber(b []byte) bool {
	for _, c := range bytes.TrimPrefix(b, []byte("-")) {
		if c-'0' > 9 {
			return false
		}
	}
	return len(b) > 0
}
