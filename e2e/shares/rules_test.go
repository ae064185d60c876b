//go:build more

package shares_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// rows are the numbers of a table.
var rows = map[string]int{"t0": unlimited, "t1": 0, "t2": 5, "t3": 300, "t4": 50}

const table = "tenant,requests_per_unit,unlimited\nt0,,true\nt1,0,\nt2,5,\nt3,300,\nt4,50,\n"

var algorithms = []string{
	"fixed_window", "fixed_window, calendar: true", "sliding_window, sub_windows: 4", "sliding_log", "token_bucket", "leaky_bucket",
}

// randomLimit returns a limit of at most n with another algorithm than the given one.
func randomLimit(r *rand.Rand, name string, n int, not string) limit {
	l := limit{name: name, algorithm: not, n: 1 + r.IntN(min(n, 4096))}
	for l.algorithm == not {
		l.algorithm = algorithms[r.IntN(len(algorithms))]
	}
	return l
}

// sharing returns the limit with a shared counter of its name.
func (l limit) sharing() limit {
	l.shared = l.name
	return l
}

// randomDomain returns a domain with two choices, which may have one pool, and another shared counter.
func randomDomain(r *rand.Rand, name string, scale int) *domain {
	own, pool := randomLimit(r, "guaranteed", 120*scale, ""), randomLimit(r, "pool", 1200*scale, "").sharing()
	own.table = r.IntN(2) == 0 && own.algorithm != "leaky_bucket"
	tenant, team := []limit{own, pool}, []limit{randomLimit(r, "team", 100*scale, ""), pool}
	if r.IntN(3) == 0 {
		tenant = []limit{own, randomLimit(r, "second", 60*scale, own.algorithm), pool}
	}
	if r.IntN(2) == 0 {
		tenant = append(tenant, limit{name: "included", algorithm: "fixed_window", n: 1 + r.IntN(500), soft: true})
	}
	switch r.IntN(4) {
	case 0:
		team[1] = randomLimit(r, "pool2", 900*scale, "").sharing()
	case 1:
		team[0], team[1] = team[1], team[0]
	}
	total := randomLimit(r, "total", 1200*scale, "").sharing()
	return &domain{name: name, together: r.IntN(2) == 0, used: map[string]int{}, rules: []*rule{
		{key: "tenant", choice: true, limits: tenant},
		{key: "team", choice: true, shadow: r.IntN(3) == 0, limits: team},
		{key: "user", limits: []limit{randomLimit(r, "user", 300*scale, total.algorithm), total}},
		{key: "partner", limits: []limit{total}},
	}}
}

// yaml returns the rules of the domain.
func (d *domain) yaml() string {
	var text strings.Builder
	add := func(condition bool, format string, args ...any) {
		if condition {
			fmt.Fprintf(&text, format, args...)
		}
	}
	add(true, "---\ndomain: %s\nall_or_nothing: %v\n", d.name, d.together)
	add(d.max > 0, "max_counters: %d\n", d.max)
	add(true, "descriptors:\n")
	for _, rule := range d.rules {
		add(true, "  - key: %s\n    shadow_mode: %v\n", rule.key, rule.shadow)
		add(rule.choice, "    charge: first_with_room\n")
		add(true, "    rate_limits:\n")
		for _, l := range rule.limits {
			add(true, "      - { name: %s, unit: year, requests_per_unit: %d, algorithm: %s", l.name, l.n, l.algorithm)
			add(l.algorithm != algorithms[1], ", unit_multiplier: 8")
			add(l.algorithm == "leaky_bucket", ", slack: %d", l.n-1)
			add(l.shared != "", ", counter: %s", l.shared)
			add(l.table, ", table: rows")
			add(l.soft, ", soft: true")
			add(!l.soft, ", count_refused: false")
			add(true, " }\n")
		}
	}
	return text.String()
}

// randomRequest returns the descriptors of a request.
func (d *domain) randomRequest(r *rand.Rand, refunds bool) (calls []call) {
	some := [][]int{{0}, {0}, {0}, {0}, {0, 1}, {1, 0}, {1}, {2}, {2, 0}, {0, 3}, {3}, {1, 2, 0}}
	for _, i := range some[r.IntN(len(some))] {
		c := call{d.rules[i], fmt.Sprint("t", r.IntN(20)), 1 + r.IntN(100)}
		switch n := r.IntN(20); {
		case n < 2:
			c.hits = 0
		case n < 5 && refunds:
			c.hits = -c.hits
		case n < 12:
			c.hits = 1 + r.IntN(8)
		}
		calls = append(calls, c)
	}
	return calls
}
