package descriptors

import "slices"

// level is a kind of map in a file of rules, with the words that mean something
// in it.
type level struct {
	// where is how diagnostics name the level, as in `unknown word "x" in a descriptor`.
	where string
	words []string
}

// The levels of a file. The order of the words is that of the documentation.
var (
	rootLevel = level{"at the top level", []string{
		"domain", "descriptors", "all_or_nothing",
	}}
	descriptorLevel = level{"in a descriptor", []string{
		"key", "value", "rate_limit", "rate_limits", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata",
	}}
	limitLevel = level{"in rate_limit", []string{
		"unit", "requests_per_unit", "unlimited", "name", "replaces",
		"unit_multiplier", "algorithm", "count_refused",
	}}
	replacesLevel = level{"in an item of replaces", []string{"name"}}
)

func allLevels() []level {
	return []level{rootLevel, descriptorLevel, limitLevel, replacesLevel}
}

// referenceWords are the words of envoyproxy/ratelimit. It accepts each of them
// in any map of a file and ignores it where it has no meaning.
var referenceWords = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited",
	"name", "replaces", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
	"share_threshold", "metadata",
}

// homes returns the levels in which word has a meaning.
func homes(word string) []level {
	var found []level
	for _, l := range allLevels() {
		if slices.Contains(l.words, word) {
			found = append(found, l)
		}
	}
	return found
}

// algorithms are the values that the word algorithm accepts; laterAlgorithms are
// known by name only, so that their diagnostic is not about spelling.
var (
	algorithms      = []string{"fixed_window"}
	laterAlgorithms = []string{"sliding_window", "sliding_log", "token_bucket", "leaky_bucket"}
)

// units are all units, shortest first, for diagnostics and the schema.
var units = []Unit{Second, Minute, Hour, Day, Week, Month, Year}

func unitNames() []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.String()
	}
	return names
}
