// Command soak hits limiter tables with all that could make them admit too much
// or lose what they owe, many goroutines at once, for some minutes: in simulated
// time, where hours pass in a moment, and in real time. It prints what was
// admitted against the bound and exits with 1 if anything was ever beyond it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// run runs all trials, again and again with other random numbers, until the time
// is up. It returns an error if one of them found a fault.
func run(ctx context.Context, args []string, out io.Writer) error {
	seed := rand.Uint64()
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("parse SLUICE_SEED: %w", err)
		}
		seed = n
	}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(out)
	length := flags.Duration("for", 3*time.Minute, "how long to run; each trial runs at least once")
	flags.Uint64Var(&seed, "seed", seed, "of the random numbers, also as SLUICE_SEED; the order of goroutines is not repeated")
	small := flags.Bool("small", false, "shorter trials, as in the tests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "SLUICE_SEED=%d, for %v\n", seed, *length); err != nil {
		return err
	}

	var (
		r      = rand.New(rand.NewPCG(seed, 1))
		all    = trials()
		totals []*total
		start  = time.Now()
	)
	for _, t := range all {
		totals = append(totals, &total{trial: t})
	}
	for round := 0; round == 0 || time.Since(start) < *length && ctx.Err() == nil; round++ {
		for _, t := range totals {
			if round > 0 && time.Since(start) >= *length || ctx.Err() != nil {
				break
			}
			b := &bout{policy: t.policy, rand: rand.New(rand.NewPCG(r.Uint64(), 1)), small: *small}
			t.run(b)
			t.add(b)
		}
	}
	return report(out, totals)
}

// total is what all bouts of one trial came to.
type total struct {
	trial

	bouts         int
	ops, admitted int64
	peak, bound   int64
	faults        []string
}

func (t *total) add(b *bout) {
	t.bouts++
	t.ops += b.ops.Load()
	t.admitted += b.admitted
	if t.bouts == 1 || b.bound-b.peak < t.bound-t.peak {
		t.peak, t.bound = b.peak, b.bound
	}
	t.faults = append(t.faults, b.faults...)
}

// mostFaults is how many faults of one trial are written out.
const mostFaults = 5

func report(out io.Writer, totals []*total) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "trial\tbouts\toperations\tadmitted\tat most\tbound\tfaults")
	faults := 0
	for _, t := range totals {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n",
			t.name, t.bouts, t.ops, t.admitted, t.peak, t.bound, len(t.faults))
		faults += len(t.faults)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range totals {
		for n, f := range t.faults {
			if n == mostFaults {
				f = fmt.Sprintf("and %d more", len(t.faults)-n)
			}
			if n > mostFaults {
				break
			}
			if _, err := fmt.Fprintf(out, "FAULT %s: %s\n", t.name, f); err != nil {
				return err
			}
		}
	}
	if faults > 0 {
		return fmt.Errorf("%d faults", faults)
	}
	return nil
}
