package envoyconfig

import (
	"fmt"
	"math"
	"strconv"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// runtimeValues are the values of Envoy's runtime in the static layers of a bootstrap, by key.
type runtimeValues map[string]runtimeValue

type runtimeValue struct {
	*tree.Node

	// overriddenBy is a later layer whose values come from elsewhere, nil without one.
	overriddenBy *tree.Node
}

// addLayer takes in a layer over those before it. What an administrator may change is left out.
func (r runtimeValues) addLayer(n *tree.Node) {
	if n.Field("rtds_layer").Exists() || n.Field("disk_layer").Exists() {
		for key, value := range r {
			r[key] = runtimeValue{value.Node, n}
		}
	}
	r.addValues(n.Field("static_layer"), "")
}

// addValues takes in values. Objects are keys with dots between their names.
func (r runtimeValues) addValues(values *tree.Node, prefix string) {
	for f := range values.Fields() {
		r[prefix+f.Name] = runtimeValue{Node: f}
		if f.Kind == tree.Object {
			r.addValues(f, prefix+f.Name+".")
		}
	}
}

// filterEnabled is the runtime's key that switches all rate limit filters without filter_enabled off.
const filterEnabled = "ratelimit.http_filter_enabled"

// elementEnabled is the runtime's key that switches elements of rate_limits off by their disable_key.
func elementEnabled(disableKey string) string {
	return "ratelimit." + disableKey + ".http_filter_enabled"
}

// disabled says why the percentage of a key, 100 unless the runtime has it, switches something off, or for
// which that is not known; empty if it does not. As measured on 1.40, a number counts by its whole part, and
// everything else, false too, is 100.
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
		return fmt.Sprintf("%sthe runtime has %s: %s, at %v, which the layer at %v may change", Unknowable, key, n.Text, n.Pos(), n.overriddenBy.Pos()), false
	case percent < 1:
		return fmt.Sprintf("the runtime has %s: %s, at %v", key, n.Text, n.Pos()), true
	default:
		return fmt.Sprintf("%sthe runtime has %s: %s, at %v", Unknowable, key, n.Text, n.Pos()), false
	}
}
