package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/client"
)

type explainCmd struct {
	client.CounterQuery `embed:""`

	Config    []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated. Default: ./config."`
	Addr      string   `type:"address" placeholder:"ADDR" help:"Debug listener of a running service. Explains with its rules and prints the counters too. Default: 127.0.0.1:6070, or ./config if no service answers there, unless another flag names rules."`
	ruleFlags `embed:""`

	Envoy    []string          `sep:"none" placeholder:"ENVOY" help:"Envoy configuration, as for envoy check: explain the descriptors that it generates for REQUEST. May be repeated."`
	Request  string            `arg:"" optional:"" help:"With --envoy: request to explain, such as 'GET https://shop.example/search?q=1'."`
	Header   []string          `short:"H" sep:"none" placeholder:"NAME: VALUE" help:"With --envoy: header of the request, as the rate limit filter sees it. May be repeated."`
	Remote   netip.Addr        `placeholder:"ADDRESS" help:"With --envoy: IP address that connects to Envoy."`
	Metadata map[string]string `mapsep:"none" placeholder:"NS:KEY=VALUE" help:"With --envoy: dynamic metadata that other filters set in namespace NS. KEY.KEY addresses a nested field; without VALUE the field is absent. May be repeated."`
	Listener string            `placeholder:"NAME" help:"With --envoy: name of the listener, if several have rate limit filters."`

	debugClientFlags `embed:""`
	outputFlag       `embed:""`

	entries []descriptors.Entry // the parsed Descriptor
	request envoyconfig.Request
}

// defaultDebugAddr is the address of the debug listener. Only tests change it.
var defaultDebugAddr = "127.0.0.1:6070"

func (e *explainCmd) Validate() error {
	if len(e.Envoy) > 0 {
		return e.validateEnvoy()
	}
	var err error
	e.entries, err = descriptors.ParseEntries(e.Descriptor)
	switch {
	case err != nil:
		return fmt.Errorf("--descriptor: %w", err)
	case e.Request != "" || len(e.Header) > 0 || e.Remote.IsValid() || len(e.Metadata) > 0 || e.Listener != "":
		return errors.New("a request, --header, --remote, --metadata and --listener require --envoy")
	case e.Domain == "" || e.Descriptor == "":
		return errors.New("nothing to explain: set --domain and --descriptor, or --envoy and a request")
	case e.Addr == "" && (len(e.Config) > 0 || e.given) && e.Limit != "":
		return errors.New("--limit requires --addr: it selects counters of a running service")
	case e.Addr == "" && (len(e.Config) > 0 || e.given) && e.debugClientFlags != (debugClientFlags{}):
		return errors.New("--tls, --ca-cert, --cert, --key, --server-name and --token-file require --addr")
	case e.Addr != "" && (len(e.Config) > 0 || e.given):
		return errors.New("--addr cannot be combined with --config, --defaults, --merge-domains, --all-or-nothing, --calendar-months, --table or --tables-dir: the running service has its own")
	}
	if e.Limit != "" {
		if _, err := descriptors.ParseOverride(e.Limit); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	return e.check()
}

func (e *explainCmd) Run(ctx context.Context, c console) error {
	if len(e.Envoy) > 0 {
		return e.explainEnvoy(c)
	}
	if e.Addr != "" {
		return e.explainRunning(ctx, c)
	}
	if len(e.Config) == 0 && !e.given {
		e.Addr = defaultDebugAddr
		err := e.explainRunning(ctx, c)
		if asked := e.Limit != "" || e.debugClientFlags != (debugClientFlags{}); asked ||
			!errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		fmt.Fprintf(c.err, "no service at %s: explaining with the rules in ./config, without counters\n", e.Addr)
	}
	set, err := e.loadValid(c, e.Config)
	if err != nil {
		return err
	}
	return e.printReport(c, admin.NewCounterReport(set, e.Domain, e.Descriptor, e.entries))
}

// explainRunning explains a descriptor with the rules and counters of a running service.
func (e *explainCmd) explainRunning(ctx context.Context, c console) error {
	running, err := e.debugClient(e.Addr)
	if err != nil {
		return err
	}
	report, err := running.Counters(ctx, e.CounterQuery)
	if err != nil {
		return fmt.Errorf("query %s: %w", e.Addr, err)
	}
	return e.printReport(c, report)
}

func (e *explainCmd) printReport(c console, report *admin.CounterReport) error {
	return e.print(c, report, func() error {
		fmt.Fprint(c.out, format.EscapeLines(reportText(report, e.CounterQuery)))
		return nil
	})
}

// reportText returns the explanation and the counters of a descriptor.
func reportText(report *admin.CounterReport, q client.CounterQuery) string {
	var b strings.Builder
	b.WriteString(report.Explanation)
	if q.Limit != "" {
		fmt.Fprintf(&b, "--limit %s: %s\n", q.Limit, report.Reason)
	}
	for i := range report.Counters {
		fmt.Fprintf(&b, "counter: %s\n", counterText(&report.Counters[i]))
	}
	if report.Next != nil {
		fmt.Fprintf(&b, "next request: %s\n", nextText(report.Next))
	}
	if d := report.Divided; d != nil {
		fmt.Fprintf(&b, "divided: %s per second assigned of %s, %s demanded, %s\n", format.Rate(d.Assigned),
			format.Rate(d.LimitRate), format.Rate(d.DemandRate), format.Shares(d))
	}
	return b.String()
}

// nextText describes whether the next request is denied.
func nextText(next *admin.NextRequest) string {
	wait := time.Duration(next.For * float64(time.Second)).Round(time.Millisecond)
	switch {
	case !next.Denied:
		return "allowed"
	case wait == 0:
		return "denied by " + next.By
	case next.AtMost:
		return fmt.Sprintf("denied by %s for at most %v", next.By, wait)
	}
	return fmt.Sprintf("denied by %s for %v", next.By, wait)
}

func counterText(s *admin.CounterState) string {
	limit := s.Limit
	if s.Shadow {
		limit += ", shadow: true"
	}
	text := fmt.Sprintf("%s: %d used of %d, %d left", limit, s.Used, s.Capacity, s.Remaining)
	if s.Unit == "permits" {
		text = fmt.Sprintf("%s: %d of %d in flight, %d left", limit, s.Used, s.Capacity, s.Remaining)
	}
	if h := s.Held; h != nil {
		text += heldText(h, s.Reserves > 0)
	}
	if s.Reserves > 0 {
		text += fmt.Sprintf(", the next request reserves %d", s.Reserves)
		if s.Estimated {
			text += fmt.Sprintf(" (90th percentile; %d of %d costs known)", s.Samples, s.SamplesNeeded)
		}
	}
	if s.Penalty > 0 {
		text += fmt.Sprintf(", penalty step %d", s.Penalty)
	}
	until := time.Duration(s.ResetsIn * float64(time.Second)).Round(time.Millisecond)
	switch {
	case s.ResetsAt == nil: // it has no window
	case s.Over:
		text += fmt.Sprintf(", over for %v", until)
	case s.Used > 0:
		text += fmt.Sprintf(", resets in %v", until)
	}
	if s.ResetsAt != nil && s.Timezone != "" {
		text += ", at " + s.ResetsAt.Local().Format("2006-01-02T15:04:05 MST")
	}
	if (s.Over || s.Denied) && s.Key != "" {
		text += ", key #" + s.Key
	}
	return text
}

// heldText describes the leases of running requests: the age of the permits of a concurrency limit
// or, with reserved, the hits that they hold.
func heldText(h *admin.HeldState, reserved bool) string {
	switch {
	case h.Requests == 0 && reserved:
		return ", none held"
	case h.Requests == 0:
		return ""
	}
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)).Round(time.Second) }
	held := ""
	if reserved {
		held = fmt.Sprintf(", %d held by %s", h.Hits, rules.Count(int(h.Requests), "request"))
	}
	return fmt.Sprintf("%s, the oldest for %v, the first expires in %v", held, seconds(h.OldestFor),
		seconds(h.FirstFreeIn))
}
