package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

type topCmd struct {
	Addr     []string      `default:"127.0.0.1:6070" placeholder:"ADDR" help:"Debug listeners of running services, separated by commas. Their figures are added up."`
	Once     bool          `help:"Print the state once and exit. Default if standard output is not a terminal."`
	Output   string        `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Output format: text or json. json prints the state once."`
	Interval time.Duration `range:"100ms..1h" default:"1s" placeholder:"TIME" help:"Refresh interval."`

	debugClientFlags `embed:""`
}

// maxTopLimits is the number of limits requested from each replica.
const maxTopLimits = 200

// debugTimeout bounds a request to the debug listener.
const debugTimeout = 5 * time.Second

func (t *topCmd) Validate() error {
	for i, addr := range t.Addr {
		parsed, err := parseAddress(addr)
		if err != nil {
			return fmt.Errorf("--addr: %w", err)
		}
		t.Addr[i] = parsed
	}
	return t.check()
}

// Run prints the state once, or shows it until the user quits.
func (t *topCmd) Run(ctx context.Context, c console) error {
	screen := openScreen(c)
	if t.Once || t.Output == "json" || screen == nil {
		state, err := t.fetchState(ctx)
		if state == nil {
			return err
		}
		if t.Output == "json" {
			if err := c.writeJSON(state); err != nil {
				return err
			}
		} else {
			width := 80
			if screen != nil {
				width, _ = screen.size()
			}
			v := view{width: width, utf8: supportsUTF8(os.Getenv), colour: screen != nil && os.Getenv("NO_COLOR") == ""}
			for _, line := range v.render(state, 0) {
				fmt.Fprintln(c.out, line)
			}
		}
		return err
	}
	ctx, stop := signalContext(ctx)
	defer stop()
	return screen.run(ctx, t)
}

// fetchState returns the aggregated state of the replicas that respond, nil if none does, and the
// errors of the others.
func (t *topCmd) fetchState(ctx context.Context) (*live.State, error) {
	ctx, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	states, errs := make([]*live.State, len(t.Addr)), make([]error, len(t.Addr))
	var wait sync.WaitGroup
	for i, addr := range t.Addr {
		wait.Go(func() {
			replica, err := t.debugClient(addr)
			if err != nil {
				errs[i] = err
				return
			}
			if states[i], errs[i] = replica.State(ctx, maxTopLimits); errs[i] != nil {
				errs[i] = fmt.Errorf("query %s: %w", addr, errs[i])
			}
		})
	}
	wait.Wait()
	var addrs []string
	var available []*live.State
	for i, s := range states {
		if s != nil {
			addrs, available = append(addrs, t.Addr[i]), append(available, s)
		}
	}
	err := errors.Join(errs...)
	if len(available) == 0 {
		return nil, err
	}
	sum := live.Sum(addrs, available)
	for _, err := range errs {
		if err != nil {
			missing := telemetry.NewCondition(telemetry.NoAnswer, sum.Time)
			missing.Text = err.Error()
			sum.Conditions = append([]telemetry.Condition{missing}, sum.Conditions...)
		}
	}
	return sum, err
}
