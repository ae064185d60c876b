package envoyconfig

import (
	"fmt"
	"math"
	"strconv"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// runtimeValues are the values of the runtime in the static layers of a bootstrap, by key.
type runtimeValues map[string]runtimeValue

type runtimeValue struct {
	*tree.Node

	// overriddenBy is a later layer whose values are not in the files; nil if there is none.
	overriddenBy *tree.Node
}

// addLayer adds a layer on top of the previous ones. The admin layer is ignored.
func (r runtimeValues) addLayer(n *tree.Node) {
	if n.Field("rtds_layer").Exists() || n.Field("disk_layer").Exists() {
		for key, value := range r {
			r[key] = runtimeValue{value.Node, n}
		}
		r[formatterFeature] = runtimeValue{&tree.Missing, n}
	}
	r.addValues(n.Field("static_layer"), "")
}

// addValues adds values. Nested objects are keys joined by dots.
func (r runtimeValues) addValues(values *tree.Node, prefix string) {
	for f := range values.Fields() {
		r[prefix+f.Name] = runtimeValue{Node: f}
		if f.Kind == tree.Object {
			r.addValues(f, prefix+f.Name+".")
		}
	}
}

// filterEnabled is the runtime key that disables all rate limit filters without filter_enabled.
const filterEnabled = "ratelimit.http_filter_enabled"

// elementEnabled returns the runtime key that disables the policies with a disable_key.
func elementEnabled(disableKey string) string {
	return "ratelimit." + disableKey + ".http_filter_enabled"
}

// disabled returns why the percentage at key, 100 by default, disables a filter or a policy, or why that is unknown;
// empty if it does not. never is true if the filter or policy never runs. As measured on Envoy 1.40, only the integer
// part of a number counts, and every other value, including false, is 100.
func (r runtimeValues) disabled(key string) (why string, never bool) {
	n, ok := r[key]
	if !ok || n.Kind != tree.Number && n.Kind != tree.Text {
		return "", false
	}
	percent, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case err != nil, percent < 0, percent >= 100, math.IsNaN(percent):
		return "", false
	case n.overriddenBy != nil:
		return fmt.Sprintf("%sthe runtime has %s: %s, at %v, which the layer at %v may change", UnknownPrefix, key,
			n.Text, n.Pos(), n.overriddenBy.Pos()), false
	case percent < 1:
		return fmt.Sprintf("the runtime has %s: %s, at %v", key, n.Text, n.Pos()), true
	default:
		return fmt.Sprintf("%sthe runtime has %s: %s, at %v", UnknownPrefix, key, n.Text, n.Pos()), false
	}
}

// formatterFeature is the runtime key that makes Envoy read descriptor values as format strings.
const formatterFeature = "envoy.reloadable_features.enable_formatter_for_ratelimit_action_descriptor_value"

// mayFormatValues reports whether the runtime makes Envoy read descriptor values as format strings, which it does not by
// default, or has a layer that may do so.
func (r runtimeValues) mayFormatValues() bool {
	value, ok := r[formatterFeature]
	return ok && (value.overriddenBy != nil || value.Bool(false))
}

// percentage is the value of a runtime fraction.
type percentage struct {
	percent float64
	// key is the runtime key that may change it; empty if none does.
	key string
}

// isAlways reports whether a fraction is 100 %, whatever the runtime has.
func (r runtimeValues) isAlways(fraction *tree.Node) bool {
	return r.percentOf(fraction) == percentage{percent: 100}
}

func (p percentage) text() string { return strconv.FormatFloat(p.percent, 'g', 4, 64) }

// percentOf returns the value of a RuntimeFractionalPercent: that of the runtime if its static layers have the key, or
// else the default.
func (r runtimeValues) percentOf(fraction *tree.Node) percentage {
	p := percentage{key: fraction.Field("runtime_key").Text}
	at := fraction.Field("default_value")
	if n, ok := r[p.key]; ok && p.key != "" {
		if n.overriddenBy == nil {
			p.key = ""
		}
		if n.Kind == tree.Object {
			at = n.Node
		} else if whole, err := strconv.ParseFloat(n.Text, 64); err == nil && whole >= 0 {
			p.percent = min(math.Floor(whole), 100)
			return p
		}
	}
	p.percent = percentOf(at)
	return p
}

// percentOf returns the value of a FractionalPercent.
func percentOf(at *tree.Node) float64 {
	all := map[string]float64{
		"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": 1_000_000,
	}[at.Field("denominator").Enum("HUNDRED", "TEN_THOUSAND", "MILLION")]
	if all == 0 {
		return 0
	}
	return min(100*float64(at.Field("numerator").Uint(0))/all, 100)
}
