package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
)

type resetCmd struct {
	Addr           string `type:"address" default:"127.0.0.1:6070" placeholder:"ADDR" help:"Debug listener of a running service."`
	live.Selection `embed:""`
	Yes            bool `short:"y" help:"Do not ask for confirmation."`

	debugClientFlags `embed:""`
	outputFlag       `embed:""`
}

func (r *resetCmd) Validate() error { return cmp.Or(r.Check(), r.check()) }

// Run resets the selected counters after confirmation.
func (r *resetCmd) Run(ctx context.Context, c console) error {
	preview, err := r.requestReset(ctx, "")
	if err != nil {
		return err
	}
	if !r.Yes {
		fmt.Fprintf(map[string]io.Writer{
			"text": c.out, "json": c.err,
		}[r.Output], "Reset %s? %s, %d used%s. [y/N] ", preview.Selection, rules.Count(preview.Counters, "counter"),
			preview.Used, format.NotReset(preview.NotReset))
		answer, _ := bufio.NewReader(c.in).ReadString('\n') // end of input means no
		if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
			return errors.New("nothing was reset")
		}
	}
	done, err := r.requestReset(ctx, preview.Token)
	if err != nil {
		return err
	}
	return r.print(c, done, func() error {
		fmt.Fprintf(c.out, "reset %s, %d were used%s\n", rules.Count(done.Counters, "counter"), done.Used,
			format.NotReset(done.NotReset))
		return nil
	})
}

func (r *resetCmd) requestReset(ctx context.Context, token string) (*live.Reset, error) {
	ctx, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	running, err := r.debugClient(r.Addr)
	if err != nil {
		return nil, err
	}
	report, err := running.ResetCounters(ctx, r.Selection, token)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", r.Addr, err)
	}
	return report, nil
}
