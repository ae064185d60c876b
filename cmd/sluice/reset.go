package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
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

// Run resets the selected counters at all replicas after confirmation. A replica that has none of them
// is skipped, unless that is true of all.
func (r *resetCmd) Run(ctx context.Context, c console) error {
	replicas, err := r.service().Clients(ctx)
	if err != nil {
		return err
	}
	if !r.Yes {
		question := c.out
		if r.Output == "json" {
			question = c.err
		}
		if err := r.request(ctx, replicas, false, func(replica string, preview *live.Reset) error {
			fmt.Fprintf(question, "%s%s: %s, %d used%s\n", replica, preview.Selection,
				rules.Count(preview.Counters, "counter"), preview.Used, notReset(preview.NotReset))
			return nil
		}); err != nil {
			return fmt.Errorf("nothing was reset: %w", err)
		}
		fmt.Fprint(question, "Reset? [y/N] ")
		answer, _ := bufio.NewReader(c.in).ReadString('\n') // end of input means no
		if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
			return errors.New("nothing was reset")
		}
	}
	return r.request(ctx, replicas, true, func(replica string, done *live.Reset) error {
		return r.print(c, done, func() error {
			fmt.Fprintf(c.out, "%sreset %s, %d were used%s\n", replica, rules.Count(done.Counters, "counter"), done.Used,
				notReset(done.NotReset))
			return nil
		})
	})
}

// request resets the counters at each replica, or asks for a preview, and prints the reports. replica is
// a prefix that names it if there are several.
func (r *resetCmd) request(
	ctx context.Context, replicas []*client.Debug, reset bool, printReport func(replica string, report *live.Reset) error,
) error {
	var none, failed []error
	for _, at := range replicas {
		report, err := at.ResetCounters(ctx, r.Selection, reset)
		if err != nil {
			err = fmt.Errorf("query %s: %w", at.Addr, err)
			if errors.Is(err, client.ErrNotFound) {
				none = append(none, err)
			} else {
				failed = append(failed, err)
			}
			continue
		}
		prefix := ""
		if len(replicas) > 1 {
			prefix = at.Addr + ": "
		}
		if err := printReport(prefix, report); err != nil {
			return err
		}
	}
	if len(none) == len(replicas) {
		failed = none
	}
	return errors.Join(failed...)
}

// notReset returns a text about the counters that a reset cannot reset, or "" if there are none.
func notReset(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d cannot be reset, because names in the store contain client values", n)
}
