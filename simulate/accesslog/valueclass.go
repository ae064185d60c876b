package accesslog

import (
	"bytes"

	"github.com/sluice-ratelimit/sluice/internal/jsonview"
)

// valueClass is what the values of an operator are made of.
type valueClass uint8

const (
	// anyText is anything that a client may have sent.
	anyText valueClass = iota
	// word has neither spaces nor quotes.
	word
	// integer is a number, or - for none, for which HAProxy writes -1.
	integer
	// jsonObject is JSON.
	jsonObject
	// escaped has no quote but behind a backslash.
	escaped
	// untilLiteral is anything that ends where what stands behind it comes first.
	untilLiteral
	// addressList are words with a comma and a space between them.
	addressList
	// host is tight, and has no slash.
	host
	// cell has no tab.
	cell
	// paddedWord is tight, after leading spaces that are not part of it.
	paddedWord
	// quoted is escaped and in quotes, or a dash.
	quoted
)

// fits reports whether a value can be the operator's.
func (op *operator) fits(value []byte) bool {
	switch op.class {
	case word, paddedWord:
		return bytes.IndexByte(value, ' ') < 0 && bytes.IndexByte(value, '"') < 0
	case cell:
		return bytes.IndexByte(value, '\t') < 0
	case host:
		return bytes.IndexByte(value, ' ') < 0 && bytes.IndexByte(value, '/') < 0
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

// objectLength returns the length of the JSON that b begins with, 0 if it begins with
// none.
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
