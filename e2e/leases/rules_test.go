package leases_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const concurrency, bucket = "concurrency", "token_bucket"

// limit is one limit of a rule.
type limit struct {
	name      string
	algorithm string
	number
	amount      int // amount of reserve; 0 for none
	keep        bool
	fields      string // further YAML fields
	countDenied bool
	candidate   bool
	table       string            // name of its table, "" for none
	rows        map[string]number // by tenant
}

// node is a rule for a key. Each value of the key is a tenant.
type node struct {
	domain, key  string
	allOrNothing bool // all_or_nothing
	shadow       bool // shadow_mode
	limits       []*limit
}

// enforced are the limits that can deny.
func (n *node) enforced() []*limit {
	var all []*limit
	for _, l := range n.limits {
		if !l.candidate && !n.shadow {
			all = append(all, l)
		}
	}
	return all
}

// grantsLeases reports whether the rule grants leases that the ledger tracks.
func (n *node) grantsLeases() bool {
	return slices.ContainsFunc(n.enforced(), func(l *limit) bool { return l.amount > 0 || l.algorithm == concurrency })
}

var tenants = []string{"ann", "bob", "cy"}

// numberFor returns the number that is active for a tenant and, if over is not nil, a limit that
// the request contains.
func (l *limit) numberFor(tenant string, over *number) number {
	if over != nil {
		return l.scale(number{n: over.n, unit: over.unit, multiple: 1})
	}
	if row, ok := l.rows[tenant]; ok {
		return row
	}
	return l.number
}

// scale sets the burst of a number that replaces the rule's number: the ratio stays the same.
func (l *limit) scale(n number) number {
	n.burst = n.n
	if l.algorithm == bucket {
		n.burst = n.n * l.burst / l.n
	}
	return n
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// kinds are the limits of the rules.
var kinds = [][]string{
	{"slots"}, {"slots"}, {"reserve"}, {"reserve"}, {"slots", "plain"}, {"reserve", "reserve"}, {"slots", "reserve"}, {"plain"},
}

// rules makes random rules of a seed: two domains of four rules.
func rules(seed int, r *rand.Rand) (nodes []*node) {
	for d := range 2 {
		atOnce := r.IntN(3) == 0
		for k := range 4 {
			n := &node{domain: fmt.Sprintf("s%d-%d", seed, d), key: fmt.Sprint("key", k), allOrNothing: atOnce, shadow: k == 3 && r.IntN(2) == 0}
			kind := kinds[(k+d+r.IntN(2)*4)%8]
			for i, name := range kind {
				unit := pick(r, "hour", "day", "year")
				if len(kind) == 2 && kind[0] == kind[1] { // their windows must differ
					unit = []string{"day", "month"}[i]
				}
				l := random(name, unit, r)
				l.name = fmt.Sprintf("lease%d-%d", k, i)
				l.countDenied = len(kind) == 1 && l.algorithm == "fixed_window" && !atOnce // the default
				n.limits = append(n.limits, l)
			}
			if r.IntN(2) == 0 {
				n.limits[0].fill(fmt.Sprintf("%s-%s", n.domain, n.key), len(kind) == 1, r)
			}
			if r.IntN(3) == 0 {
				n.limits = append(n.limits, &limit{
					name: fmt.Sprintf("candidate%d", k), algorithm: concurrency, candidate: true, number: number{n: 1, unit: "year", multiple: 2},
				})
			}
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func random(kind, unit string, r *rand.Rand) *limit {
	l := &limit{algorithm: pick(r, "fixed_window", "sliding_window", bucket), number: number{unit: unit, multiple: 1 + r.IntN(2)}}
	switch kind {
	case "slots":
		l.algorithm, l.n = concurrency, 1+r.IntN(5)
	case "reserve":
		l.n = pick(r, 1000, 20_000, 1_000_000)
	default:
		l.n = 4 * (1 + r.IntN(5)) // its half and quarter are integers
	}
	if l.burst = l.n; l.algorithm == bucket {
		l.burst = pick(r, l.n, l.n/2, 2*l.n)
	}
	if l.algorithm == "sliding_window" {
		l.fields = fmt.Sprintf(", sub_windows: %d", pick(r, 1, 10, 60))
	}
	if strings.HasSuffix(l.algorithm, "_window") && l.multiple == 1 && unit != "hour" && r.IntN(3) == 0 {
		l.fields += ", calendar: true" // in UTC, so that windows end with an hour
	}
	if kind == "reserve" {
		l.amount, l.keep = l.burst/(1+r.IntN(6)), r.IntN(2) == 0
	}
	return l
}

// fill adds rows for some tenants. The rows have units only if the rule has a single limit:
// otherwise two limits could get the same window.
func (l *limit) fill(table string, only bool, r *rand.Rand) {
	l.table, l.rows = table, map[string]number{}
	for _, tenant := range tenants[:1+r.IntN(2)] {
		row := l.number
		row.n = pick(r, 0, l.n*2, l.n*2, l.n*3, max(1, l.n/2))
		if only && r.IntN(2) == 0 {
			row.unit, row.multiple = pick(r, "hour", "day", "month", "year"), 1
		}
		row.unlimited = r.IntN(8) == 0
		l.rows[tenant] = l.scale(row)
	}
}

// yaml returns the rules as a file, a document for each domain.
func yaml(nodes []*node) string {
	var b strings.Builder
	domain := ""
	for _, n := range nodes {
		if n.domain != domain {
			domain = n.domain
			fmt.Fprintf(&b, "---\ndomain: %s\nall_or_nothing: %t\ndescriptors:\n", domain, n.allOrNothing)
		}
		if len(n.limits) == 1 {
			fmt.Fprintf(&b, "  - { key: %s, shadow_mode: %t, rate_limit: %s }\n", n.key, n.shadow, n.limits[0].yaml())
			continue
		}
		fmt.Fprintf(&b, "  - key: %s\n    shadow_mode: %t\n    rate_limits:\n", n.key, n.shadow)
		for _, l := range n.limits {
			fmt.Fprintf(&b, "      - %s\n", l.yaml())
		}
	}
	return b.String()
}

func (l *limit) yaml() string {
	text := fmt.Sprintf("{ name: %s, algorithm: %s, unit: %s, unit_multiplier: %d, requests_per_unit: %d", l.name, l.algorithm, l.unit, l.multiple, l.n)
	if l.algorithm == bucket && l.burst != l.n {
		text += fmt.Sprintf(", burst: %d", l.burst)
	}
	if l.amount > 0 {
		text += fmt.Sprintf(", reserve: { amount: %d, ttl: 1h, unsettled: %s }", l.amount, map[bool]string{true: "keep", false: "release"}[l.keep])
	}
	if text += l.fields; l.candidate {
		text += ", shadow: true"
	}
	if l.table != "" {
		text += ", table: " + l.table
	}
	return text + " }"
}

// csv returns the rows of a limit's table.
func (l *limit) csv(key string) string {
	b := strings.Builder{}
	fmt.Fprintf(&b, "%s,requests_per_unit,unit,unlimited\n", key)
	for _, tenant := range tenants {
		row, ok := l.rows[tenant]
		switch unit := row.unit; {
		case !ok:
		case row.unlimited:
			fmt.Fprintf(&b, "%s,,,true\n", tenant)
		default:
			if row.unit == l.unit && row.multiple == l.multiple {
				unit = "" // the unit of the rule
			}
			fmt.Fprintf(&b, "%s,%d,%s,\n", tenant, row.n, unit)
		}
	}
	return b.String()
}
