package rulefile

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// scalarKind is the type that YAML 1.1 gives a scalar.
type scalarKind int

const (
	textScalar scalarKind = iota
	nullScalar
	boolScalar
	intScalar  // fits an int64
	uintScalar // an integer beyond int64
	floatScalar
	badScalar // contradicts its own tag, such as `!!int abc`
)

// scalar is a resolved YAML scalar. text is as written; for !!binary it is decoded.
type scalar struct {
	kind  scalarKind
	text  string
	bool  bool
	int   int64
	uint  uint64
	float float64
}

// resolveScalar determines the type of a scalar as envoyproxy/ratelimit's library (yaml.v2) does.
// The library that parsed it follows YAML 1.2, in which `yes` and `on` are text.
func resolveScalar(n *yaml.Node) scalar {
	if n.Style&yaml.TaggedStyle == 0 {
		const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
		if n.Style&quoted != 0 || n.Tag == "!" {
			return scalar{kind: textScalar, text: n.Value}
		}
		return resolvePlain(n.Value)
	}
	var want scalarKind
	switch n.ShortTag() {
	case "!!null":
		want = nullScalar
	case "!!bool":
		want = boolScalar
	case "!!int":
		want = intScalar
	case "!!float":
		want = floatScalar
	case "!!binary":
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return scalar{kind: badScalar, text: n.Value}
		}
		return scalar{kind: textScalar, text: string(b)}
	default:
		return scalar{kind: textScalar, text: n.Value}
	}
	s := resolvePlain(n.Value)
	switch {
	case want == s.kind, want == intScalar && s.kind == uintScalar:
	case want == floatScalar && s.kind == intScalar:
		s.kind = floatScalar
		s.float = float64(s.int)
	case want == floatScalar && s.kind == uintScalar:
		s.kind = floatScalar
		s.float = float64(s.uint)
	default:
		return scalar{kind: badScalar, text: n.Value}
	}
	return s
}

var plainFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// resolvePlain determines the type of an unquoted scalar without a tag. Dates are text.
func resolvePlain(s string) scalar {
	text := scalar{kind: textScalar, text: s}
	switch s {
	case "", "~", "null", "Null", "NULL":
		return scalar{kind: nullScalar, text: s}
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return scalar{kind: boolScalar, text: s, bool: true}
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return scalar{kind: boolScalar, text: s}
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		f, err := strconv.ParseFloat(strings.Replace(s, ".", "", 1), 64)
		if err != nil {
			return text
		}
		return scalar{kind: floatScalar, text: s, float: f}
	}
	switch c := s[0]; {
	case c == '.':
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return scalar{kind: floatScalar, text: s, float: f}
		}
	case c == '+' || c == '-' || c >= '0' && c <= '9':
		if isDate(s) {
			return text
		}
		plain := strings.ReplaceAll(s, "_", "")
		if i, err := strconv.ParseInt(plain, 0, 64); err == nil {
			return scalar{kind: intScalar, text: s, int: i}
		}
		if u, err := strconv.ParseUint(plain, 0, 64); err == nil {
			return scalar{kind: uintScalar, text: s, uint: u}
		}
		if plainFloat.MatchString(plain) {
			if f, err := strconv.ParseFloat(plain, 64); err == nil {
				return scalar{kind: floatScalar, text: s, float: f}
			}
		}
	}
	return text
}

// isDate reports whether s begins with a year and a hyphen, like 2026-01-31.
func isDate(s string) bool {
	year, _, found := strings.Cut(s, "-")
	if !found || len(year) != 4 {
		return false
	}
	_, err := strconv.ParseUint(year, 10, 16)
	return err == nil
}

// kindName describes a node for messages such as `must be text, not a list`.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		if text := templateText(n); text != "" {
			return "the template " + text + "; " + templateRemedy
		}
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	default:
		return scalarText(n)
	}
}

// scalarText returns a scalar for messages: as written, quoted if it is text, and shortened.
func scalarText(n *yaml.Node) string {
	s := resolveScalar(n)
	switch s.kind {
	case textScalar:
		return strconv.Quote(rules.Shorten(s.text))
	case nullScalar:
		return "empty"
	default:
		return rules.Shorten(s.text)
	}
}

// templateText returns the template that the map n was meant to be, or "". To YAML a template is a
// map whose key is a map.
func templateText(n *yaml.Node) string {
	if len(n.Content) == 0 || n.Content[0].Kind != yaml.MappingNode {
		return ""
	}
	var words []string
	for _, word := range n.Content[0].Content {
		if word.Kind == yaml.ScalarNode && word.Value != "" {
			words = append(words, word.Value)
		}
	}
	return rules.Shorten("{{ " + strings.Join(words, " ") + " }}")
}
