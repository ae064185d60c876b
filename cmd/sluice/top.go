package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/top"
)

type topCmd struct {
	replicasFlags `embed:""`

	Once     bool           `help:"Print the state once and exit. Default if standard input or output is not a terminal, or TERM is dumb."`
	Output   string         `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Output format: text or json. json prints the state once."`
	Unmask   *time.Duration `range:"0s..1h" placeholder:"TIME" help:"First show the values of the keys that are denied from now on, such as user=alice, for this time, at most 1h; 0s ends that. Requires the right to write. For services with --top-keys=hashed."`
	Interval time.Duration  `range:"100ms..1h" default:"1s" placeholder:"TIME" help:"Refresh interval."`
}

// debugTimeout bounds a request to the debug listener. Only tests change it.
var debugTimeout = 5 * time.Second

// Run prints the state once, or shows it until the user quits.
func (t *topCmd) Run(ctx context.Context, c console) error {
	service := t.service()
	if t.Unmask != nil {
		replicas, err := service.Unmask(ctx, *t.Unmask)
		for _, r := range replicas {
			fmt.Fprintln(c.err, r)
		}
		if err != nil {
			return err
		}
	}
	terminal := c.terminal()
	if t.Output == "text" && !t.Once && top.IsInteractive(c.in, terminal, os.Getenv("TERM")) {
		ctx, stop := signalContext(ctx)
		defer stop()
		return service.Show(ctx, c.in, terminal, t.Interval)
	}
	snapshot, err := service.Fetch(ctx)
	switch {
	case snapshot == nil:
	case t.Output == "json":
		if err := c.writeJSON(snapshot.Sum); err != nil {
			return err
		}
	default:
		fmt.Fprintln(c.out, strings.Join(top.Text(snapshot, terminal), "\n"))
	}
	return err
}
