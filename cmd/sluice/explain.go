package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server"
)

type explainCmd struct {
	server.CounterQuery `embed:""`

	Config       []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"File or directory of rules; may be repeated. Default ./config."`
	Addr         string   `placeholder:"ADDR" help:"Ask the debug listener of a running sluice instead, such as 127.0.0.1:6070, and show the counters too."`
	Defaults     string   `placeholder:"FILE" help:"As serve --defaults."`
	MergeDomains bool     `help:"Merge files of one domain, as serve --merge-domains does."`
	AllOrNothing bool     `help:"As serve --all-or-nothing."`
}

// Validate checks what the types do not.
func (e *explainCmd) Validate() error {
	switch {
	case e.Addr == "" && (e.Limit != "" || e.Reset):
		return errors.New("--limit and --reset need --addr: they are about the counters of a running sluice")
	case e.Addr == "":
		return nil
	case len(e.Config) > 0 || e.Defaults != "" || e.MergeDomains || e.AllOrNothing:
		return errors.New("--addr excludes --config, --defaults, --merge-domains and --all-or-nothing: the running sluice has its own")
	}
	if !strings.HasPrefix(e.Addr, "unix:") {
		if _, _, err := net.SplitHostPort(e.Addr); err != nil {
			return fmt.Errorf("--addr %q is not an address: write host:port or unix:///path", e.Addr)
		}
	}
	if e.Limit != "" {
		if _, err := descriptors.ParseOverride(e.Limit); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	return nil
}

// BeforeResolve has the environment set the flags that are serve's too.
func (*explainCmd) BeforeResolve(ctx *kong.Context) error {
	_, err := environment.Resolve(ctx, ruleFlags)
	return err
}

// Run explains one descriptor.
func (e *explainCmd) Run(ctx context.Context, c console) error {
	entries, err := descriptors.ParseEntries(e.Descriptor)
	if err != nil {
		return err
	}
	if e.Addr != "" {
		return e.ask(ctx, c)
	}
	paths := e.Config
	if len(paths) == 0 {
		paths = []string{"./config"}
	}
	set, diagnostics, err := loadRules(c, paths, e.Defaults, descriptors.Options{MergeDomains: e.MergeDomains, AllOrNothing: e.AllOrNothing})
	if err != nil {
		return loadError(err, e.Defaults)
	}
	if err := diagnostics.Err(); err != nil {
		return fmt.Errorf("these rules do not load:\n%w", err)
	}
	_, err = fmt.Fprint(c.out, set.Explain(e.Domain, entries))
	return err
}

// ask explains one descriptor as a running sluice sees it.
func (e *explainCmd) ask(ctx context.Context, c console) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	report, err := server.AskCounters(ctx, e.Addr, e.CounterQuery)
	if err != nil {
		return fmt.Errorf("ask %s: %w", e.Addr, err)
	}
	var b strings.Builder
	b.WriteString(report.Explanation)
	if e.Limit != "" {
		fmt.Fprintf(&b, "--limit %s: %s\n", e.Limit, report.Reason)
	}
	for i := range report.Counters {
		b.WriteString("counter: " + counterText(&report.Counters[i], e.Reset) + "\n")
	}
	_, err = fmt.Fprint(c.out, b.String())
	return err
}

func counterText(s *server.CounterState, reset bool) string {
	text := fmt.Sprintf("%s: %d used of %d, %d left", s.Limit, s.Used, s.Capacity, s.Remaining)
	until := time.Duration(s.ResetsIn * float64(time.Second)).Round(time.Millisecond)
	switch {
	case s.Over:
		text += fmt.Sprintf(", over for %v", until)
	case s.Used > 0:
		text += fmt.Sprintf(", as new in %v", until)
	}
	if reset {
		text = fmt.Sprintf("%s, reset: %d were used", text, s.Forgotten)
	}
	return text
}
