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

// Scanner reads JSON text sequentially. The zero value with Bytes set is ready to use. It is not safe for concurrent
// use.
type Scanner struct {
	Bytes []byte
	// Offset is the offset of the next byte. After an error it is near the position of the error.
	Offset int
	// HexEscapes accepts \x22 in strings, which nginx writes for quotes and bytes beyond ASCII unless escape=json is
	// configured.
	HexEscapes bool
	// MaxDepth is the maximum nesting depth; 0 means 64.
	MaxDepth int

	depth int
}

// ErrSyntax is returned if the text is not the expected JSON, or is nested too deeply.
var ErrSyntax = errors.New("is no JSON")

// Next returns the next byte that is not white space without consuming it, 0 at the end.
func (s *Scanner) Next() byte {
	if s.Offset < len(s.Bytes) && s.Bytes[s.Offset] > ' ' {
		return s.Bytes[s.Offset]
	}
	return s.skipSpace()
}

// skipSpace is separate from Next so that the compiler inlines Next.
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

// Consume consumes the byte c.
func (s *Scanner) Consume(c byte) error {
	if s.Next() != c {
		return ErrSyntax
	}
	s.Offset++
	return nil
}

// RawString consumes a string and returns the text between its quotes, and whether that contains a backslash.
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

// Skip consumes a value of any kind.
func (s *Scanner) Skip() error {
	switch s.Next() {
	case '"':
		// A quote not preceded by a backslash ends the string.
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

// skipNested is separate from Skip to keep Skip's stack frame small.
func (s *Scanner) skipNested() error {
	if s.Next() == '[' {
		return s.List(s.Skip)
	}
	return s.Object(func([]byte) error { return s.Skip() })
}

// literal consumes a number, true, false or null.
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

// Value consumes a value and returns its text: a string without its escapes, a literal, object or list as written, or
// nil for null. A string with escapes is appended to scratch, which is returned as grown.
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

// unescape appends the unescaped string to the given slice.
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

// escapes are the characters after a backslash, and escaped the characters they represent.
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

// Key consumes the key of an object's field and its colon, and returns the unescaped key.
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

// Object calls field with the key of each field of an object. field must consume the value.
func (s *Scanner) Object(field func(key []byte) error) error {
	return s.eachMember('{', func() error {
		key, err := s.Key()
		if err != nil {
			return err
		}
		return field(key)
	})
}

// List calls element for each element of a list. element must consume it.
func (s *Scanner) List(element func() error) error { return s.eachMember('[', element) }

// eachMember calls member for each member of an object or a list. member must consume it.
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
