package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
)

type resetCmd struct {
	Addr           string `type:"address" default:"127.0.0.1:6070" placeholder:"ADDR" help:"Debug listener of a running service."`
	live.Selection `embed:""`
	Yes            bool `short:"y" help:"Do not ask for confirmation."`

	debugClientFlags `embed:""`
}

func (r *resetCmd) Validate() error { return r.check() }

// Run resets what is selected, once somebody has said yes.
func (r *resetCmd) Run(ctx context.Context, c console) error {
	would, err := r.requestReset(ctx, "")
	if err != nil {
		return err
	}
	if !r.Yes {
		fmt.Fprintf(c.out, "Reset %s? %s, %d used%s. [y/N] ", would.Selection, rules.Count(would.Counters, "counter"), would.Used, leftText(would.Left))
		said, _ := bufio.NewReader(c.in).ReadString('\n') // an end is no yes
		if s := strings.ToLower(strings.TrimSpace(said)); s != "y" && s != "yes" {
			return errors.New("nothing was reset")
		}
	}
	did, err := r.requestReset(ctx, would.Token)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "reset %s, %d were used%s\n", rules.Count(did.Counters, "counter"), did.Used, leftText(did.Left))
	return nil
}

func leftText(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 is left, whose name in the store holds values of clients"
	}
	return fmt.Sprintf("; %d are left, whose names in the store hold values of clients", n)
}

func (r *resetCmd) requestReset(ctx context.Context, token string) (*live.Reset, error) {
	ctx, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	running, err := r.debugClient(r.Addr)
	if err != nil {
		return nil, err
	}
	report, err := running.ResetDenied(ctx, r.Selection, token)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", r.Addr, err)
	}
	return report, nil
}
