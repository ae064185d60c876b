package rulefile

import (
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && resolveScalar(n).kind == nullScalar
}

// lastText returns the text of a word for paths. Of several the last one takes effect.
func lastText(fields []field, word string) string {
	text := ""
	for _, f := range fields {
		if f.word == word && f.value.Kind == yaml.ScalarNode {
			text = ""
			if s := resolveScalar(f.value); s.kind != nullScalar {
				text = s.text
			}
		}
	}
	return text
}

// text reads a word whose value is text. Unquoted integers and booleans are the
// text as written, null is empty. Ok is false if it reported an error.
func (p *parser) text(path string, f field) (text string, ok bool) {
	if f.value.Kind != yaml.ScalarNode {
		p.fail(path, f.value, "%q must be text, not %s", f.word, kindName(f.value))
		return "", false
	}
	s := resolveScalar(f.value)
	switch s.kind {
	case nullScalar:
		return "", true
	case floatScalar, uintScalar:
		p.fail(path, f.value, "%q must be text, not the number %s; put it in quotes", f.word, rules.Shorten(s.text))
		return "", false
	case badScalar:
		p.fail(path, f.value, "%q does not fit its tag %s", rules.Shorten(s.text), f.value.ShortTag())
		return "", false
	default:
		if !utf8.ValidString(s.text) {
			p.fail(path, f.value, "%q must be valid UTF-8, not %q", f.word, rules.Shorten(s.text))
			return "", false
		}
		if text := template.FindString(s.text); text != "" {
			p.warn(rules.Template, path, f.value, "%q is taken as it stands, but %s looks like a template; %s", f.word, rules.Shorten(text), templateRemedy)
		}
		return s.text, true
	}
}

// bool reads a word of envoyproxy/ratelimit that is true or false; null is false.
func (p *parser) bool(path string, f field) bool {
	if isNull(f.value) {
		return false
	}
	return p.newBool(path, f)
}

// newBool reads a word that is true or false and must say which.
func (p *parser) newBool(path string, f field) bool {
	if f.value.Kind == yaml.ScalarNode {
		if s := resolveScalar(f.value); s.kind == boolScalar {
			return s.bool
		}
	}
	p.fail(path, f.value, "%q must be true or false (or yes, no, on, off; without quotes), not %s", f.word, kindName(f.value))
	return false
}

// number reads a whole number from smallest to largest, which fits 32 bits. Ok is
// false if it reported an error.
func (p *parser) number(path string, f field, smallest, largest int64) (n uint32, ok bool) {
	if f.value.Kind == yaml.ScalarNode {
		s := resolveScalar(f.value)
		if s.kind == intScalar && s.int >= smallest && s.int <= largest {
			return uint32(s.int), true //nolint:gosec // checked above
		}
		if _, err := strconv.ParseUint(s.text, 10, 32); err == nil && s.kind == textScalar {
			p.fail(path, f.value, "%q must be a whole number from %d to %d, not text: remove the quotes around %s",
				f.word, smallest, largest, rules.Shorten(s.text))
			return 0, false
		}
	}
	p.fail(path, f.value, "%q must be a whole number from %d to %d, not %s", f.word, smallest, largest, kindName(f.value))
	return 0, false
}
