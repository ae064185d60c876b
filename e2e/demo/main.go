// Command demo runs sluice behind a real Envoy in front of an echo service, all on free ports. It
// sends a fixed sequence of requests and prints the answers. It exits with 1 if an answer is not
// the expected one.
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

type options struct {
	root   string // the repository's root
	rules  string // path of the rules below root; the script expects examples/quickstart/rules.yaml
	keep   bool   // after the script, keep the programs running until the context is cancelled
	colour bool   // use terminal colours
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o := options{colour: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""}
	flag.StringVar(&o.root, "root", ".", "`directory` of the repository")
	flag.StringVar(&o.rules, "rules", "examples/quickstart/rules.yaml", "`path` of the rules that the script expects")
	flag.BoolVar(&o.keep, "keep", false, "after the script, keep everything running until Ctrl-C")
	flag.Parse()
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// run plays the script. It stops all programs and removes all files before it returns.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	t := &transcript{out: out, colour: o.colour}
	t.note("Starting Envoy, sluice and an echo service on free ports ...")
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
		t.note("Waiting %v: the limits count per clock hour, and the demo must not cross the hour ...",
			left.Round(time.Second))
	}); err != nil {
		return err
	}
	t.note("Below each command are its answers, one line per request: the status and the rate limit headers.")
	began := time.Now()
	for i, step := range script {
		t.heading(i+1, step.title)
		if err := step.play(ctx, s, t); err != nil {
			return fmt.Errorf("step %d, %q: %w", i+1, step.title, err)
		}
	}
	took := time.Since(began).Round(100 * time.Millisecond)
	if o.keep {
		return s.keepRunning(ctx, t)
	}
	if err := s.stop(); err != nil {
		return err
	}
	t.closing("Done: %d requests in %v, all with the expected answers. All programs are stopped.\n"+
		"Next: `make demo KEEP=1` keeps them running so that you can send requests and edit the rules;\n"+
		"README.md describes how to run sluice with your Envoy.", t.requests, took)
	return nil
}

// maxDuration is a generous bound on the duration of the script. The counters of the rules are
// reset on the hour, so the script does not start later than this before the hour.
const maxDuration = time.Minute

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
