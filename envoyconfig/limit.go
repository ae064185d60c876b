package envoyconfig

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// limitUnits are the names of RateLimitUnit (envoy.type.v3) by number.
var limitUnits = []string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"}

// override returns the limit that the descriptor carries in place of the rules' limit
// (config.route.v3.RateLimit.Override). unknown is the reason if it cannot be determined.
func (e *evaluation) override(x *exchange) (o descriptors.Override, has bool, unknown string) {
	limit := e.node.Field("limit")
	if at := limit.At("dynamic_metadata", "metadata_key"); at.Exists() {
		name := metadataName(at)
		value, given := x.Metadata[name]
		if !given {
			if e.limit.whyUnset != "" {
				return o, false, ""
			}
			return o, false, "limit: metadata " + name + ": " + e.limit.by + "; pass --metadata " + name +
				"={} if no filter sets it"
		}
		o, has = metadataOverride(value)
		return o, has, ""
	}
	if static := limit.Field("rate_limit"); static.Exists() {
		return overrideOf(static), true, ""
	}
	return o, false, ""
}

// overrideOf returns the limit in an object with requests_per_unit and unit.
func overrideOf(n *tree.Node) descriptors.Override {
	unit := slices.Index(limitUnits, n.Field("unit").Enum(limitUnits...))
	return descriptors.Override{RequestsPerUnit: uint32(n.Field("requests_per_unit").Uint(0)), Unit: int32(max(0, unit))} //nolint:gosec // Read rejects larger numbers
}

// constantLimit returns the limit that the policy sends with every descriptor.
func (e *evaluation) constantLimit() (o descriptors.Override, ok bool) {
	at := e.node.At("limit", "rate_limit")
	if e.limit.only != nil && e.limit.only.value.Kind == tree.Object {
		at = e.limit.only.value
	}
	return overrideOf(at), at.Field("requests_per_unit").Exists()
}

// checkOverride warns about a limit that every descriptor carries and that sluice ignores, or that is far above those of
// the rules.
func (k *checker) checkOverride(e *evaluation, reach *descriptors.Reach) {
	const far = 1000
	o, ok := e.constantLimit()
	seconds := rules.Unit(o.Unit).Seconds()
	switch {
	case !ok:
		return
	case seconds == 0:
		k.report(NoEffect, rules.Warning, e.node.Field("limit").Pos(),
			"the limit has no unit, so sluice ignores it: add unit, or remove limit")
		return
	}
	for _, r := range reach.Rules {
		for _, l := range r.Limits {
			if rate := float64(l.RequestsPerUnit) / float64(l.Unit.Seconds()*int64(l.UnitMultiplier)); rate > 0 &&
				float64(o.RequestsPerUnit)/float64(seconds) >= far*rate {
				k.report(NoEffect, rules.Warning, e.node.Field("limit").Pos(), "each request has the limit %d/%v in place of %v of %s, at least %d times as much: correct the number, or remove limit", o.RequestsPerUnit, rules.Unit(o.Unit), l, r.Path(), far)
			}
		}
	}
}

// metadataOverride parses a limit from metadata: {"requests_per_unit": 12, "unit": "HOUR"}. Envoy ignores other
// values.
func metadataOverride(value string) (o descriptors.Override, ok bool) {
	var limit map[string]any
	if json.Unmarshal([]byte(value), &limit) != nil {
		return o, false
	}
	number, isNumber := limit["requests_per_unit"].(float64)
	name, isText := limit["unit"].(string)
	if !isNumber || !isText || number < 0 || number > math.MaxUint32 {
		return o, false
	}
	unit := slices.Index(limitUnits, name)
	if unit < 0 {
		return o, false
	}
	return descriptors.Override{RequestsPerUnit: uint32(number), Unit: int32(unit)}, true //nolint:gosec // few
}
