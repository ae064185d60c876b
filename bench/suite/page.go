package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/load"
	"github.com/sluice-ratelimit/sluice/bench/report"
)

// page is the page of this program.
type page struct {
	report.Page

	// request is the least CPU time that sluice took for a request over gRPC, in
	// µs; 0 before it was measured.
	request float64
}

// preamble says where, when and how.
func (p *page) preamble(ctx context.Context, args []string) {
	p.Line("# Benchmarks\n")
	p.Command("suite", args)
	machine := fmt.Sprintf("%s, %d cores", report.Processor(), runtime.NumCPU())
	if kernel, err := output(ctx, "", "uname", "-sr"); err == nil {
		machine += ", " + strings.TrimSpace(kernel)
	}
	p.Line("%s; %s, GOMAXPROCS %d; %s.\n", machine, runtime.Version(), runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))
}

// caseTable prints what one case measured.
func (p *page) caseTable(c *benchCase, services []*service, results [][]load.Result) {
	p.Line("### %s\n", strings.ToUpper(c.title[:1])+c.title[1:])
	p.Line("`%s`, %s.\n", c.entries, c.loop())
	p.Line("| service | req/s | CPU µs per request (least) | p50 / p99 µs | RSS MiB | CPU ratio |")
	p.Line("| --- | --- | --- | --- | --- | --- |")
	other := 0.0
	for i, s := range services {
		rounds := results[i]
		of := func(f func(*load.Result) float64) report.Spread {
			return report.Over(len(rounds), func(n int) float64 { return f(&rounds[n]) })
		}
		ratio := report.Over(len(rounds), func(n int) float64 { return serverCPU(&rounds[n]) / serverCPU(&results[stock][n]) })
		cpu := of(serverCPU)
		if i == whole && (p.request == 0 || cpu.Least < p.request) {
			p.request = cpu.Least
		}
		p.Line("| %s | %.0f | %.1f (%.1f) | %.0f / %.0f | %.1f | %.2f (%.2f to %.2f) |",
			s.name, of(func(r *load.Result) float64 { return r.PerSecond }).Median, cpu.Median, cpu.Least,
			of(func(r *load.Result) float64 { return r.Latency.P50 }).Median,
			of(func(r *load.Result) float64 { return r.Latency.P99 }).Median,
			of(serverRSS).Median/(1<<20), ratio.Median, ratio.Least, ratio.Greatest)
		other = max(other, of(func(r *load.Result) float64 { return r.OtherCPU }).Median)
	}
	p.Line("\nOther work took up to %.0f%% of the machine (median over the rounds, worst service).\n", other*100)
}

// serverCPU is the CPU time per request of all the service's processes, in µs.
func serverCPU(r *load.Result) float64 {
	sum := 0.0
	for _, s := range r.Servers {
		sum += s.CPU
	}
	return sum
}

func serverRSS(r *load.Result) float64 {
	sum := 0.0
	for _, s := range r.Servers {
		sum += float64(s.RSS)
	}
	return sum
}
