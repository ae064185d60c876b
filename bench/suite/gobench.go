package main

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// suites are the packages whose benchmarks run, and which ones. A build tag becomes
// the last part of their names.
var suites = []struct{ pkg, pattern, tag string }{
	{"server", "^(BenchmarkAnswer|BenchmarkHandler|BenchmarkProtobufUnmarshal)$", ""},
	{"server", "^BenchmarkHandler$", "uncounted"},
	{"descriptors", "^(BenchmarkMatch|BenchmarkPlan)$", ""},
	{"limiter", "^(BenchmarkDecide|BenchmarkHasher)$", ""},
}

// ratios are those of two benchmarks in one round.
var ratios = []struct{ what, of, to string }{
	{
		"from request bytes to reply bytes, one request again and again: protobuf's decoding alone takes so many times as long",
		"BenchmarkProtobufUnmarshal/descriptors=2/entries=5/requests=1",
		"BenchmarkAnswer/descriptors=2/entries=5/requests=1/through=reply",
	},
	{
		"the same over 10,000 requests, 20,000 counters",
		"BenchmarkProtobufUnmarshal/descriptors=2/entries=5/requests=10000",
		"BenchmarkAnswer/descriptors=2/entries=5/requests=10000/through=reply",
	},
	{
		"matching among 100,000 rules to matching among 10, one request",
		"BenchmarkMatch/entries=3/request=fixed/rules=100000",
		"BenchmarkMatch/entries=3/request=fixed/rules=10",
	},
	{
		"the same, random requests",
		"BenchmarkMatch/entries=3/request=random/rules=100000",
		"BenchmarkMatch/entries=3/request=random/rules=10",
	},
}

// sample is one line of go test -bench.
type sample struct {
	name string
	// nanos is the CPU time of an operation where the benchmark reports it, else
	// the time that passed.
	nanos         float64
	bytes, allocs float64
}

// inProcess runs the Go benchmarks in rounds. Each round is one process for each
// package, so that all benchmarks meet the same noise.
func inProcess(ctx context.Context, b *builder, o *options, page *page) error {
	binaries := make([]string, len(suites))
	for i, s := range suites {
		var err error
		if binaries[i], err = b.build(ctx, "", s.pkg+s.tag+".test", "test", "-c", "-tags="+s.tag, "./"+s.pkg); err != nil {
			return err
		}
	}
	var names []string
	samples := map[string][]sample{}
	for round := range o.rounds {
		for i, s := range suites {
			fmt.Fprintf(b.progress, "benchmarks: round %d of %d, %s\n", round+1, o.rounds, s.pkg)
			out, err := output(ctx, filepath.Join(b.root, s.pkg), binaries[i],
				"-test.run=^$", "-test.bench="+s.pattern, "-test.benchtime="+o.benchtime.String(), "-test.benchmem")
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				if m, ok := parseSample(line); ok {
					if s.tag != "" {
						m.name += "/" + s.tag
					}
					if samples[m.name] == nil {
						names = append(names, m.name)
					}
					samples[m.name] = append(samples[m.name], m)
				}
			}
		}
	}
	page.benchmarks(o, names, samples)
	return nil
}

// parseSample reads a line like
//
//	BenchmarkX/a=1-8   1000   12.5 ns/op   12.0 cpu-ns/op   0 B/op   0 allocs/op
//
// The number of processors is cut off the name.
func parseSample(line string) (sample, bool) {
	words := bufio.NewScanner(strings.NewReader(line))
	words.Split(bufio.ScanWords)
	var fields []string
	for words.Scan() {
		fields = append(fields, words.Text())
	}
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
	s.nanos, s.bytes, s.allocs = wall, units["B/op"], units["allocs/op"]
	if cpu, ok := units["cpu-ns/op"]; ok {
		s.nanos = cpu
	}
	return s, true
}

// benchmarks prints the ratios and then every benchmark.
func (p *page) benchmarks(o *options, names []string, samples map[string][]sample) {
	p.Line("## In process\n")
	p.Line("Medians of %d rounds of %v each; ns are of CPU time where the benchmark reports it.\n", o.rounds, o.benchtime)
	p.Line("Noise only ever adds, so the ratio of the least times is the best guess on a busy machine.\n")
	p.Line("| ratio | within one round: median (least to greatest) | of the least times |")
	p.Line("| --- | --- | --- |")
	for _, r := range ratios {
		of, to := samples[r.of], samples[r.to]
		n := min(len(of), len(to))
		if n == 0 {
			p.Line("| %s | not measured | |", r.what)
			continue
		}
		s := report.Over(n, func(i int) float64 { return of[i].nanos / to[i].nanos })
		p.Line("| %s | %.2f (%.2f to %.2f) | %.2f |", r.what, s.Median, s.Least, s.Greatest, leastNanos(of)/leastNanos(to))
	}
	p.counting(samples)
	p.steps(samples)
	p.Line("\n| benchmark | ns (least to greatest) | bytes | allocations |")
	p.Line("| --- | --- | --- | --- |")
	for _, name := range names {
		all := samples[name]
		ns := report.Over(len(all), func(i int) float64 { return all[i].nanos })
		last := all[len(all)-1]
		p.Line("| %s | %.1f (%.1f to %.1f) | %.0f | %.0f |", strings.TrimPrefix(name, "Benchmark"), ns.Median, ns.Least, ns.Greatest, last.bytes, last.allocs)
	}
}

func leastNanos(all []sample) float64 {
	return report.Over(len(all), func(i int) float64 { return all[i].nanos }).Least
}

// counting prints what metrics add to a request. Differences of what is small are
// steadier than ratios of what is large, so the whole request is measured over gRPC
// and the addition in process.
func (p *page) counting(samples map[string][]sample) {
	for _, requests := range []string{"1", "10000"} {
		name := "BenchmarkHandler/descriptors=2/entries=5/requests=" + requests
		with, without := samples[name], samples[name+"/uncounted"]
		n := min(len(with), len(without))
		if n == 0 {
			continue
		}
		added := report.Over(n, func(i int) float64 { return with[i].nanos - without[i].nanos })
		least := leastNanos(with) - leastNanos(without)
		p.Line("\nMetrics, with the clock that they read and the response time, add %.0f ns (%.0f to %.0f) to a request, %.0f ns of the least times (requests=%s).",
			added.Median, added.Least, added.Greatest, least, requests)
		if p.request > 0 {
			p.Line("That is %.1f %% of the least CPU time of a request over gRPC, %.1f µs; of the least times %.1f %%.",
				added.Median/p.request/10, p.request, least/p.request/10)
		}
	}
}

// steps prints what each step of an answer adds to those before it.
func (p *page) steps(samples map[string][]sample) {
	steps := []string{"decode", "plan", "decide", "count", "reply"}
	p.Line("\n| ns of a request, by requests in turn | decode | match, hash | decide | status, count | encode | all |")
	p.Line("| --- | --- | --- | --- | --- | --- | --- |")
	for _, requests := range []string{"1", "10000"} {
		cells := make([]string, 0, len(steps)+1)
		before := func(int) float64 { return 0 }
		for _, step := range steps {
			all := samples["BenchmarkAnswer/descriptors=2/entries=5/requests="+requests+"/through="+step]
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
		p.Line("| %s | %s |", requests, strings.Join(cells, " | "))
	}
}
