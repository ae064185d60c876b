package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/bench/load"
	"github.com/sluice-ratelimit/sluice/bench/report"
)

// parsePercents reads values of GOGC. The first is what the others are compared
// with.
func parsePercents(text string) ([]int, error) {
	var all []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no percentage above 0", field)
		}
		all = append(all, n)
	}
	return all, nil
}

// overGOGC measures every case over gRPC with sluice under each GOGC.
func overGOGC(ctx context.Context, b *builder, o *options, page *page) error {
	built, generator, err := newServices(ctx, b)
	if err != nil {
		return err
	}
	var services []*service
	for _, percent := range o.percents {
		s := *built[whole]
		s.name = strconv.Itoa(percent)
		s.env = []string{"GOGC=" + s.name}
		services = append(services, &s)
	}
	page.Line("## GOGC of sluice\n")
	page.Line("Medians of %d interleaved rounds of %v. The ratio is that of the CPU time per request to the first line's in", o.rounds, o.duration)
	page.Line("the same round: median (least to greatest). The peak is that of the process, counters included.\n")
	for _, c := range o.cases {
		results, err := measureCase(ctx, b, o, &c, services, generator)
		if err != nil {
			return fmt.Errorf("case %s: %w", c.name, err)
		}
		page.percentTable(&c, services, results)
	}
	return nil
}

// percentTable prints what one case measured.
func (p *page) percentTable(c *benchCase, services []*service, results [][]load.Result) {
	p.Line("### %s\n", strings.ToUpper(c.title[:1])+c.title[1:])
	p.Line("`%s`, %s.\n", c.entries, c.loop())
	p.Head("GOGC", "CPU µs per request (least)", "CPU ratio", "p99 µs", "peak RSS MiB")
	other := 0.0
	for i, s := range services {
		rounds := results[i]
		of := func(f func(*load.Result) float64) report.Spread {
			return report.Over(len(rounds), func(n int) float64 { return f(&rounds[n]) })
		}
		ratio := report.Over(len(rounds), func(n int) float64 { return serverCPU(&rounds[n]) / serverCPU(&results[0][n]) })
		cpu := of(serverCPU)
		p.Row(s.name, fmt.Sprintf("%.1f (%.1f)", cpu.Median, cpu.Least),
			fmt.Sprintf("%.2f (%.2f to %.2f)", ratio.Median, ratio.Least, ratio.Greatest),
			fmt.Sprintf("%.0f", of(func(r *load.Result) float64 { return r.Latency.P99 }).Median),
			fmt.Sprintf("%.1f", of(func(r *load.Result) float64 { return float64(r.Servers[0].PeakRSS) }).Greatest/(1<<20)))
		other = max(other, of(func(r *load.Result) float64 { return r.OtherCPU }).Median)
	}
	p.Line("\nOther work took up to %.0f%% of the machine (median over the rounds, worst line).\n", other*100)
}
