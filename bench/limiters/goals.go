package main

import (
	"fmt"
	"strings"
)

// A goal is what sluice set out to reach, and what was found.
type goal struct {
	what  string
	found []string // one for each algorithm that it is for
	met   bool
	// open says that nothing was measured.
	open bool
}

// check adds what was found for one algorithm.
func (g *goal) check(who string, value float64, format string, met bool) {
	if len(g.found) == 0 {
		g.met, g.open = true, false
	}
	g.found = append(g.found, strings.TrimPrefix(who, "sluice, ")+" "+fmt.Sprintf(format, value))
	g.met = g.met && met
}

func (g *goal) verdict() string {
	switch {
	case g.open:
		return "not measured"
	case g.met:
		return "met"
	default:
		return "**missed**"
	}
}

// goals compares the results with what was aimed at.
func (m *run) goals() []goal {
	var all []goal
	add := func(what string, check func(g *goal)) {
		g := goal{what: what, open: true}
		check(&g)
		all = append(all, g)
	}
	faster := func(g *goal, p *policy, measure, than string, least float64) {
		if r, ok := m.results.ratio(measure, than, measure, p.title()); ok {
			g.check(p.title(), r.Median, "%.1f", r.Median >= least)
		}
	}
	for _, k := range []struct {
		name, what, than string
		least            float64
	}{
		{"uniform", "uniform", xrate, 6},
		{"uniform", "uniform", sethvargoName, 2.5},
		{"zipf", "by Zipf's law", xrate, 3.5},
		{"zipf", "by Zipf's law", sethvargoName, 2},
	} {
		add(fmt.Sprintf("%s counters, %s: at least %g times faster than %s", count(m.o.counters), k.what, k.least, k.than), func(g *goal) {
			for i := range m.policies {
				if m.policies[i].oneWord {
					faster(g, &m.policies[i], k.name, k.than, k.least)
				}
			}
		})
	}
	add("denials: CPU time of each with two threads at most 1.15 times that with one", func(g *goal) {
		for i := range m.policies {
			who := m.policies[i].title()
			if r, ok := m.results.ratio("denied2", who, "denied1", who); ok {
				g.check(who, r.Median, "%.2f", r.Median <= 1.15)
			}
		}
	})
	add("two limits on one request: at most 4 times the time of one", func(g *goal) {
		for i := range m.policies {
			who := m.policies[i].title()
			if r, ok := m.results.ratio("two limits", who, "one limit", who); ok {
				g.check(who, r.Median, "%.2f", r.Median <= 4)
			}
		}
	})
	add("decisions allocate nothing", func(g *goal) {
		for i := range m.policies {
			who, most := m.policies[i].title(), 0.0
			for measure := range m.results.by {
				if f := m.results.of(measure, who); len(f.allocs) > 0 {
					most = max(most, median(f.allocs))
				}
			}
			g.check(who, most, "%.2f", most < 0.01)
		}
	})
	add("a new counter: at most 700 ns", func(g *goal) {
		for i := range m.policies {
			who := m.policies[i].title()
			if ns := m.results.of("new", who).nanos; len(ns) > 0 {
				g.check(who, median(ns), "%.0f ns", median(ns) <= 700)
			}
		}
	})
	add(fmt.Sprintf("memory of a live counter among %s: at most 36 bytes for one word, 150 for a ring of ten", count(m.o.counters)), func(g *goal) {
		for i := range m.policies {
			p := &m.policies[i]
			most := 36.0
			if !p.oneWord {
				most = 150
			}
			if found := m.memory[p.title()]; found != nil && (p.oneWord || p.fast) {
				g.check(p.title(), found.perCounter(), "%.1f", found.perCounter() <= most && found.Evicted == 0)
			}
		}
	})
	add(fmt.Sprintf("a collection beside %s counters: at most 5 ms of CPU time", count(m.o.many)), func(g *goal) {
		for i := range m.policies {
			if found := m.collector[m.policies[i].title()]; found != nil {
				ms := found.Collect.Seconds() * 1e3
				g.check(m.policies[i].title(), ms, "%.1f ms", ms <= 5)
			}
		}
	})
	return all
}

// losses says, for each case, which peers were faster than the algorithm that
// peers are compared with, or smaller.
func (m *run) losses() []string {
	var out []string
	ours := m.reference()
	say := func(what string, of func(c *contender) (ratio float64, ok bool)) {
		var winners []string
		for _, c := range m.contenders {
			if r, ok := of(c); ok && r < 1 && !c.ours && !c.baseline {
				winners = append(winners, fmt.Sprintf("%s %.2f", c.name, r))
			}
		}
		if len(winners) > 0 {
			out = append(out, what+": "+strings.Join(winners, ", "))
		}
	}
	for _, k := range append(m.columns(), column{"given", "time given"}, column{"given denied", "time given, denied"}) {
		say(k.title, func(c *contender) (float64, bool) {
			r, ok := m.results.ratio(k.name, c.name, k.name, ours)
			return r.Median, ok
		})
	}
	say("bytes per counter", func(c *contender) (float64, bool) {
		a, b := m.memory[c.name], m.memory[ours]
		if a == nil || b == nil {
			return 0, false
		}
		return a.perCounter() / b.perCounter(), true
	})
	return out
}

// reference returns the algorithm that peers are compared with.
func (m *run) reference() string {
	for i := range m.policies {
		if m.policies[i].title() == reference {
			return reference
		}
	}
	if len(m.policies) == 0 {
		return ""
	}
	return m.policies[0].title()
}
