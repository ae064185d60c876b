package api

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// kind is a kind of value other than a message.
type kind struct {
	// want describes the kind.
	want string
	// accepts reports whether a value is of the kind, and normalizes a value that Envoy accepts in several forms.
	accepts func(n *tree.Node) bool
}

// kinds are the kinds of values by their names in the schema.
var kinds = map[string]kind{
	"text":     {"text", scalar(isText)},
	"name":     {"a name", func(n *tree.Node) bool { return n.Kind == tree.Text || n.Kind == tree.Number }},
	"number":   {"a number", scalar(isNumber)},
	"bool":     {"true or false", scalar(normalizeBoolean)},
	"duration": {"seconds, such as 0.25s", normalizeDuration},
	"any":      {"an object with @type", isObject},
	"object":   {"an object", isObject},
	"value":    {"a value", (*tree.Node).Exists},
}

func isObject(n *tree.Node) bool { return n.Kind == tree.Object }

// scalar accepts a wrapper message such as BoolValue in place of its value.
func scalar(accepts func(*tree.Node) bool) func(*tree.Node) bool {
	return func(n *tree.Node) bool {
		if value := n.Field("value"); value.Exists() {
			name := n.Name
			*n = *value
			n.Name = name
		}
		return accepts(n)
	}
}

// isText accepts fractional numbers, because they are text in Envoy's YAML.
func isText(n *tree.Node) bool {
	_, err := strconv.ParseInt(n.Text, 0, 64)
	return n.Kind == tree.Text || n.Kind == tree.Number && err != nil
}

// isNumber reports whether n is a number, and converts hexadecimal ones.
func isNumber(n *tree.Node) bool {
	if v, err := strconv.ParseUint(n.Text, 0, 64); err == nil && strings.HasPrefix(n.Text, "0x") {
		n.Text = strconv.FormatUint(v, 10)
	}
	_, err := strconv.ParseFloat(n.Text, 64)
	return err == nil && (n.Kind == tree.Number || n.Kind == tree.Text)
}

func normalizeBoolean(n *tree.Node) bool {
	switch text := strings.ToLower(n.Text); {
	case n.Kind != tree.Boolean && n.Kind != tree.Text:
		return false
	case text == "true", text == "t", text == "yes", text == "y", text == "1", text == "on" && n.Kind == tree.Boolean:
		n.Text = "true"
	case text == "false", text == "f", text == "no", text == "n", text == "0", text == "off" && n.Kind == tree.Boolean:
		n.Text = "false"
	default:
		return false
	}
	n.Kind = tree.Boolean
	return true
}

// durationPattern matches a duration of protobuf's JSON.
var durationPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]{1,9})?s$`)

// normalizeDuration converts {seconds: 5, nanos: 250000000} to 5.25s. It converts 250ms to 0.25s, because istiod accepts
// durations of Go in EnvoyFilters.
func normalizeDuration(n *tree.Node) bool {
	if n.Kind == tree.Object {
		seconds := float64(n.Field("seconds").Uint(0)) + float64(n.Field("nanos").Uint(0))/1e9
		n.Kind = tree.Text
		n.Text = strconv.FormatFloat(seconds, 'f', -1, 64) + "s"
		n.Nodes = nil
	}
	if n.Kind != tree.Text || durationPattern.MatchString(n.Text) {
		return n.Kind == tree.Text
	}
	d, err := time.ParseDuration(n.Text)
	if err == nil {
		n.Text = strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
	}
	return err == nil && d >= 0
}
