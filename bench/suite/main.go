// Command suite measures sluice and prints Markdown tables: over gRPC beside a service
// that does nothing, and in process beside other limiters. See suite -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/program"
	"github.com/sluice-ratelimit/sluice/bench/report"
)

const usage = `Usage: go run ./suite [flags]     (in the folder bench)

Builds sluice and a no-op rate-limit service, starts them on free ports, loads them
in turn (A B C A B C ...) and prints Markdown tables: medians over the rounds, and
the ratio to the no-op of the same round. Then it runs Go benchmarks: those of
sluice's packages, and sluice's limiters beside other libraries. Needs Linux.

This program loads the services on the same machine, so the CPU time per request is
the steadiest figure and requests per second the least. Other work on the machine
blurs both; how much there was is printed.

  go run ./suite -rounds 1 -duration 1s -warmup 200ms      a quick look
  go run ./suite -cases closed,open -benchmarks=false      these cases over gRPC
  go run ./suite -cases '' -rounds 10                      the Go benchmarks alone
  go run ./suite -gogc 100,200,400,800 -cases closed       what GOGC costs and gives
  go run ./suite -cases '' -benchmarks=false               sluice's limiters beside others

Flags:
`

// options are what the command line says.
type options struct {
	rounds           int
	duration, warmup time.Duration
	cases            []benchCase
	percents         []int // of GOGC
	benchmarks       bool
	limiters         bool
	counters         int // of the limiters' large cases
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
	defer func() { _ = os.RemoveAll(dir) }() // the system removes what is left there
	b := builder{dir: dir, progress: stderr}
	if err := b.findRoot(ctx); err != nil {
		return err
	}
	page := &page{Page: report.Page{W: stdout}}
	page.preamble(ctx, args)
	if len(o.cases) > 0 {
		if err := overGRPC(ctx, &b, o, page); err != nil {
			return err
		}
	}
	if o.benchmarks {
		samples, err := inRounds(ctx, &b, o, suites)
		if err != nil {
			return err
		}
		page.benchmarks(o, samples)
	}
	if o.limiters {
		samples, err := inRounds(ctx, &b, o, limiters)
		if err != nil {
			return err
		}
		page.limiters(o, samples)
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
		for _, c := range allCases {
			fmt.Fprintf(stderr, "  %-9s %s\n", c.name, c.title)
		}
	}
	flags.IntVar(&o.rounds, "rounds", 5, "rounds of each case and of the Go benchmarks")
	flags.DurationVar(&o.duration, "duration", 4*time.Second, "measured time of one service in one round")
	flags.DurationVar(&o.warmup, "warmup", time.Second, "time before it, not measured")
	cases := flags.String("cases", strings.Join(caseNames(), ","), "`cases` to measure over gRPC, comma-separated; empty for none")
	flags.BoolVar(&o.benchmarks, "benchmarks", true, "run the Go benchmarks too")
	flags.DurationVar(&o.benchtime, "benchtime", 200*time.Millisecond, "time of one Go benchmark in one round")
	flags.BoolVar(&o.limiters, "limiters", true, "measure sluice's limiters beside those of other libraries")
	flags.IntVar(&o.counters, "counters", 1_000_000, "counters of the limiters' large cases")
	flags.Func("gogc", "measure sluice alone over gRPC, under each of these `percentages` of GOGC, comma-separated, and nothing else", func(s string) (err error) {
		o.percents, err = parsePercents(s)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if len(o.percents) > 0 {
		o.benchmarks, o.limiters = false, false
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.counters < 1 || o.counters > 1<<28:
		return nil, fmt.Errorf("-counters is %d: must be 1 to %d", o.counters, 1<<28)
	case o.rounds < 1 || o.duration <= 0 || o.warmup < 0 || o.benchtime <= 0:
		return nil, errors.New("-rounds, -duration and -benchtime must be above 0 and -warmup not below")
	}
	for name := range strings.SplitSeq(*cases, ",") {
		if name == "" {
			continue
		}
		i := slices.IndexFunc(allCases, func(c benchCase) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("case %q: must be one of %s", name, strings.Join(caseNames(), ", "))
		}
		o.cases = append(o.cases, allCases[i])
	}
	return o, nil
}

// parsePercents reads values of GOGC.
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

// builder builds commands and test binaries into dir.
type builder struct {
	dir      string
	root     string // of the main module
	progress io.Writer
}

func (b *builder) findRoot(ctx context.Context) error {
	out, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), " ")
	if path != "github.com/sluice-ratelimit/sluice/bench" {
		return fmt.Errorf("the current module is %s: run this in the folder bench", path)
	}
	b.root = filepath.Dir(dir)
	return nil
}

// build runs go with args and an output file. It returns the file's path.
func (b *builder) build(ctx context.Context, module, name string, args ...string) (string, error) {
	fmt.Fprintln(b.progress, "building", name)
	path := filepath.Join(b.dir, name)
	last := len(args) - 1
	args = append(slices.Clone(args[:last]), "-o", path, args[last])
	_, err := output(ctx, filepath.Join(b.root, module), "go", args...)
	return path, err
}

// output runs a command to its end and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // what was built here, and go
	cmd.Dir = dir
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s%s", cmd, err, out, &errs)
	}
	return string(out), nil
}
