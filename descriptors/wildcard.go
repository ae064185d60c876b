package descriptors

import (
	"bytes"
	"strings"
)

// pattern is text in which each `*` matches any number of bytes. It is split at the stars, so that
// matching allocates nothing.
type pattern struct {
	// literal is true if the text has no `*`. prefix is then the whole text.
	literal        bool
	prefix, suffix string
	// middle are the parts between two `*`, in order.
	middle [][]byte
	// minLen is the total length of the parts. It keeps prefix and suffix from overlapping: `aa*aa`
	// does not match aaa.
	minLen int
}

func isWildcard(text string) bool { return strings.Contains(text, "*") }

func newPattern(text string) pattern {
	parts := strings.Split(text, "*")
	last := len(parts) - 1
	p := pattern{literal: last == 0, prefix: parts[0], minLen: len(parts[0])}
	if p.literal {
		return p
	}
	p.suffix = parts[last]
	p.minLen += len(p.suffix)
	for _, part := range parts[1:last] {
		if part != "" {
			p.middle = append(p.middle, []byte(part))
			p.minLen += len(part)
		}
	}
	return p
}

func (p *pattern) matches(b []byte) bool {
	if p.literal {
		return string(b) == p.prefix
	}
	if len(b) < p.minLen ||
		string(b[:len(p.prefix)]) != p.prefix || string(b[len(b)-len(p.suffix):]) != p.suffix {
		return false
	}
	// The first occurrence of each part leaves the most text for the next parts.
	rest := b[len(p.prefix) : len(b)-len(p.suffix)]
	for _, part := range p.middle {
		i := bytes.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}
