package simulate

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
type scanner struct {
	b  []byte
	at int
}

// deepest is how deep JSON may be nested.
const deepest = 64

var errJSON = errors.New("is no JSON")

func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// next returns the next byte that is no space, 0 at the end.
func (s *scanner) next() byte {
	if s.at < len(s.b) && s.b[s.at] > ' ' {
		return s.b[s.at]
	}
	s.space()
	if s.at == len(s.b) {
		return 0
	}
	return s.b[s.at]
}

// take takes the byte c.
func (s *scanner) take(c byte) error {
	if s.next() != c {
		return errJSON
	}
	s.at++
	return nil
}

// text takes a string and returns what stands between its quotes, and whether it has a
// backslash.
func (s *scanner) text() (raw []byte, escaped bool, err error) {
	if s.next() != '"' {
		return nil, false, errJSON
	}
	from := s.at + 1
	i := bytes.IndexByte(s.b[from:], '"')
	if i < 0 {
		return nil, false, errJSON
	}
	if bytes.IndexByte(s.b[from:from+i], '\\') < 0 {
		s.at = from + i + 1
		return s.b[from : from+i], false, nil
	}
	for j := from; j < len(s.b); j++ {
		switch s.b[j] {
		case '\\':
			j++
		case '"':
			s.at = j + 1
			return s.b[from:j], true, nil
		}
	}
	return nil, false, errJSON
}

// skip takes a value of any kind.
func (s *scanner) skip() error { return s.skipBelow(0) }

func (s *scanner) skipBelow(depth int) error {
	switch c := s.next(); c {
	case '"':
		// A quote behind anything but a backslash is the end, whatever stands before.
		if i := bytes.IndexByte(s.b[s.at+1:], '"'); i == 0 || i > 0 && s.b[s.at+i] != '\\' {
			s.at += i + 2
			return nil
		}
		_, _, err := s.text()
		return err
	case '{', '[':
		if depth == deepest {
			return errJSON
		}
		s.at++
		closing := c + 2 // as in ASCII
		if s.next() == closing {
			s.at++
			return nil
		}
		for {
			if c == '{' {
				if _, _, err := s.text(); err != nil {
					return err
				}
				if err := s.take(':'); err != nil {
					return err
				}
			}
			if err := s.skipBelow(depth + 1); err != nil {
				return err
			}
			switch s.next() {
			case ',':
				s.at++
			case closing:
				s.at++
				return nil
			default:
				return errJSON
			}
		}
	default:
		_, err := s.word()
		return err
	}
}

// word takes a number, true, false or null.
func (s *scanner) word() ([]byte, error) {
	s.next()
	from := s.at
	for s.at < len(s.b) {
		switch c := s.b[s.at]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'E':
			s.at++
			continue
		}
		break
	}
	if s.at == from {
		return nil, errJSON
	}
	return s.b[from:s.at], nil
}

// value takes a value and returns it as text: a string without its escapes, appended to
// scratch if it has any; a word as it stands; nil for null; an object or list as it stands.
func (s *scanner) value(scratch []byte) (value, grown []byte, err error) {
	switch s.next() {
	case '"':
		raw, escaped, err := s.text()
		if err != nil || !escaped {
			return slices.Clip(raw), scratch, err
		}
		from := len(scratch)
		scratch, err = unescape(scratch, raw)
		return scratch[from:len(scratch):len(scratch)], scratch, err
	case '{', '[':
		from := s.at
		err := s.skip()
		return s.b[from:s.at:s.at], scratch, err
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
			return to, errJSON
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
				return to, errJSON
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
			return to, errJSON
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

// object calls field for each of an object's, with its raw key. Field takes the value.
func (s *scanner) object(field func(key []byte) error) error {
	if err := s.take('{'); err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		key, _, err := s.text()
		if err != nil {
			return err
		}
		if err := s.take(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.at++
		case '}':
			s.at++
			return nil
		default:
			return errJSON
		}
	}
}

// list calls element for each of a list's. Element takes it.
func (s *scanner) list(element func() error) error {
	if err := s.take('['); err != nil {
		return err
	}
	if s.next() == ']' {
		s.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.at++
		case ']':
			s.at++
			return nil
		default:
			return errJSON
		}
	}
}
