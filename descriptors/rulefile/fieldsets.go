package rulefile

import "slices"

// fieldSet is the set of fields that one kind of map can have.
type fieldSet struct {
	// where describes the map in diagnostics, as in `unknown field "x" in a descriptor`.
	where string
	names []string
}

// The field sets of a file of rules, in the order of the documentation.
var (
	rootFields = fieldSet{"at the top level", []string{
		"domain", "descriptors", "all_or_nothing", "max_counters", "denied_response", "exempt",
	}}
	exemptFields     = fieldSet{"in an item of exempt", []string{"key", "value", "values", "cidr"}}
	descriptorFields = fieldSet{"in a descriptor", []string{
		"key", "value", "values", "cidr", "prefix", "rate_limit", "rate_limits", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata", "denied_response", "charge",
	}}
	limitFields = fieldSet{"in rate_limit", append([]string{
		"unit", "requests_per_unit", "unlimited", "name", "replaces", "shadow", "quota", "counter",
	}, defaultableFields...)}
	cidrFields     = fieldSet{"in cidr", []string{"file"}}
	prefixFields   = fieldSet{"in prefix", []string{"v4", "v6"}}
	reserveFields  = fieldSet{"in reserve", []string{"amount", "p90", "first", "ttl", "unsettled"}}
	quotaFields    = fieldSet{"in quota", []string{"burst", "min_tokens", "approximate"}}
	replacesFields = fieldSet{"in an item of replaces", []string{"name"}}
	deniedFields   = fieldSet{"in denied_response", []string{"content_type", "body", "headers", "grpc"}}
)

// defaultableFields are the fields of rate_limit that envoyproxy/ratelimit lacks and that defaults
// can set.
var defaultableFields = []string{
	"reserve", "penalty", "unit_multiplier", "algorithm", "sub_windows", "burst", "slack", "max_wait", "max_waiting", "count_refused",
	"calendar", "timezone", "anchor_day", "hidden", "soft", "notify_at", "table", "blocks",
}

// The field sets of a file of defaults.
var (
	defaultsRootFields = fieldSet{"at the top level of defaults", []string{
		"domain", "all_or_nothing", "max_counters", "denied_response", "exempt", "defaults",
	}}
	defaultItemFields = fieldSet{"in an item of defaults", []string{
		"name", "path", "rate_limit", "denied_response", "detailed_metric", "shadow_mode", "values", "cidr", "prefix",
	}}
	defaultPathFields  = fieldSet{"in an item of path", []string{"key", "value"}}
	defaultLimitFields = fieldSet{"in rate_limit of defaults", append([]string{"name", "unit"}, defaultableFields...)}
)

func fieldSets() []fieldSet {
	return []fieldSet{
		rootFields, descriptorFields, cidrFields, prefixFields, limitFields, reserveFields, quotaFields, replacesFields, deniedFields,
		exemptFields,
	}
}

// referenceFields are the fields of envoyproxy/ratelimit. It accepts each of them in any map and
// ignores it where it has no meaning.
var referenceFields = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited",
	"name", "replaces", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
	"share_threshold", "metadata",
}

// fieldSetsOf returns the field sets with the given field.
func fieldSetsOf(field string) []fieldSet {
	var found []fieldSet
	for _, v := range fieldSets() {
		if slices.Contains(v.names, field) {
			found = append(found, v)
		}
	}
	return found
}
