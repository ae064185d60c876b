package torture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// domain is the domain of the ledger's rules.
const domain = "torture"

// rule describes a rule whose window is so long that no hit expires during a test. All algorithms
// then give equal replies: hit n of a counter leaves limit-n, and a hit beyond the limit is denied.
type rule struct {
	name string
	unit pb.RateLimitUnit
	// perDay is true for a rate of one per day; fields then contain the limit.
	perDay bool
	fields string
}

var rules = []rule{
	// Ten years, the maximum: the next window starts in December 2029.
	{name: "fixed_window", unit: pb.RateLimitUnit_YEAR, fields: "unit_multiplier: 10"},
	{name: "sliding_window", unit: pb.RateLimitUnit_YEAR, fields: "unit_multiplier: 10, algorithm: sliding_window"},
	{name: "sliding_log", unit: pb.RateLimitUnit_YEAR, fields: "unit_multiplier: 10, algorithm: sliding_log"},
	{name: "token_bucket", unit: pb.RateLimitUnit_DAY, perDay: true, fields: "algorithm: token_bucket, burst: LIMIT"},
	{name: "leaky_bucket", unit: pb.RateLimitUnit_DAY, perDay: true, fields: "algorithm: leaky_bucket, slack: SLACK"},
}

// maxLimit is the maximum size of a sliding log.
const maxLimit = 4096

func (l *Ledger) requests(r rule) int {
	if r.perDay {
		return 1
	}
	return l.limit
}

func (l *Ledger) ruleFields(r rule) string {
	return strings.NewReplacer("LIMIT", strconv.Itoa(l.limit), "SLACK", strconv.Itoa(l.limit-1)).Replace(r.fields)
}

// Rules returns the rules of the ledger's counters, followed by more descriptors of the same domain
// as lines of YAML, each "  - {...}".
func (l *Ledger) Rules(more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for _, r := range rules {
		fmt.Fprintf(&b, "  - { key: %s, rate_limit: { name: %s, unit: %s, requests_per_unit: %d, %s } }\n",
			r.name, r.name, strings.ToLower(r.unit.String()), l.requests(r), l.ruleFields(r))
	}
	for _, line := range more {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Resource returns the same rules for a management server. Fields that it cannot send are in
// Defaults.
func (l *Ledger) Resource(more ...*pb.RateLimitDescriptor) *pb.RateLimitConfig {
	c := &pb.RateLimitConfig{Name: domain, Domain: domain}
	for _, r := range rules {
		c.Descriptors = append(c.Descriptors, &pb.RateLimitDescriptor{Key: r.name, RateLimit: &pb.RateLimitPolicy{
			Name: r.name, Unit: r.unit, RequestsPerUnit: uint32(l.requests(r)),
		}})
	}
	c.Descriptors = append(c.Descriptors, more...)
	return c
}

// Defaults returns the --defaults file for Resource.
func (l *Ledger) Defaults() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndefaults:\n", domain)
	for _, r := range rules {
		fmt.Fprintf(&b, "  - { name: %s, rate_limit: { %s } }\n", r.name, l.ruleFields(r))
	}
	return b.String()
}

func isRule(name string) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.name == name })
}
