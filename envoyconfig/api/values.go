package api

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// wanted is a kind of value for people, one and several.
type wanted struct{ one, many string }

// kind is a kind of values. takes reports whether a value is one, and writes it in the one form that is read here, if
// Envoy takes several.
type kind struct {
	wanted
	takes func(n *tree.Node) bool
}

// kinds are the values of protobuf's JSON by the type of their field.
var kinds = map[string]kind{
	"string": {wanted{"text", "texts"}, isText}, "StringValue": {wanted{"text", "texts"}, wrapped(isText)}, "FieldMask": {wanted{"text", "texts"}, isText},
	"bytes": {wanted{"base64", "base64"}, isBase64}, "BytesValue": {wanted{"base64", "base64"}, wrapped(isBase64)},
	"bool": {wanted{"true or false", "true or false"}, tidyBoolean}, "BoolValue": {wanted{"true or false", "true or false"}, wrapped(tidyBoolean)},
	"int32": integer(math.MinInt32, math.MaxInt32), "Int32Value": wrappedInteger(math.MinInt32, math.MaxInt32), "sint32": integer(math.MinInt32, math.MaxInt32),
	"int64": integer(math.MinInt64, math.MaxInt64), "Int64Value": wrappedInteger(math.MinInt64, math.MaxInt64), "sint64": integer(math.MinInt64, math.MaxInt64),
	"uint32": integer(0, math.MaxUint32), "UInt32Value": wrappedInteger(0, math.MaxUint32), "fixed32": integer(0, math.MaxUint32),
	"uint64": integer(0, math.MaxUint64), "UInt64Value": wrappedInteger(0, math.MaxUint64), "fixed64": integer(0, math.MaxUint64),
	"double": {wanted{"a number", "numbers"}, isNumber}, "float": {wanted{"a number", "numbers"}, isNumber},
	"DoubleValue": {wanted{"a number", "numbers"}, wrapped(isNumber)}, "FloatValue": {wanted{"a number", "numbers"}, wrapped(isNumber)},
	"Duration": {wanted{"seconds, such as 0.25s", "durations"}, tidyDuration}, "Timestamp": {wanted{"a time, such as 2026-01-02T03:04:05Z", "times"}, isTime},
	"Any": {wanted{"an object with @type", "objects with @type"}, isObject}, "Struct": {wanted{"an object", "objects"}, isObject}, "Empty": {wanted{"an object", "objects"}, isObject},
	"ListValue": {wanted{"a list", "lists"}, func(n *tree.Node) bool { return n.Kind == tree.List }},
	"Value":     {wanted{"a value", "values"}, func(*tree.Node) bool { return true }},
}

// wanted describes the values of a field.
func (f *field) wanted() wanted {
	if len(f.values) > 0 {
		const most = 8
		var names []string
		for _, v := range f.values {
			if !v.deprecated {
				names = append(names, v.name)
			}
		}
		if len(names) > most {
			return wanted{"a name, such as " + names[0], "names"}
		}
		return wanted{strings.Join(names, " or "), "names"}
	}
	if k, ok := kinds[f.typeName]; ok {
		return k.wanted
	}
	return wanted{"an object", "objects"}
}

// isMessage reports whether the values of a field are messages other than those of protobuf itself.
func (f *field) isMessage() bool { return strings.Contains(f.typeName, ".") && len(f.values) == 0 }

// takes reports whether a value is of the kind that the field has.
func (f *field) takes(n *tree.Node) bool {
	if len(f.values) > 0 {
		return n.Kind == tree.Number && isWhole(n, math.MinInt32, math.MaxInt32) || n.Kind == tree.Text && slices.ContainsFunc(f.values, func(v enumValue) bool { return v.is(n) })
	}
	if k, ok := kinds[f.typeName]; ok {
		return k.takes(n)
	}
	return n.Kind == tree.Object
}

// is reports whether n is the value. Envoy takes its name in any case of letters.
func (v enumValue) is(n *tree.Node) bool {
	return strings.EqualFold(n.Text, v.name) || n.Text == v.number
}

// isEmpty reports whether a field is missing, or is as if it were. An object that is empty is there.
func isEmpty(n *tree.Node) bool {
	return n == nil || n.Kind == tree.Text && n.Text == "" || n.Kind == tree.List && len(n.Nodes) == 0
}

func isObject(n *tree.Node) bool { return n.Kind == tree.Object }

// isText has fractions for text, as they are in YAML for Envoy.
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

// integer is a whole number within bounds.
func integer(least, most float64) kind {
	return kind{wanted{"a whole number", "whole numbers"}, func(n *tree.Node) bool { return isWhole(n, least, most) }}
}

func wrappedInteger(least, most float64) kind {
	k := integer(least, most)
	k.takes = wrapped(k.takes)
	return k
}

// isWhole reports whether n is a whole number within bounds, and writes it in decimal.
func isWhole(n *tree.Node, least, most float64) bool {
	if v, err := strconv.ParseUint(n.Text, 0, 64); err == nil && n.Kind == tree.Number && strings.HasPrefix(n.Text, "0x") {
		n.Text = strconv.FormatUint(v, 10)
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	return (n.Kind == tree.Number || n.Kind == tree.Text) && err == nil && v == math.Trunc(v) && least <= v && v <= most
}

// wrapped has a message such as StringValue for its value.
func wrapped(takes func(*tree.Node) bool) func(*tree.Node) bool {
	return func(n *tree.Node) bool {
		unwrapValue(n)
		return takes(n)
	}
}

// unwrapValue replaces a message such as BoolValue by its value.
func unwrapValue(n *tree.Node) {
	if value := n.Field("value"); n.Kind == tree.Object && value.There() {
		name := n.Name
		*n = *value
		n.Name = name
	}
}

func tidyBoolean(n *tree.Node) bool {
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

// aDuration is one of protobuf's JSON. Envoy rejects negative ones.
const aDuration = `^[0-9]+(\.[0-9]{1,9})?s$`

// tidyDuration makes 5.25s of seconds: 5, nanos: 250000000.
func tidyDuration(n *tree.Node) bool {
	if n.Kind == tree.Object {
		for below := range n.Fields() {
			if below.Name != "seconds" && below.Name != "nanos" {
				return false
			}
		}
		var parts [2]float64
		for i, name := range []string{"seconds", "nanos"} {
			if part := n.Field(name); part.There() {
				if !isWhole(part, 0, mostSeconds) {
					return false
				}
				parts[i], _ = strconv.ParseFloat(part.Text, 64)
			}
		}
		n.Kind, n.Text, n.Nodes = tree.Text, strconv.FormatFloat(parts[0]+parts[1]/1e9, 'f', -1, 64)+"s", nil
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(n.Text, "s"), 64)
	return n.Kind == tree.Text && matches(n, aDuration) && err == nil && seconds <= mostSeconds
}

// mostSeconds is the longest duration of protobuf.
const mostSeconds = 315_576_000_000
