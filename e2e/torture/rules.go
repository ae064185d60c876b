package torture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// domain is that of the ledgers.
const domain = "torture"

// rules are one for each algorithm. Their windows are so long that nothing comes
// back while a test runs, so that all of them say the same: the hit numbered n of a
// counter is told that limit-n remain, and one beyond the limit is refused.
var rules = []struct{ name, words string }{
	// Ten years, the longest: the next window begins in December 2029.
	{"fixed_window", "unit: year, unit_multiplier: 10, requests_per_unit: LIMIT"},
	{"sliding_window", "unit: year, unit_multiplier: 10, requests_per_unit: LIMIT, algorithm: sliding_window"},
	{"sliding_log", "unit: year, unit_multiplier: 10, requests_per_unit: LIMIT, algorithm: sliding_log"},
	{"token_bucket", "unit: day, requests_per_unit: 1, algorithm: token_bucket, burst: LIMIT"},
	{"leaky_bucket", "unit: day, requests_per_unit: 1, algorithm: leaky_bucket, slack: SLACK"},
}

// mostLimit is what a sliding log may hold.
const mostLimit = 4096

// Rules returns the rules whose counters the ledger knows, and more descriptors as
// lines of YAML, each "  - {...}".
func (l *Ledger) Rules(more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	words := strings.NewReplacer("LIMIT", strconv.Itoa(l.limit), "SLACK", strconv.Itoa(l.limit-1))
	for _, r := range rules {
		fmt.Fprintf(&b, "  - { key: %s, rate_limit: { name: %s, %s } }\n", r.name, r.name, words.Replace(r.words))
	}
	for _, line := range more {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func isRule(name string) bool {
	return slices.ContainsFunc(rules, func(r struct{ name, words string }) bool { return r.name == name })
}
