package jsonview

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks JSON. It looks at quotes and brackets, not at what is no value's: numbers
// that nobody wants may be misspelt.
type Scanner struct {
	Bytes []byte
	At    int
}

// deepest is how deep JSON may be nested.
const deepest = 64

// ErrSyntax says that what comes next is not what was to be taken, or nested too deeply.
var ErrSyntax = errors.New("is no JSON")

func (s *Scanner) space() {
	for s.At < len(s.Bytes) {
		switch s.Bytes[s.At] {
		case ' ', '\t', '\r', '\n':
			s.At++
		default:
			return
		}
	}
}

// Next returns the next byte that is no space, 0 at the end.
func (s *Scanner) Next() byte {
	if s.At < len(s.Bytes) && s.Bytes[s.At] > ' ' {
		return s.Bytes[s.At]
	}
	s.space()
	if s.At == len(s.Bytes) {
		return 0
	}
	return s.Bytes[s.At]
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
func (s *Scanner) Skip() error { return s.skipBelow(0) }

func (s *Scanner) skipBelow(depth int) error {
	switch c := s.Next(); c {
	case '"':
		// A quote behind anything but a backslash is the end, whatever stands before.
		if i := bytes.IndexByte(s.Bytes[s.At+1:], '"'); i == 0 || i > 0 && s.Bytes[s.At+i] != '\\' {
			s.At += i + 2
			return nil
		}
		_, _, err := s.Quoted()
		return err
	case '{', '[':
		if depth == deepest {
			return ErrSyntax
		}
		s.At++
		closing := c + 2 // as in ASCII
		if s.Next() == closing {
			s.At++
			return nil
		}
		for {
			if c == '{' {
				if _, _, err := s.Quoted(); err != nil {
					return err
				}
				if err := s.Take(':'); err != nil {
					return err
				}
			}
			if err := s.skipBelow(depth + 1); err != nil {
				return err
			}
			switch s.Next() {
			case ',':
				s.At++
			case closing:
				s.At++
				return nil
			default:
				return ErrSyntax
			}
		}
	default:
		_, err := s.word()
		return err
	}
}

// word takes a number, true, false or null.
func (s *Scanner) word() ([]byte, error) {
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
// scratch if it has any; a word as it stands; nil for null; an object or list as it stands.
func (s *Scanner) Value(scratch []byte) (value, grown []byte, err error) {
	switch s.Next() {
	case '"':
		raw, escaped, err := s.Quoted()
		if err != nil || !escaped {
			return slices.Clip(raw), scratch, err
		}
		from := len(scratch)
		scratch, err = unescape(scratch, raw)
		return scratch[from:len(scratch):len(scratch)], scratch, err
	case '{', '[':
		from := s.At
		err := s.Skip()
		return s.Bytes[from:s.At:s.At], scratch, err
	default:
		word, err := s.word()
		if string(word) == "null" {
			word = nil
		}
		return word, scratch, err
	}
}

// unescape appends a string's text without its escapes.
func unescape(to, raw []byte) ([]byte, error) {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			to = append(to, raw[i])
			continue
		}
		if i++; i == len(raw) {
			return to, ErrSyntax
		}
		switch c := raw[i]; c {
		case 'n':
			to = append(to, '\n')
		case 't':
			to = append(to, '\t')
		case 'r':
			to = append(to, '\r')
		case 'b':
			to = append(to, '\b')
		case 'f':
			to = append(to, '\f')
		case '"', '\\', '/':
			to = append(to, c)
		case 'u':
			r, ok := hex4(raw, i+1)
			if !ok {
				return to, ErrSyntax
			}
			i += 4
			if utf16.IsSurrogate(r) && i+6 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
				if low, ok := hex4(raw, i+3); ok {
					if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
						r = both
						i += 6
					}
				}
			}
			to = utf8.AppendRune(to, r)
		default:
			return to, ErrSyntax
		}
	}
	return to, nil
}

func hex4(b []byte, at int) (rune, bool) {
	if at+4 > len(b) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[at:at+4]), 16, 16)
	return rune(n), err == nil
}

// Object calls field for each of an object's, with its raw key. Field takes the value.
func (s *Scanner) Object(field func(key []byte) error) error {
	if err := s.Take('{'); err != nil {
		return err
	}
	if s.Next() == '}' {
		s.At++
		return nil
	}
	for {
		key, _, err := s.Quoted()
		if err != nil {
			return err
		}
		if err := s.Take(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		switch s.Next() {
		case ',':
			s.At++
		case '}':
			s.At++
			return nil
		default:
			return ErrSyntax
		}
	}
}

// List calls element for each of a list's. Element takes it.
func (s *Scanner) List(element func() error) error {
	if err := s.Take('['); err != nil {
		return err
	}
	if s.Next() == ']' {
		s.At++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.Next() {
		case ',':
			s.At++
		case ']':
			s.At++
			return nil
		default:
			return ErrSyntax
		}
	}
}
