package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/load"
)

// page writes Markdown. Its first error stays in err.
type page struct {
	w   io.Writer
	err error
	// request is the least CPU time that sluice took for a request over gRPC, in
	// µs; 0 before it was measured.
	request float64
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// preamble says where, when and how.
func (p *page) preamble(ctx context.Context, args []string) {
	p.line("# Benchmarks\n")
	p.line("    %s", strings.Join(append([]string{"cd bench && go run ./suite"}, quoted(args)...), " "))
	p.line("")
	machine := fmt.Sprintf("%s, %d cores", cpuModel(), runtime.NumCPU())
	if kernel, err := output(ctx, "", "uname", "-sr"); err == nil {
		machine += ", " + strings.TrimSpace(kernel)
	}
	p.line("%s; %s, GOMAXPROCS %d; %s.\n", machine, runtime.Version(), runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))
}

func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; a == "" || strings.ContainsAny(a, " '\"$;") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return out
}

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	_, rest, _ := strings.Cut(string(info), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	if model := strings.TrimLeft(line, "\t :"); model != "" {
		return model
	}
	return runtime.GOARCH
}

// caseTable prints what one case measured.
func (p *page) caseTable(c *benchCase, services []*service, results [][]load.Result) {
	p.line("### %s\n", strings.ToUpper(c.title[:1])+c.title[1:])
	p.line("`%s`, %s.\n", c.entries, c.loop())
	p.line("| service | req/s | CPU µs per request (least) | p50 / p99 µs | RSS MiB | CPU ratio |")
	p.line("| --- | --- | --- | --- | --- | --- |")
	other := 0.0
	for i, s := range services {
		rounds := results[i]
		of := func(f func(*load.Result) float64) spread {
			return over(len(rounds), func(n int) float64 { return f(&rounds[n]) })
		}
		ratio := over(len(rounds), func(n int) float64 { return serverCPU(&rounds[n]) / serverCPU(&results[stock][n]) })
		cpu := of(serverCPU)
		if i == whole && (p.request == 0 || cpu.least < p.request) {
			p.request = cpu.least
		}
		p.line("| %s | %.0f | %.1f (%.1f) | %.0f / %.0f | %.1f | %.2f (%.2f to %.2f) |",
			s.name, of(func(r *load.Result) float64 { return r.PerSecond }).median, cpu.median, cpu.least,
			of(func(r *load.Result) float64 { return r.Latency.P50 }).median,
			of(func(r *load.Result) float64 { return r.Latency.P99 }).median,
			of(serverRSS).median/(1<<20), ratio.median, ratio.least, ratio.greatest)
		other = max(other, of(func(r *load.Result) float64 { return r.OtherCPU }).median)
	}
	p.line("\nOther work took up to %.0f%% of the machine (median over the rounds, worst service).\n", other*100)
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
