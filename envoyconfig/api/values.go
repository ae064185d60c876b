package api

import (
	"encoding/base64"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// noun describes a kind of value in messages, in singular and plural.
type noun struct{ singular, plural string }

// kind is a kind of value. accepts reports whether a value is of the kind, and normalizes a value that Envoy accepts
// in several forms.
type kind struct {
	noun
	accepts func(n *tree.Node) bool
}

// kinds are the kinds of values in protobuf's JSON by field type.
var kinds = map[string]kind{
	"string": {noun{"text", "texts"}, isText}, "StringValue": {noun{"text", "texts"}, wrapped(isText)}, "FieldMask": {noun{"text", "texts"}, isText},
	"bytes": {noun{"base64", "base64"}, isBase64}, "BytesValue": {noun{"base64", "base64"}, wrapped(isBase64)},
	"bool": {noun{"true or false", "true or false"}, normalizeBoolean}, "BoolValue": {noun{"true or false", "true or false"}, wrapped(normalizeBoolean)},
	"int32": integer(math.MinInt32, math.MaxInt32), "Int32Value": wrappedInteger(math.MinInt32, math.MaxInt32), "sint32": integer(math.MinInt32, math.MaxInt32),
	"int64": integer(math.MinInt64, math.MaxInt64), "Int64Value": wrappedInteger(math.MinInt64, math.MaxInt64), "sint64": integer(math.MinInt64, math.MaxInt64),
	"uint32": integer(0, math.MaxUint32), "UInt32Value": wrappedInteger(0, math.MaxUint32), "fixed32": integer(0, math.MaxUint32),
	"uint64": integer(0, math.MaxUint64), "UInt64Value": wrappedInteger(0, math.MaxUint64), "fixed64": integer(0, math.MaxUint64),
	"double": {noun{"a number", "numbers"}, isNumber}, "float": {noun{"a number", "numbers"}, isNumber},
	"DoubleValue": {noun{"a number", "numbers"}, wrapped(isNumber)}, "FloatValue": {noun{"a number", "numbers"}, wrapped(isNumber)},
	"Duration": {noun{"seconds, such as 0.25s", "durations"}, normalizeDuration}, "Timestamp": {noun{"a time, such as 2026-01-02T03:04:05Z", "times"}, isTime},
	"Any": {noun{"an object with @type", "objects with @type"}, isObject}, "Struct": {noun{"an object", "objects"}, isObject}, "Empty": {noun{"an object", "objects"}, isObject},
	"ListValue": {noun{"a list", "lists"}, func(n *tree.Node) bool { return n.Kind == tree.List }},
	"Value":     {noun{"a value", "values"}, func(*tree.Node) bool { return true }},
}

// noun describes the values of a field.
func (f *field) noun() noun {
	if len(f.values) > 0 {
		const most = 8
		names := make([]string, len(f.values))
		for i, v := range f.values {
			names[i] = v.name
		}
		if len(names) > most {
			return noun{"a name, such as " + names[0], "names"}
		}
		return noun{strings.Join(names, " or "), "names"}
	}
	if k, ok := kinds[f.typeName]; ok {
		return k.noun
	}
	return noun{"an object", "objects"}
}

// isMessage reports whether the values of a field are messages other than protobuf's well-known types.
func (f *field) isMessage() bool { return strings.Contains(f.typeName, ".") && len(f.values) == 0 }

// accepts reports whether a value is of the field's kind.
func (f *field) accepts(n *tree.Node) bool {
	if len(f.values) > 0 {
		return n.Kind == tree.Number && isInteger(n, math.MinInt32, math.MaxInt32) || n.Kind == tree.Text && slices.ContainsFunc(f.values, func(v enumValue) bool { return v.matches(n) })
	}
	if k, ok := kinds[f.typeName]; ok {
		return k.accepts(n)
	}
	return n.Kind == tree.Object
}

// matches reports whether n is the value. Envoy ignores the case of names.
func (v enumValue) matches(n *tree.Node) bool {
	return strings.EqualFold(n.Text, v.name) || n.Text == v.number
}

// isEmpty reports whether a field is missing, an empty text or an empty list. An object is never empty.
func isEmpty(n *tree.Node) bool {
	return n == nil || n.Kind == tree.Text && n.Text == "" || n.Kind == tree.List && len(n.Nodes) == 0
}

func isObject(n *tree.Node) bool { return n.Kind == tree.Object }

// isText accepts fractional numbers, because they are text in Envoy's YAML.
func isText(n *tree.Node) bool {
	_, err := strconv.ParseInt(n.Text, 10, 64)
	return n.Kind == tree.Text || n.Kind == tree.Number && err != nil && !strings.HasPrefix(n.Text, "0x")
}

func isBase64(n *tree.Node) bool {
	text := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(n.Text, "="))
	_, err := base64.RawStdEncoding.DecodeString(text)
	return isText(n) && err == nil
}

func isTime(n *tree.Node) bool {
	_, err := time.Parse(time.RFC3339Nano, n.Text)
	return n.Kind == tree.Text && err == nil
}

func isNumber(n *tree.Node) bool {
	_, err := strconv.ParseFloat(n.Text, 64)
	return err == nil && (n.Kind == tree.Number || n.Kind == tree.Text)
}

// integer is the kind of integers within bounds.
func integer(least, most float64) kind {
	return kind{noun{"a whole number", "whole numbers"}, func(n *tree.Node) bool { return isInteger(n, least, most) }}
}

func wrappedInteger(least, most float64) kind {
	k := integer(least, most)
	k.accepts = wrapped(k.accepts)
	return k
}

// isInteger reports whether n is an integer within bounds, and converts it to decimal.
func isInteger(n *tree.Node, least, most float64) bool {
	if v, err := strconv.ParseUint(n.Text, 0, 64); err == nil && n.Kind == tree.Number && strings.HasPrefix(n.Text, "0x") {
		n.Text = strconv.FormatUint(v, 10)
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	return (n.Kind == tree.Number || n.Kind == tree.Text) && err == nil && v == math.Trunc(v) && least <= v && v <= most
}

// wrapped accepts a wrapper message such as StringValue in place of its value.
func wrapped(accepts func(*tree.Node) bool) func(*tree.Node) bool {
	return func(n *tree.Node) bool {
		unwrapValue(n)
		return accepts(n)
	}
}

// unwrapValue replaces a wrapper message such as BoolValue by its value.
func unwrapValue(n *tree.Node) {
	if value := n.Field("value"); n.Kind == tree.Object && value.Exists() {
		name := n.Name
		*n = *value
		n.Name = name
	}
}

func normalizeBoolean(n *tree.Node) bool {
	if n.Kind != tree.Boolean && n.Kind != tree.Text {
		return false
	}
	switch strings.ToLower(n.Text) {
	case "true", "t", "yes", "y", "1":
		n.Text = "true"
	case "false", "f", "no", "n", "0":
		n.Text = "false"
	case "on", "off": // without quotes
		if n.Kind == tree.Text {
			return false
		}
		n.Text = strconv.FormatBool(strings.EqualFold(n.Text, "on"))
	default:
		return false
	}
	n.Kind = tree.Boolean
	return true
}

// durationPattern matches a duration of protobuf's JSON. Envoy rejects negative durations.
var durationPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]{1,9})?s$`)

// normalizeDuration converts {seconds: 5, nanos: 250000000} to 5.25s.
func normalizeDuration(n *tree.Node) bool {
	if n.Kind == tree.Object {
		for child := range n.Fields() {
			if child.Name != "seconds" && child.Name != "nanos" {
				return false
			}
		}
		var parts [2]float64
		for i, name := range []string{"seconds", "nanos"} {
			if part := n.Field(name); part.Exists() {
				if !isInteger(part, 0, maxSeconds) {
					return false
				}
				parts[i], _ = strconv.ParseFloat(part.Text, 64)
			}
		}
		n.Kind, n.Text, n.Nodes = tree.Text, strconv.FormatFloat(parts[0]+parts[1]/1e9, 'f', -1, 64)+"s", nil
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(n.Text, "s"), 64)
	return n.Kind == tree.Text && durationPattern.MatchString(n.Text) && err == nil && seconds <= maxSeconds
}

// maxSeconds is the longest duration of protobuf.
const maxSeconds = 315_576_000_000
