package main

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// limiters are the limiters of sluice and of other libraries.
var limiters = []suite{{"bench", "limiters", "^BenchmarkLimiters$"}}

// reference is the limiter with which the others are compared, because most of them are token
// buckets.
const reference = "sluice/token_bucket"

// printLimiters prints a line for each limiter.
func (p *page) printLimiters(o *options, samples *samples) {
	p.Line("## Limiters\n")
	p.Line("CPU time of one decision in nanoseconds: building the identity out of a key, reading the clock, finding the counter and")
	p.Line("deciding. Two threads, on one counter or on %d; `new` is the first hit of a counter, one thread. Medians of %d rounds", o.counters, o.rounds)
	p.Line("of %v; in parentheses, the ratio to %s in the same round.\n", o.benchtime, reference)
	cases := []string{"hot", "denied", "uniform", "zipf", "new"}
	p.Head("limiter", "one hot", "one, denied", "many, uniform", "many, by Zipf's law", "new",
		"allocations: old, new", "bytes per counter", "a garbage collection with many, ms")
	for _, name := range samples.names {
		name, first := strings.CutSuffix(name, "/case=hot")
		if !first {
			continue
		}
		cells := []string{strings.TrimPrefix(name, "BenchmarkLimiters/limiter=")}
		of := func(name, kind string) []sample { return samples.of[name+"/case="+kind] }
		for _, kind := range cases {
			cells = append(cells, timeCell(of(name, kind), of("BenchmarkLimiters/limiter="+reference, kind)))
		}
		made := of(name, "new")
		old := of(name, "uniform")
		p.Row(append(cells, fmt.Sprintf("%.0f, %.1f", median(old, allocs), median(made, allocs)),
			fmt.Sprintf("%.0f", median(made, func(s sample) float64 { return s.bytes })), fmt.Sprintf("%.1f", median(of(name, "collect"), nanos)/1e6))...)
	}
	p.Line("")
}

// timeCell formats a time with its ratio to the reference, or a dash if it was not measured.
func timeCell(found, to []sample) string {
	if len(found) == 0 {
		return "–"
	}
	ratio := report.Over(len(found), func(i int) float64 { return found[i].nanos / to[i].nanos }).Median
	return fmt.Sprintf("%.0f (%.1f)", median(found, nanos), ratio)
}

func nanos(s sample) float64 { return s.nanos }

func allocs(s sample) float64 { return s.allocs }

func median(found []sample, of func(sample) float64) float64 {
	return report.Over(len(found), func(i int) float64 { return of(found[i]) }).Median
}
