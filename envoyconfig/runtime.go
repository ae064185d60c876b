package envoyconfig

import (
	"fmt"
	"math"
	"strconv"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// runtimeValues are what the static layers of a bootstrap say of Envoy's runtime, by key. Layers that come from
// elsewhere are not known.
type runtimeValues map[string]*tree.Node

// add takes in a layer over those before it. Objects are keys with dots between their names.
func (r runtimeValues) add(layer *tree.Node, prefix string) {
	for f := range layer.Fields() {
		r[prefix+f.Name] = f
		if f.Kind == tree.Object {
			r.add(f, prefix+f.Name+".")
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
	n := r[key]
	if n == nil || n.Kind != tree.Number && n.Kind != tree.Text {
		return "", false
	}
	percent, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case err != nil, percent < 0, percent >= 100, math.IsNaN(percent):
		return "", false
	case percent < 1:
		return fmt.Sprintf("the runtime has %s: %s, at %v", key, n.Text, n.Pos()), true
	default:
		return fmt.Sprintf("%sthe runtime has %s: %s, at %v", Unknowable, key, n.Text, n.Pos()), false
	}
}
