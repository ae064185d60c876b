package main

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// count writes a number of counters.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n >= 10_000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	default:
		return strconv.Itoa(n)
	}
}

// A column is a measure in the table of keyed decisions.
type column struct{ name, title string }

func (m *run) columns() []column {
	var out []column
	for _, group := range keyedCases(m.o) {
		for _, k := range group.cases {
			out = append(out, column{k.name, k.title})
		}
	}
	return append(out, column{"new", "new"})
}

// print writes everything.
func (m *run) print(p *report.Page, args []string, other float64) {
	p.Line("# Limiters\n")
	p.Command("limiters", args)
	p.Line("%s, %d cores, %s/%s; %s; %s.\n", report.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Now().UTC().Format(time.DateOnly))
	share := 0.0
	if len(m.results.share) > 0 {
		share = median(m.results.share)
	}
	p.Line("CPU time in nanoseconds, medians of %d interleaved rounds of %v. Other work took %.0f%% of the machine; a thread had", m.o.rounds, m.o.slice, other*100)
	p.Line("%.0f%% of a core in the median. In parentheses: times the time of %s in the same round.\n", share*100, m.reference())
	m.printShort(p)
	m.printKeyed(p)
	m.printMemory(p)
	m.printGiven(p)
	m.printGoals(p)
	if len(m.notes) > 0 {
		p.Line("\n## Notes\n")
		slices.Sort(m.notes)
		for _, n := range slices.Compact(m.notes) {
			p.Line("- %s", n)
		}
	}
}

// printShort writes the table that the project's README has.
func (m *run) printShort(p *report.Page) {
	p.Line("## In short\n")
	measures := slices.DeleteFunc(m.columns(), func(k column) bool {
		return k.name == "thousand" || k.name == "denied1"
	})
	head := []string{"CPU time of a decision, ns"}
	for _, k := range measures {
		head = append(head, k.title)
	}
	p.Head(append(head, "bytes per counter", fmt.Sprintf("a collection beside %s, ms", count(m.o.many)))...)
	for _, c := range m.contenders {
		found, gc := m.memory[c.name], m.collector[c.name]
		if found == nil || gc == nil {
			continue
		}
		cells := []string{c.name}
		for _, k := range measures {
			cells = append(cells, m.nanos(k.name, c.name))
		}
		p.Row(append(cells, fmt.Sprintf("%.0f", found.perCounter()), fmt.Sprintf("%.1f", gc.Collect.Seconds()*1e3))...)
	}
	p.Line("")
}

func (m *run) printKeyed(p *report.Page) {
	p.Line("## Keyed\n")
	p.Line("Building the identity out of %d bytes, reading the clock, finding the counter and deciding. Two threads where the", len(keyText))
	p.Line("column does not say one; `new` is the first hit of a counter, one thread.\n")
	columns := m.columns()
	head := []string{"limiter", "counters in"}
	for _, k := range columns {
		head = append(head, k.title)
	}
	p.Head(append(head, "allocations: old, new")...)
	for _, c := range m.contenders {
		cells := []string{c.name, c.keys}
		for _, k := range columns {
			cells = append(cells, m.cell(k.name, c.name))
		}
		p.Row(append(cells, m.allocs(columns, c.name))...)
	}
	p.Line("")
}

// cell is a time with its ratio to the reference, and how much was admitted if
// that is not what the case is about.
func (m *run) cell(measure, who string) string {
	f, out := m.results.of(measure, who), m.nanos(measure, who)
	if len(f.nanos) == 0 {
		return out
	}
	if r, ok := m.results.ratio(measure, who, measure, m.reference()); ok && who != m.reference() {
		out += fmt.Sprintf(" (%.1f)", r.Median)
	}
	switch admitted := median(f.admitted); {
	case strings.Contains(measure, "denied"):
		if admitted > 0.01 && who != baseline.name {
			out += fmt.Sprintf(", %.0f%% admitted", admitted*100)
		}
	case admitted < 0.99:
		out += fmt.Sprintf(", %.0f%% admitted", admitted*100)
	}
	return out
}

// nanos is a time, or a dash if it was not measured.
func (m *run) nanos(measure, who string) string {
	f := m.results.of(measure, who)
	if len(f.nanos) == 0 {
		return "–"
	}
	return figure(median(f.nanos))
}

// figure writes a time with as many digits as mean anything.
func figure(ns float64) string {
	if ns < 99.5 {
		return fmt.Sprintf("%.1f", ns)
	}
	return fmt.Sprintf("%.0f", ns)
}

// allocs are the most allocations of a decision on an old counter, and those on a
// new one.
func (m *run) allocs(columns []column, who string) string {
	most := 0.0
	for _, k := range columns {
		if k.name != "new" {
			most = max(most, median(m.results.of(k.name, who).allocs))
		}
	}
	return fmt.Sprintf("%.0f, %.1f", most, median(m.results.of("new", who).allocs))
}

func (m *run) printMemory(p *report.Page) {
	p.Line("## Memory\n")
	p.Line("Bytes per counter with %s live ones, and CPU time of one forced garbage collection beside %s.\n", count(m.o.counters), count(m.o.many))
	p.Head("limiter", "on the heap", "resident", "collection, ms")
	ours := m.collector[m.reference()]
	for _, c := range m.contenders {
		found, gc := m.memory[c.name], m.collector[c.name]
		if found == nil || gc == nil {
			continue
		}
		n := float64(found.Counters)
		took := fmt.Sprintf("%.1f", gc.Collect.Seconds()*1e3)
		if ours != nil && !c.ours {
			took += fmt.Sprintf(" (%.0f)", gc.Collect.Seconds()/ours.Collect.Seconds())
		}
		p.Row(c.name, fmt.Sprintf("%.1f", float64(found.Heap)/n), fmt.Sprintf("%.1f", float64(found.RSS)/n), took)
	}
	p.Line("")
}

func (m *run) printGiven(p *report.Page) {
	p.Line("## Decisions alone\n")
	p.Line("One thread, the time given. One limiter, admitted and denied: x/time/rate's in hand, sluice's the only counter of a table;")
	p.Line("then two limits, of a minute and of a day, on each of %d users in a table: now the one, now the other, or both together;\nin parentheses, times the time of one.\n", pairUsers)
	p.Head("limiter", "admitted", "denied", "one limit", "two limits", "two, the second denies")
	for _, c := range m.contenders {
		if c.name != xrate && !c.ours {
			continue
		}
		cells := []string{c.name}
		for _, measure := range []string{"given", "given denied"} {
			cells = append(cells, m.cell(measure, c.name))
		}
		for _, measure := range []string{"one limit", "two limits", "two limits denied"} {
			cell := m.nanos(measure, c.name)
			if r, ok := m.results.ratio(measure, c.name, "one limit", c.name); ok && measure != "one limit" {
				cell += fmt.Sprintf(" (%.2f)", r.Median)
			}
			cells = append(cells, cell)
		}
		p.Row(cells...)
	}
	p.Line("")
}

func (m *run) printGoals(p *report.Page) {
	p.Line("## Goals\n")
	p.Head("goal", "found", "")
	for _, g := range m.goals() {
		p.Row(g.what, strings.Join(g.found, ", "), g.verdict())
	}
	p.Line("\n## Where others win\n")
	p.Line("What they take as a part of what %s takes.\n", m.reference())
	losses := m.losses()
	for _, l := range losses {
		p.Line("- %s", l)
	}
	if len(losses) == 0 {
		p.Line("Nowhere in this run.")
	}
}
