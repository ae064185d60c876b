package envoyconfig

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
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
			if e.limit.none != "" {
				return o, false, ""
			}
			return o, false, "limit: metadata " + name + ": " + e.limit.by + "; pass --metadata " + name + "={} if no filter sets it"
		}
		o, has = metadataOverride(value)
		return o, has, ""
	}
	static := limit.Field("rate_limit")
	if !static.Exists() {
		return o, false, ""
	}
	o.RequestsPerUnit = uint32(static.Field("requests_per_unit").Uint(0)) //nolint:gosec // Read rejects larger numbers
	unit := static.Field("unit").Enum(limitUnits...)
	o.Unit = int32(max(0, slices.Index(limitUnits, unit))) //nolint:gosec // few
	return o, true, ""
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
