package rulefile

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && resolveScalar(n).kind == nullScalar
}

// lastText returns the text of a field for paths. If there are several, the last one takes effect.
func lastText(fields []field, word string) string {
	text := ""
	for _, f := range fields {
		if f.name == word && f.value.Kind == yaml.ScalarNode {
			text = ""
			if s := resolveScalar(f.value); s.kind != nullScalar {
				text = s.text
			}
		}
	}
	return text
}

// text reads a text. Unquoted integers and booleans are the text as written, and null is empty. ok
// is false if it reported an error.
func (p *parser) text(path string, f field) (text string, ok bool) {
	if f.value.Kind != yaml.ScalarNode {
		p.fail(path, f.value, "%q must be text, not %s", f.name, kindName(f.value))
		return "", false
	}
	s := resolveScalar(f.value)
	switch s.kind {
	case nullScalar:
		return "", true
	case floatScalar, uintScalar:
		p.fail(path, f.value, "%q must be text, not the number %s; put it in quotes", f.name, rules.Shorten(s.text))
		return "", false
	case badScalar:
		p.fail(path, f.value, "%q does not fit its tag %s", rules.Shorten(s.text), f.value.ShortTag())
		return "", false
	default:
		if !utf8.ValidString(s.text) {
			p.fail(path, f.value, "%q must be valid UTF-8, not %q", f.name, rules.Shorten(s.text))
			return "", false
		}
		if text := template.FindString(s.text); text != "" {
			p.warn(rules.Template, path, f.value, "%q is used as written, but %s looks like a template; %s", f.name,
				rules.Shorten(text), templateRemedy)
		}
		return s.text, true
	}
}

// bool reads a boolean field of envoyproxy/ratelimit; null is false.
func (p *parser) bool(path string, f field) bool {
	if isNull(f.value) {
		return false
	}
	return p.strictBool(path, f)
}

// strictBool reads a boolean field that must not be null.
func (p *parser) strictBool(path string, f field) bool {
	if f.value.Kind == yaml.ScalarNode {
		if s := resolveScalar(f.value); s.kind == boolScalar {
			return s.bool
		}
	}
	p.fail(path, f.value, "%q must be true or false (or yes, no, on, off; without quotes), not %s", f.name,
		kindName(f.value))
	return false
}

// number reads an integer from smallest to largest, which fits 32 bits. ok is false if it reported
// an error.
func (p *parser) number(path string, f field, smallest, largest int64) (n uint32, ok bool) {
	if f.value.Kind == yaml.ScalarNode {
		s := resolveScalar(f.value)
		if s.kind == intScalar && s.int >= smallest && s.int <= largest {
			return uint32(s.int), true //nolint:gosec // checked above
		}
		if _, err := strconv.ParseUint(s.text, 10, 32); err == nil && s.kind == textScalar {
			p.fail(path, f.value, "%q must be a whole number from %d to %d, not text: remove the quotes around %s",
				f.name, smallest, largest, rules.Shorten(s.text))
			return 0, false
		}
	}
	p.fail(path, f.value, "%q must be a whole number from %d to %d, not %s", f.name, smallest, largest,
		kindName(f.value))
	return 0, false
}

// duration reads a duration. ok is false if it reported an error.
func (p *parser) duration(path string, f field) (d time.Duration, ok bool) {
	if f.value.Kind == yaml.ScalarNode {
		if d, err := time.ParseDuration(resolveScalar(f.value).text); err == nil {
			return d, true
		}
	}
	p.fail(path, f.value, "%q must be a duration, such as 50ms, 90s or 24h, not %s", f.name, kindName(f.value))
	return 0, false
}

// choice reads one of the allowed texts. It returns "" if it reported an error.
func (p *parser) choice(path string, f field, allowed []string) string {
	text, ok := p.text(path, f)
	if ok && !slices.Contains(allowed, text) {
		p.failChoice(path, f, text, allowed)
		return ""
	}
	return text
}

func (p *parser) failChoice(path string, f field, text string, allowed []string) {
	p.fail(path, f.value, "unknown %s %q%s (allowed: %s)", f.name, rules.Shorten(text),
		rules.DidYouMean(text, allowed), strings.Join(allowed, ", "))
}

// mapFields reads the fields of a map, of which example is one. ok is false if it reported an error.
func (p *parser) mapFields(path string, f field, example string) (fields []field, ok bool) {
	got := kindName(f.value)
	if f.value.Kind == yaml.MappingNode {
		if len(f.value.Content) > 0 {
			return p.fields(path, f.value, fieldName), true
		}
		got = "an empty one"
	}
	p.fail(path, f.value, "%q must be a map, such as %s, not %s", f.name, example, got)
	return nil, false
}

// shares reads a number above 0 and at most 1, or a list of such numbers.
func (p *parser) shares(path string, f field) (found rules.Shares) {
	var all []float64
	items := []*yaml.Node{f.value}
	if f.value.Kind == yaml.SequenceNode {
		items = f.value.Content
	}
	valid := len(items) > 0 && len(items) <= rules.MaxShares
	for _, item := range items {
		var s scalar
		if item.Kind == yaml.ScalarNode {
			s = resolveScalar(item)
		}
		share := s.float
		if s.kind == intScalar {
			share = float64(s.int)
		}
		valid = valid && (s.kind == floatScalar || s.kind == intScalar) && share > 0 && share <= 1 &&
			!slices.Contains(all, share)
		all = append(all, share)
	}
	if !valid {
		p.fail(path, f.value, "%q must be a number above 0 and at most 1, such as 0.8, or a list of at most %d different ones, such as [0.5, 0.8, 1], not %s",
			f.name, rules.MaxShares, kindName(f.value))
		return found
	}
	slices.Sort(all)
	copy(found[:], all)
	return found
}
