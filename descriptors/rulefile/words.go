package rulefile

import "slices"

// vocabulary is the words that mean something in one kind of map.
type vocabulary struct {
	// where is how diagnostics name the place, as in `unknown word "x" in a descriptor`.
	where string
	words []string
}

// The vocabularies of a file. The order of the words is that of the documentation.
var (
	rootWords = vocabulary{"at the top level", []string{
		"domain", "descriptors", "all_or_nothing", "max_counters",
	}}
	descriptorWords = vocabulary{"in a descriptor", []string{
		"key", "value", "rate_limit", "rate_limits", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata",
	}}
	limitWords = vocabulary{"in rate_limit", append([]string{
		"unit", "requests_per_unit", "unlimited", "name", "replaces", "shadow", "reserve", "penalty", "quota",
	}, newLimitWords...)}
	reserveWords  = vocabulary{"in reserve", []string{"amount", "p90", "first", "ttl", "unsettled"}}
	quotaWords    = vocabulary{"in quota", []string{"burst", "min_tokens", "approximate"}}
	replacesWords = vocabulary{"in an item of replaces", []string{"name"}}
)

// newLimitWords are those words of rate_limit that envoyproxy/ratelimit lacks and a file
// of defaults can give.
var newLimitWords = []string{
	"unit_multiplier", "algorithm", "sub_windows", "burst", "slack", "max_wait", "max_waiting", "count_refused",
	"calendar", "timezone", "anchor_day", "table",
}

// The vocabularies of a file of defaults.
var (
	defaultsRootWords = vocabulary{"at the top level of defaults", []string{
		"domain", "all_or_nothing", "max_counters", "defaults",
	}}
	defaultWords      = vocabulary{"in an item of defaults", []string{"name", "path", "rate_limit"}}
	defaultPathWords  = vocabulary{"in an item of path", []string{"key", "value"}}
	defaultLimitWords = vocabulary{"in rate_limit of defaults", append([]string{"name"}, newLimitWords...)}
)

func vocabularies() []vocabulary {
	return []vocabulary{rootWords, descriptorWords, limitWords, reserveWords, quotaWords, replacesWords}
}

// referenceWords are the words of envoyproxy/ratelimit. It accepts each of them in any map
// of a file and ignores it if it has no meaning there.
var referenceWords = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited",
	"name", "replaces", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
	"share_threshold", "metadata",
}

// homes returns the vocabularies in which word has a meaning.
func homes(word string) []vocabulary {
	var found []vocabulary
	for _, v := range vocabularies() {
		if slices.Contains(v.words, word) {
			found = append(found, v)
		}
	}
	return found
}
