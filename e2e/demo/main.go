// Command demo shows what sluice does: it starts a real Envoy, sluice and a
// service behind them on free ports, sends requests by a script and prints what
// comes back. It exits with 1 if anything is not as scripted.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/window"
)

// options say what to show.
type options struct {
	// root is the repository's root.
	root string
	// rules is the path of the rules that the script is written for.
	rules string
	// keep leaves everything running after the script until ctx ends.
	keep bool
	// colour allows terminal colours.
	colour bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o := options{colour: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""}
	flag.StringVar(&o.root, "root", ".", "`directory` of the repository")
	flag.StringVar(&o.rules, "rules", "examples/quickstart/rules.yaml", "`path` of the rules, which the script is written for")
	flag.BoolVar(&o.keep, "keep", false, "go on until Ctrl-C after the script")
	flag.Parse()
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// run shows everything and leaves nothing behind.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	t := &transcript{out: out, colour: o.colour}
	t.note("starting a service, sluice and Envoy on free ports ...")
	s, err := startStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.stop(); err == nil {
			err = closeErr
		}
	}()
	if err := window.Await(ctx, max(maxDuration, window.Margin()), func(left time.Duration) {
		t.note("waiting %v for the next hour: windows of an hour end with it, and this one must not end within the script ...",
			left.Round(time.Second))
	}); err != nil {
		return err
	}
	began := time.Now()
	for number, act := range script {
		t.heading(number+1, act.title)
		if err := act.play(ctx, s, t); err != nil {
			return fmt.Errorf("act %d, %q: %w", number+1, act.title, err)
		}
	}
	took := time.Since(began).Round(100 * time.Millisecond)
	if o.keep {
		return s.keepRunning(ctx, t)
	}
	if err := s.stop(); err != nil {
		return err
	}
	t.closing("done: %d requests in %v, all answered as scripted; nothing is left running.", t.requests, took)
	return nil
}

// maxDuration is how long the script may take, generously. The counters of the rules begin anew
// with the hour, which must not be in its middle.
const maxDuration = time.Minute

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
