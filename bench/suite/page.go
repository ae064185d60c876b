package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// page is the page of this program.
type page struct{ report.Page }

// printPreamble prints the command, the machine and the time.
func (p *page) printPreamble(ctx context.Context, args []string) {
	p.Line("# Benchmarks\n")
	p.Command("suite", args)
	machine := fmt.Sprintf("%s, %d cores", report.Processor(), runtime.NumCPU())
	if kernel, err := output(ctx, "", "uname", "-sr"); err == nil {
		machine += ", " + strings.TrimSpace(kernel)
	}
	p.Line("%s; %s, GOMAXPROCS %d; %s.\n", machine, runtime.Version(), runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))
}

// printMissing prints the programs that were not measured.
func (p *page) printMissing(what []string) {
	if len(what) > 0 {
		p.Line("Not measured: %s.\n", strings.Join(what, "; "))
	}
}

// figures are the measurements of one service under one load in one round.
type figures struct {
	cpu, storeCPU float64 // µs per request
	envoyCPU      float64 // µs per request
	commands      float64 // of the store, per request
	perSecond     float64
	p50, p99      float64 // µs
	peak          float64 // MiB
	idle          float64 // KiB per connection
	other         float64 // the share of the machine used by other processes
}

// metric describes a table.
type metric struct {
	name, title string
	value       func(figures) float64
	format      string
	ratios      bool // relative to the first service of the same round
	ofStore     bool // only for services with a store
}

var (
	cpu       = metric{name: "cpu", title: "CPU time of the service, µs per request", format: "%.1f", ratios: true, value: func(f figures) float64 { return f.cpu }}
	together  = metric{name: "together", title: "CPU time of Envoy and the service together, µs per request", format: "%.1f", ratios: true, value: func(f figures) float64 { return f.cpu + f.envoyCPU }}
	alone     = metric{name: "alone", title: "CPU time of the service alone, µs per request", format: "%.2f", value: func(f figures) float64 { return f.cpu }}
	storeCPU  = metric{name: "store", title: "CPU time of the store, µs per request", format: "%.1f", ratios: true, ofStore: true, value: func(f figures) float64 { return f.storeCPU }}
	commands  = metric{name: "commands", title: "Commands to the store per request", format: "%.4f", ofStore: true, value: func(f figures) float64 { return f.commands }}
	total     = metric{name: "total", title: "CPU time of the service and the store, µs per request", format: "%.1f", ratios: true, value: func(f figures) float64 { return f.cpu + f.storeCPU }}
	perSecond = metric{name: "rate", title: "Requests per second", format: "%.0f", value: func(f figures) float64 { return f.perSecond }}
	p50       = metric{name: "p50", title: "p50, µs", format: "%.0f", value: func(f figures) float64 { return f.p50 }}
	p99       = metric{name: "p99", title: "p99, µs", format: "%.0f", value: func(f figures) float64 { return f.p99 }}
	peak      = metric{name: "peak", title: "Peak resident memory, MiB", format: "%.0f", value: func(f figures) float64 { return f.peak }}
	idle      = metric{name: "idle", title: "KiB per connection", format: "%.1f", value: func(f figures) float64 { return f.idle }}
)

// measurements are the results of a comparison: by case, service and round.
type measurements [][][]figures

// printComparison prints the tables of a comparison.
func (p *page) printComparison(q *comparison, services []*service, found measurements) {
	p.Line("## %s\n\n%s\n", q.title, q.text)
	for _, m := range q.metrics {
		p.printTable(q, &m, services, found)
	}
	other := 0.0
	for _, byService := range found {
		for _, rounds := range byService {
			other = max(other, spread(rounds, func(f figures) float64 { return f.other }).Median)
		}
	}
	p.Line("Other processes used up to %.0f%% of the machine (the largest median over the rounds).\n", other*100)
}

func (p *page) printTable(q *comparison, m *metric, services []*service, found measurements) {
	p.Line("### %s\n", m.title)
	head := []string{"load"}
	goal := false
	for _, c := range q.cases {
		goal = goal || c.goals[m.name] != ""
	}
	if goal {
		head = append(head, "goal")
	}
	for _, s := range services {
		head = append(head, s.name)
	}
	p.Head(head...)
	for i, c := range q.cases {
		cells := []string{c.title}
		if goal {
			cells = append(cells, c.goals[m.name])
		}
		for j, s := range services {
			if m.ofStore && !s.store {
				cells = append(cells, "–")
				continue
			}
			all := spread(found[i][j], m.value)
			cell := fmt.Sprintf(m.format, all.Median)
			switch {
			case m.ratios && j == 0:
				cell += fmt.Sprintf(" ("+m.format+" to "+m.format+")", all.Min, all.Max)
			case m.ratios && (!m.ofStore || services[0].store):
				r := report.Over(len(found[i][j]), func(n int) float64 { return m.value(found[i][j][n]) / m.value(found[i][0][n]) })
				cell += fmt.Sprintf(" (%.2f, %.2f to %.2f)", r.Median, r.Min, r.Max)
			}
			cells = append(cells, cell)
		}
		p.Row(cells...)
	}
	p.Line("")
}

func spread(rounds []figures, of func(figures) float64) report.Spread {
	return report.Over(len(rounds), func(n int) float64 { return of(rounds[n]) })
}
