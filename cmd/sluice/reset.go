package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
)

type resetCmd struct {
	live.Selection `embed:""`
	Yes            bool `short:"y" help:"Do not ask for confirmation."`

	replicasFlags `embed:""`
	outputFlag    `embed:""`
}

func (r *resetCmd) Validate() error { return cmp.Or(r.Check(), r.replicasFlags.Validate()) }

// Run resets the selected counters at all replicas after confirmation.
func (r *resetCmd) Run(ctx context.Context, c console) error {
	replicas, err := r.service().Clients(ctx)
	if err != nil {
		return err
	}
	if r.Key != "" && len(replicas) > 1 {
		return errors.New("--hash with several replicas: each may have its own hash key, so a hash belongs to one replica: use --descriptor, or the address of that replica")
	}
	notes := c.out
	if r.Output == "json" {
		notes = c.err
	}
	if !r.Yes {
		if err := r.request(ctx, replicas, false, notes, func(replica string, preview *live.Reset) error {
			fmt.Fprintf(notes, "%s%s: %s, %d used%s\n", replica, preview.Selection,
				rules.Count(preview.Counters, "counter"), preview.Used, notReset(preview.NotReset))
			return nil
		}); err != nil {
			return fmt.Errorf("nothing was reset: %w", err)
		}
		fmt.Fprint(notes, "Reset? [y/N] ")
		answer, _ := bufio.NewReader(c.in).ReadString('\n') // end of input means no
		if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
			return errors.New("nothing was reset")
		}
	}
	return r.request(ctx, replicas, true, notes, func(replica string, done *live.Reset) error {
		return r.print(c, done, func() error {
			fmt.Fprintf(c.out, "%sreset %s, %d were used%s\n", replica, rules.Count(done.Counters, "counter"), done.Used,
				notReset(done.NotReset))
			return nil
		})
	})
}

// request resets the counters at each replica, or asks for a preview, and prints the reports, and to notes
// the replicas without the counters. replica is a prefix that names it if there are several.
func (r *resetCmd) request(
	ctx context.Context, replicas []*client.Debug, reset bool, notes io.Writer,
	printReport func(replica string, report *live.Reset) error,
) error {
	reports := make([]*live.Reset, len(replicas))
	errs := make([]error, len(replicas))
	for i, at := range replicas {
		reports[i], errs[i] = at.ResetCounters(ctx, r.Selection, reset)
	}
	// Reports are printed at the end, because an error of the output cancels ctx.
	several := len(replicas) > 1
	skipped := 0
	for i, at := range replicas {
		switch err := errs[i]; {
		case several && err == nil:
			reports[i].Replica = at.Addr
			errs[i] = printReport(at.Addr+": ", reports[i])
		case err == nil:
			errs[i] = printReport("", reports[i])
		case several && errors.Is(err, client.ErrNotFound):
			skipped++
			errs[i] = nil
			fmt.Fprintf(notes, "%s: %s\n", at.Addr, strings.TrimPrefix(err.Error(), client.ErrNotFound.Error()+": "))
		default:
			errs[i] = fmt.Errorf("query %s: %w", at.Addr, err)
		}
	}
	if several && skipped == len(replicas) {
		return errors.New("no replica has such counters")
	}
	return errors.Join(errs...)
}

// notReset returns a text about the counters that a reset cannot reset, or "" if there are none.
func notReset(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d cannot be reset, because names in the store contain client values", n)
}
