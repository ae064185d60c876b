package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/live"
)

type topCmd struct {
	Addr   string `type:"address" default:"127.0.0.1:6070" placeholder:"ADDR" help:"The debug listener of a running sluice."`
	Once   bool   `help:"Print the state once and end."`
	Output string `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Text for people, or JSON for programs."`
}

// Run shows what is so now.
func (t *topCmd) Run(ctx context.Context, c console) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	state, err := server.AskState(ctx, t.Addr)
	if err != nil {
		return fmt.Errorf("ask %s: %w", t.Addr, err)
	}
	if t.Output == "json" {
		return c.writeJSON(state)
	}
	writeTop(c.out, state)
	return nil
}

// writeTop writes a state for people, in 80 columns.
func writeTop(w io.Writer, s *live.State) {
	fmt.Fprintf(w, "%s  rules %s, %s\n", s.Time.Format(time.DateTime), s.Config.Hash, count(s.Config.Limits, "limit"))
	for i := range s.Domains {
		d := &s.Domains[i]
		fmt.Fprintf(w, "\ndomain %s\n", d.Domain)
		if len(d.DeniedKeys) == 0 {
			continue
		}
		fmt.Fprintf(w, "  %9s %6s %10s  %-8s  %s\n", "denied/s", "share", "denied", "since", "key")
		for j := range d.DeniedKeys {
			k := &d.DeniedKeys[j]
			fmt.Fprintf(w, "  %9.1f %5.0f%% %10d  %-8s  %s\n", k.PerSecond, 100*k.Share, k.Denied, k.Since.Format(time.TimeOnly), keyText(k))
		}
	}
}

// keyText names a key by its rule and by what is known of the client.
func keyText(k *live.Key) string {
	rule := k.Rule
	if rule == "" {
		rule = "limit of the request"
	} else {
		rule += " " + k.Limit
	}
	if k.Descriptor != "" {
		return rule + "  " + printable(k.Descriptor)
	}
	return rule + "  #" + k.Hash
}

// printable returns s for a terminal: what clients send may not move its cursor.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}
