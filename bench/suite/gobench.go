package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// suite selects benchmarks of a package of a module.
type suite struct{ module, pkg, pattern string }

var suites = []suite{
	{"", "server/answer", "^(BenchmarkAnswer|BenchmarkHandler|BenchmarkProtobufUnmarshal)$"},
	{"", "descriptors", "^(BenchmarkMatch|BenchmarkPlan)$"},
	{"", "limiter", "^(BenchmarkDecide|BenchmarkHasher)$"},
}

// sample is a line of go test -bench.
type sample struct {
	name string
	// nanos is the CPU time of an operation if the benchmark reports it, otherwise the elapsed
	// time.
	nanos         float64
	bytes, allocs float64
}

// samples contains the samples of all rounds by benchmark, and the benchmarks in order.
type samples struct {
	names []string
	of    map[string][]sample
}

// inRounds runs Go benchmarks in rounds. Each round is one process per package, so that all
// benchmarks have the same noise.
func inRounds(ctx context.Context, b *builder, o *options, suites []suite) (*samples, error) {
	binaries := make([]string, len(suites))
	for i, s := range suites {
		var err error
		if binaries[i], err = b.build(ctx, s.module, path.Base(s.pkg)+".test", "test", "-c", "./"+s.pkg); err != nil {
			return nil, err
		}
	}
	all := &samples{of: map[string][]sample{}}
	for round := range o.rounds {
		for i, s := range suites {
			fmt.Fprintf(b.progress, "benchmarks: round %d of %d, %s\n", round+1, o.rounds, s.pkg)
			args := []string{"-test.run=^$", "-test.bench=" + s.pattern, "-test.benchtime=" + o.benchtime.String(), "-test.benchmem"}
			if s.module != "" {
				args = append(args, "-test.cpu=2", "-counters="+strconv.Itoa(o.counters))
			}
			out, err := output(ctx, filepath.Join(b.root, s.module, s.pkg), binaries[i], args...)
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(out) {
				if m, ok := parseSample(line); ok {
					if all.of[m.name] == nil {
						all.names = append(all.names, m.name)
					}
					all.of[m.name] = append(all.of[m.name], m)
				}
			}
		}
	}
	return all, nil
}

// parseSample parses a line like
//
//	BenchmarkX/a=1-8   1000   12.5 ns/op   12.0 cpu-ns/op   0 B/op   0 allocs/op
//
// It removes the number of processors from the name.
func parseSample(line string) (sample, bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return sample{}, false
	}
	s := sample{name: fields[0]}
	if i := strings.LastIndexByte(s.name, '-'); i > 0 {
		if _, err := strconv.Atoi(s.name[i+1:]); err == nil {
			s.name = s.name[:i]
		}
	}
	units := map[string]float64{}
	for i := 2; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return sample{}, false
		}
		units[fields[i+1]] = v
	}
	wall, ok := units["ns/op"]
	if !ok {
		return sample{}, false
	}
	s.nanos = wall
	s.bytes = units["B/op"]
	s.allocs = units["allocs/op"]
	if cpu, ok := units["cpu-ns/op"]; ok {
		s.nanos = cpu
	}
	return s, true
}

// printBenchmarks prints the derived values, then every benchmark.
func (p *page) printBenchmarks(o *options, samples *samples) {
	p.Line("## In process\n")
	p.Line("Medians of %d rounds of %v each; ns are CPU time if the benchmark reports it.\n", o.rounds, o.benchtime)
	p.printSteps(samples)
	p.Line("")
	p.Head("benchmark", "ns (min to max)", "bytes", "allocations")
	for _, name := range samples.names {
		all := samples.of[name]
		ns := report.Over(len(all), func(i int) float64 { return all[i].nanos })
		last := all[len(all)-1]
		p.Row(strings.TrimPrefix(name, "Benchmark"), fmt.Sprintf("%.1f (%.1f to %.1f)", ns.Median, ns.Min, ns.Max),
			fmt.Sprintf("%.0f", last.bytes), fmt.Sprintf("%.0f", last.allocs))
	}
}

// printSteps prints the cost that each step of a response adds.
func (p *page) printSteps(samples *samples) {
	steps := []string{"decode", "plan", "decide", "count", "reply"}
	p.Line("")
	p.Head("ns per request, by number of different requests", "decode", "match, hash", "decide", "status, count", "encode", "all")
	for _, requests := range []string{"1", "10000"} {
		cells := make([]string, 0, len(steps)+1)
		before := func(int) float64 { return 0 }
		for _, step := range steps {
			all := samples.of["BenchmarkAnswer/descriptors=2/entries=5/requests="+requests+"/through="+step]
			if len(all) == 0 {
				return
			}
			last := before
			before = func(i int) float64 { return all[i].nanos }
			added := report.Over(len(all), func(i int) float64 { return all[i].nanos - last(i) })
			cells = append(cells, fmt.Sprintf("%.0f", added.Median))
			if step == "reply" {
				cells = append(cells, fmt.Sprintf("%.0f", report.Over(len(all), before).Median))
			}
		}
		p.Row(append([]string{requests}, cells...)...)
	}
}
