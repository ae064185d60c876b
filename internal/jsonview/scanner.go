package jsonview

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Scanner takes JSON text from the front. Its zero value with Bytes is ready to use, by one
// goroutine.
type Scanner struct {
	Bytes []byte
	// Offset is the place of what comes next. After an error it is about where the text is no
	// JSON.
	Offset int
	// HexEscapes takes \x22 in strings for the byte, as nginx writes quotes, and letters beyond ASCII,
	// unless it is told to write JSON.
	HexEscapes bool
	// MaxDepth is how deep the text may be nested; 0 for 64.
	MaxDepth int

	depth int
}

// ErrSyntax says that what comes next is not what was to be taken, or nested too deeply.
var ErrSyntax = errors.New("is no JSON")

// Next returns the next byte that is no space, 0 at the end.
func (s *Scanner) Next() byte {
	if s.Offset < len(s.Bytes) && s.Bytes[s.Offset] > ' ' {
		return s.Bytes[s.Offset]
	}
	return s.skipSpace()
}

// skipSpace is not a part of Next, so that the compiler copies that into its callers.
func (s *Scanner) skipSpace() byte {
	for ; s.Offset < len(s.Bytes); s.Offset++ {
		switch c := s.Bytes[s.Offset]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// Consume takes the byte c.
func (s *Scanner) Consume(c byte) error {
	if s.Next() != c {
		return ErrSyntax
	}
	s.Offset++
	return nil
}

// RawString takes a string and returns what stands between its quotes, and whether it has a
// backslash.
func (s *Scanner) RawString() (raw []byte, escaped bool, err error) {
	if s.Next() != '"' {
		return nil, false, ErrSyntax
	}
	from := s.Offset + 1
	i := bytes.IndexByte(s.Bytes[from:], '"')
	if i < 0 {
		return nil, false, ErrSyntax
	}
	if bytes.IndexByte(s.Bytes[from:from+i], '\\') < 0 {
		s.Offset = from + i + 1
		return s.Bytes[from : from+i], false, nil
	}
	for j := from; j < len(s.Bytes); j++ {
		switch s.Bytes[j] {
		case '\\':
			j++
		case '"':
			s.Offset = j + 1
			return s.Bytes[from:j], true, nil
		}
	}
	return nil, false, ErrSyntax
}

// Skip takes a value of any kind.
func (s *Scanner) Skip() error {
	switch s.Next() {
	case '"':
		// A quote behind anything but a backslash is the end, whatever stands before.
		if i := bytes.IndexByte(s.Bytes[s.Offset+1:], '"'); i == 0 || i > 0 && s.Bytes[s.Offset+i] != '\\' {
			s.Offset += i + 2
			return nil
		}
		_, _, err := s.RawString()
		return err
	case '{', '[':
		return s.skipNested()
	default:
		_, err := s.literal()
		return err
	}
}

// skipNested is not a part of Skip, whose frame is small for it.
func (s *Scanner) skipNested() error {
	if s.Next() == '[' {
		return s.List(s.Skip)
	}
	return s.Object(func([]byte) error { return s.Skip() })
}

// literal takes a number, true, false or null.
func (s *Scanner) literal() ([]byte, error) {
	s.Next()
	from := s.Offset
	for s.Offset < len(s.Bytes) {
		switch c := s.Bytes[s.Offset]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'E':
			s.Offset++
			continue
		}
		break
	}
	if s.Offset == from {
		return nil, ErrSyntax
	}
	return s.Bytes[from:s.Offset], nil
}

// Value takes a value and returns it as text: a string without its escapes, appended to
// scratch if it has any; a literal as it stands; nil for null; an object or list as it stands.
func (s *Scanner) Value(scratch []byte) (value, grown []byte, err error) {
	switch s.Next() {
	case '"':
		raw, escaped, err := s.RawString()
		if err != nil || !escaped {
			return slices.Clip(raw), scratch, err
		}
		from := len(scratch)
		scratch, err = s.unescape(scratch, raw)
		return scratch[from:len(scratch):len(scratch)], scratch, err
	case '{', '[':
		from := s.Offset
		err := s.Skip()
		return s.Bytes[from:s.Offset:s.Offset], scratch, err
	default:
		literal, err := s.literal()
		if string(literal) == "null" {
			literal = nil
		}
		return literal, scratch, err
	}
}

// unescape appends a string's text without its escapes.
func (s *Scanner) unescape(to, raw []byte) ([]byte, error) {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			to = append(to, raw[i])
			continue
		}
		if i++; i == len(raw) {
			return to, ErrSyntax
		}
		switch c := raw[i]; {
		case c == 'x' && s.HexEscapes:
			b, ok := hex(raw, i+1, 2)
			if !ok {
				return to, ErrSyntax
			}
			i += 2
			to = append(to, byte(b)) //nolint:gosec // of two digits
		case c == 'u':
			r, ok := hex(raw, i+1, 4)
			if !ok {
				return to, ErrSyntax
			}
			i += 4
			if utf16.IsSurrogate(r) && i+6 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
				if low, ok := hex(raw, i+3, 4); ok {
					if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
						r = both
						i += 6
					}
				}
			}
			to = utf8.AppendRune(to, r)
		default:
			at := strings.IndexByte(escapes, c)
			if at < 0 {
				return to, ErrSyntax
			}
			to = append(to, escaped[at])
		}
	}
	return to, nil
}

// escapes are the letters behind a backslash, and escaped what they stand for.
const (
	escapes = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

func hex(b []byte, at, digits int) (rune, bool) {
	if at+digits > len(b) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[at:at+digits]), 16, 16)
	return rune(n), err == nil
}

// Key takes the key of an object's field, with its colon, and returns the key without its escapes.
func (s *Scanner) Key() ([]byte, error) {
	key, escaped, err := s.RawString()
	if err == nil && escaped {
		key, err = s.unescape(nil, key)
	}
	if err == nil {
		err = s.Consume(':')
	}
	return key, err
}

// Object calls field for each field of an object, with its key. Field takes the value.
func (s *Scanner) Object(field func(key []byte) error) error {
	return s.eachMember('{', func() error {
		key, err := s.Key()
		if err != nil {
			return err
		}
		return field(key)
	})
}

// List calls element for each of a list's. Element takes it.
func (s *Scanner) List(element func() error) error { return s.eachMember('[', element) }

// eachMember calls member for each of what stands between brackets. Member takes it.
func (s *Scanner) eachMember(opening byte, member func() error) error {
	if err := s.Consume(opening); err != nil || s.depth == cmp.Or(s.MaxDepth, 64) {
		return ErrSyntax
	}
	s.depth++
	defer func() { s.depth-- }()
	closing := opening + 2 // as in ASCII
	if s.Next() == closing {
		s.Offset++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		if s.Next() == ',' {
			s.Offset++
			continue
		}
		return s.Consume(closing)
	}
}
