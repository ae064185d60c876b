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
	// At is the place of what comes next. After an error it is about where the text is no
	// JSON.
	At int
	// Hex takes \x22 in strings for the byte, as nginx writes quotes, and letters beyond ASCII,
	// unless it is told to write JSON.
	Hex bool
	// Deepest is how deep the text may be nested; 0 for 64.
	Deepest int

	depth int
}

// ErrSyntax says that what comes next is not what was to be taken, or nested too deeply.
var ErrSyntax = errors.New("is no JSON")

// Next returns the next byte that is no space, 0 at the end.
func (s *Scanner) Next() byte {
	if s.At < len(s.Bytes) && s.Bytes[s.At] > ' ' {
		return s.Bytes[s.At]
	}
	return s.afterSpace()
}

// afterSpace is not a part of Next, so that the compiler copies that into its callers.
func (s *Scanner) afterSpace() byte {
	for ; s.At < len(s.Bytes); s.At++ {
		switch c := s.Bytes[s.At]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// Take takes the byte c.
func (s *Scanner) Take(c byte) error {
	if s.Next() != c {
		return ErrSyntax
	}
	s.At++
	return nil
}

// Quoted takes a string and returns what stands between its quotes, and whether it has a
// backslash.
func (s *Scanner) Quoted() (raw []byte, escaped bool, err error) {
	if s.Next() != '"' {
		return nil, false, ErrSyntax
	}
	from := s.At + 1
	i := bytes.IndexByte(s.Bytes[from:], '"')
	if i < 0 {
		return nil, false, ErrSyntax
	}
	if bytes.IndexByte(s.Bytes[from:from+i], '\\') < 0 {
		s.At = from + i + 1
		return s.Bytes[from : from+i], false, nil
	}
	for j := from; j < len(s.Bytes); j++ {
		switch s.Bytes[j] {
		case '\\':
			j++
		case '"':
			s.At = j + 1
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
		if i := bytes.IndexByte(s.Bytes[s.At+1:], '"'); i == 0 || i > 0 && s.Bytes[s.At+i] != '\\' {
			s.At += i + 2
			return nil
		}
		_, _, err := s.Quoted()
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
	from := s.At
	for s.At < len(s.Bytes) {
		switch c := s.Bytes[s.At]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'E':
			s.At++
			continue
		}
		break
	}
	if s.At == from {
		return nil, ErrSyntax
	}
	return s.Bytes[from:s.At], nil
}

// Value takes a value and returns it as text: a string without its escapes, appended to
// scratch if it has any; a literal as it stands; nil for null; an object or list as it stands.
func (s *Scanner) Value(scratch []byte) (value, grown []byte, err error) {
	switch s.Next() {
	case '"':
		raw, escaped, err := s.Quoted()
		if err != nil || !escaped {
			return slices.Clip(raw), scratch, err
		}
		from := len(scratch)
		scratch, err = s.unescape(scratch, raw)
		return scratch[from:len(scratch):len(scratch)], scratch, err
	case '{', '[':
		from := s.At
		err := s.Skip()
		return s.Bytes[from:s.At:s.At], scratch, err
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
		case c == 'x' && s.Hex:
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
	key, escaped, err := s.Quoted()
	if err == nil && escaped {
		key, err = s.unescape(nil, key)
	}
	if err == nil {
		err = s.Take(':')
	}
	return key, err
}

// Object calls field for each field of an object, with its key. Field takes the value.
func (s *Scanner) Object(field func(key []byte) error) error {
	return s.each('{', func() error {
		key, err := s.Key()
		if err != nil {
			return err
		}
		return field(key)
	})
}

// List calls element for each of a list's. Element takes it.
func (s *Scanner) List(element func() error) error { return s.each('[', element) }

// each calls member for each of what stands between brackets. Member takes it.
func (s *Scanner) each(opening byte, member func() error) error {
	if err := s.Take(opening); err != nil || s.depth == cmp.Or(s.Deepest, 64) {
		return ErrSyntax
	}
	s.depth++
	defer func() { s.depth-- }()
	closing := opening + 2 // as in ASCII
	if s.Next() == closing {
		s.At++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		if s.Next() == ',' {
			s.At++
			continue
		}
		return s.Take(closing)
	}
}
