// Command suite measures sluice and prints Markdown tables: over gRPC in comparison with a no-op
// service, and in process in comparison with other limiters. See suite -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/program"
	"github.com/sluice-ratelimit/sluice/bench/report"
)

const usage = `Usage: go run ./suite [flags]     (in the directory bench)

Builds sluice, a no-op service and the floor (see bench/floor), starts them on free ports,
loads them in turn (A B C A B C ...) and prints Markdown tables: medians over the
rounds, and ratios within a round. Then it runs sluice simulate on logs, and Go
benchmarks of sluice's packages, and of sluice's limiters and other libraries.
Needs Linux.

Other services are measured too if variables contain their paths: LIMITADOR_BIN,
RATELIMIT_BIN. ` + "`make bench`" + ` sets ENVOY_BIN and VALKEY_BIN (or uses a redis-server).

This program loads the services on the same machine, so the CPU time per request is
the most stable figure and requests per second the least. Other work on the machine
distorts both; its share is printed.

  go run ./suite -rounds 1 -duration 1s -warmup 200ms      a quick look
  go run ./suite -cases closed,open -benchmarks=false -limiters=false
                                                           these cases over gRPC
  go run ./suite -cases '' -limiters=false -rounds 10      only the Go benchmarks
  go run ./suite -cases '' -benchmarks=false               only the limiters

Flags:
`

// options are the parsed command line.
type options struct {
	rounds           int
	duration, warmup time.Duration
	comparisons      []comparison
	logs             []accessLog
	lines            int // per log
	benchmarks       bool
	limiters         bool
	counters         int // in the large cases of the limiters
	benchtime        time.Duration
}

func main() { program.Main("suite", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans up the rest
	b := &builder{dir: dir, progress: stderr}
	if err := b.findRoot(ctx); err != nil {
		return err
	}
	page := &page{Page: report.Page{W: stdout}}
	page.printPreamble(ctx, args)
	if len(o.comparisons)+len(o.logs) > 0 {
		w, err := newTestbed(ctx, b)
		if err != nil {
			return err
		}
		page.printMissing(w.missing)
		for _, q := range o.comparisons {
			if err := compareServices(ctx, w, o, &q, page); err != nil {
				return err
			}
		}
		if len(o.logs) > 0 {
			if err := simulate(ctx, w, o, page); err != nil {
				return err
			}
		}
	}
	if o.benchmarks {
		samples, err := inRounds(ctx, b, o, suites)
		if err != nil {
			return err
		}
		page.printBenchmarks(o, samples)
	}
	if o.limiters {
		samples, err := inRounds(ctx, b, o, limiters)
		if err != nil {
			return err
		}
		page.printLimiters(o, samples)
	}
	return page.Err
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
		_, _ = io.WriteString(stderr, "\nCases:\n")
		for _, q := range comparisons {
			for _, c := range q.cases {
				fmt.Fprintf(stderr, "  %-12s %s: %s\n", c.name, strings.ToLower(q.title), c.title)
			}
		}
		for _, l := range accessLogs {
			fmt.Fprintf(stderr, "  %-12s sluice simulate: %s\n", l.name, l.title)
		}
	}
	flags.IntVar(&o.rounds, "rounds", 5, "rounds of each case and of the Go benchmarks")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "measured time of one service in one round")
	flags.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "time before the measurement")
	cases := flags.String("cases", strings.Join(caseNames(), ","), "`cases` to measure, comma-separated; empty for none")
	flags.IntVar(&o.lines, "lines", 1_000_000, "`lines` of each log for sluice simulate")
	flags.BoolVar(&o.benchmarks, "benchmarks", true, "run the Go benchmarks too")
	flags.DurationVar(&o.benchtime, "benchtime", 200*time.Millisecond, "time of one Go benchmark in one round")
	flags.BoolVar(&o.limiters, "limiters", true, "compare sluice's limiters with those of other libraries")
	flags.IntVar(&o.counters, "counters", 1_000_000, "counters of the limiters' large cases")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.counters < 1 || o.counters > 1<<28:
		return nil, fmt.Errorf("-counters is %d: must be 1 to %d", o.counters, 1<<28)
	case o.lines < 1:
		return nil, fmt.Errorf("-lines is %d: must be above 0", o.lines)
	case o.rounds < 1 || o.duration <= 0 || o.warmup < 0 || o.benchtime <= 0:
		return nil, errors.New("-rounds, -duration and -benchtime must be above 0, and -warmup not negative")
	}
	return o, o.choose(*cases)
}

// output runs a command and returns its output.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s%s", cmd, err, out, &errs)
	}
	return string(out), nil
}
