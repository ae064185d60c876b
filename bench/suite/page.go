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
func (p *page) caseTable(c *benchCase, services []*service, results [][]*load.Result) {
	p.Line("### %s\n", strings.ToUpper(c.title[:1])+c.title[1:])
	p.Line("`%s`, %s.\n", c.entries, c.loop())
	p.Head("service", "req/s", "CPU µs per request (least)", "CPU ratio", "p50 / p99 µs", "RSS MiB (peak)")
	other := 0.0
	for i, s := range services {
		of := func(f func(*load.Result) float64) report.Spread {
			return report.Over(len(results[i]), func(n int) float64 { return f(results[i][n]) })
		}
		ratio := report.Over(len(results[i]), func(n int) float64 { return serverCPU(results[i][n]) / serverCPU(results[0][n]) })
		cpu := of(serverCPU)
		if s.name == whole && (p.request == 0 || cpu.Least < p.request) {
			p.request = cpu.Least
		}
		p.Row(s.name, fmt.Sprintf("%.0f", of(func(r *load.Result) float64 { return r.PerSecond }).Median),
			fmt.Sprintf("%.1f (%.1f)", cpu.Median, cpu.Least),
			fmt.Sprintf("%.2f (%.2f to %.2f)", ratio.Median, ratio.Least, ratio.Greatest),
			fmt.Sprintf("%.0f / %.0f", of(func(r *load.Result) float64 { return r.Latency.P50 }).Median,
				of(func(r *load.Result) float64 { return r.Latency.P99 }).Median),
			fmt.Sprintf("%.1f (%.1f)", of(func(r *load.Result) float64 { return float64(r.Servers[0].RSS) }).Median/(1<<20),
				of(func(r *load.Result) float64 { return float64(r.Servers[0].PeakRSS) }).Greatest/(1<<20)))
		other = max(other, of(func(r *load.Result) float64 { return r.OtherCPU }).Median)
	}
	p.Line("\nOther work took up to %.0f%% of the machine (median over the rounds, worst service).\n", other*100)
}

// serverCPU is the CPU time per request of the service, in µs.
func serverCPU(r *load.Result) float64 { return r.Servers[0].CPU }
