// Command limiters makes the same decision with sluice's limiters and with those
// of other Go libraries, and prints Markdown tables. See limiters -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/proc"
	"github.com/sluice-ratelimit/sluice/bench/program"
	"github.com/sluice-ratelimit/sluice/bench/report"
)

const usage = `Usage: go run ./limiters [flags]     (in the folder bench)

Makes one decision again and again with each limiter, in turn, and prints Markdown
tables: medians over the rounds, ratios within a round, and sluice's goals with what
was found. Times are CPU time of the threads that decide, so other work on the
machine matters little; it does cool the caches. Needs Linux, two cores, and for
the whole run about 6 GiB of memory and a quarter of an hour.

  go run ./limiters -quick      a look, in less than a minute

Flags:
`

// options are what the command line says.
type options struct {
	rounds   int
	slice    time.Duration
	counters int // of the large cases
	fresh    int // new counters in one round
	many     int // counters beside which the collector runs
	occupy   string
}

// run is one run of the command.
type run struct {
	o          *options
	contenders []*contender
	policies   []policy // sluice's, those that work
	began      time.Time
	results    results
	memory     map[string]*footprint // with o.counters
	collector  map[string]*footprint // with o.many
	notes      []string
	log        io.Writer
}

// progress tells who waits what is being done, and since when the run goes on.
func (m *run) progress(format string, args ...any) {
	fmt.Fprintf(m.log, "%6s  %s\n", time.Since(m.began).Truncate(time.Second), fmt.Sprintf(format, args...))
}

// note adds what the reader of the tables must know.
func (m *run) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

func main() { program.Main("limiters", start) }

func start(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	m := newRun(o, stderr)
	if o.occupy != "" {
		return writeMemory(stdout, m.contenders, o.occupy, o.counters)
	}
	before, err := proc.Read(nil)
	if err != nil {
		return err
	}
	if err := m.measureAll(ctx); err != nil {
		return err
	}
	after, err := proc.Read(nil)
	if err != nil {
		return err
	}
	p := &report.Page{W: stdout}
	m.print(p, args, after.Since(before).Other)
	return p.Err
}

// newRun returns a run with all peers and those of sluice's algorithms that work.
func newRun(o *options, log io.Writer) *run {
	m := &run{o: o, log: log, began: time.Now()}
	for i := range policies {
		if err := policies[i].works(); err != nil {
			m.note("%s is left out: %v.", policies[i].title(), err)
			continue
		}
		m.policies = append(m.policies, policies[i])
		m.contenders = append(m.contenders, policies[i].contender())
	}
	m.contenders = append(m.contenders, peers...)
	m.contenders = append(m.contenders, baseline)
	return m
}

func (m *run) measureAll(ctx context.Context) error {
	// Memory first, while this process is small.
	if err := m.measureMemory(ctx); err != nil {
		return err
	}
	// Where millions of counters of all contenders are in one process, no
	// contender shall pay for the collection of another's.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, step := range []func(context.Context) error{m.measureGiven, m.measurePairs, m.measureKeyed, m.measureNew} {
		if err := step(ctx); err != nil {
			return err
		}
		runtime.GC()
	}
	return nil
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("limiters", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	quick := flags.Bool("quick", false, "other defaults: few and short rounds, fewer counters")
	flags.IntVar(&o.rounds, "rounds", 0, "rounds of each case (default 15, quick 3)")
	flags.DurationVar(&o.slice, "slice", 0, "measured time of one limiter in one round (default 50ms, quick 15ms)")
	flags.IntVar(&o.counters, "counters", 0, "counters of the large cases (default 1000000, quick 300000)")
	flags.IntVar(&o.fresh, "new", 0, "new counters in one round (default 250000, quick 50000)")
	flags.IntVar(&o.many, "many", 0, "counters beside which the garbage collector runs (default 10000000, quick as -counters)")
	flags.StringVar(&o.occupy, "occupy", "", "print as JSON what -counters of the one `limiter` cost that has this name, and end")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	defaults := options{counters: 1_000_000, rounds: 15, slice: 50 * time.Millisecond, fresh: 250_000, many: 10_000_000}
	if *quick {
		defaults = options{counters: 300_000, rounds: 3, slice: 15 * time.Millisecond, fresh: 50_000}
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["counters"] {
		o.counters = defaults.counters
	}
	if !given["rounds"] {
		o.rounds = defaults.rounds
	}
	if !given["slice"] {
		o.slice = defaults.slice
	}
	if !given["new"] {
		o.fresh = defaults.fresh
	}
	if !given["many"] {
		if o.many = defaults.many; *quick {
			o.many = o.counters
		}
	}
	switch most := 1 << 28; {
	case o.rounds < 1 || o.slice <= 0:
		return nil, errors.New("-rounds and -slice must be above 0")
	case min(o.counters, o.fresh, o.many) < 1 || max(o.counters, o.fresh, o.many) > most:
		return nil, fmt.Errorf("-counters, -new and -many must be 1 to %d", most)
	}
	return o, nil
}
