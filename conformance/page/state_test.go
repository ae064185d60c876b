package page

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// pageTime is the time of the states that tests show.
var pageTime = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// newState returns a state without rules.
func newState() *live.State {
	return &live.State{
		Time: pageTime, Conditions: []telemetry.Condition{}, Domains: []live.DomainState{},
		UnknownDomains: []live.UnknownDomain{}, Events: []telemetry.Event{}, Status: live.Status{Store: "none"},
	}
}

// openPaused opens a page that does not refresh itself, in the time zone of Tokyo.
func openPaused(t *testing.T) (context.Context, func() []string) {
	t.Helper()
	s := start(t, rules)
	addr := s.Addr("debug")
	ctx, browserErrors := chromium(t, "http://"+addr, "")
	do(ctx, t, command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"}),
		chromedp.Navigate("http://"+addr+"/"), chromedp.Click("#pause"))
	await(ctx, t, "paused")
	return ctx, browserErrors
}

// showState shows a state on a page that is paused.
func showState(ctx context.Context, t *testing.T, s *live.State) {
	t.Helper()
	for i := range s.Domains { // lists of a real state are never null
		d := &s.Domains[i]
		d.DeniedKeys, d.Unmatched, d.Rules = append([]live.Key{}, d.DeniedKeys...), append([]live.Unmatched{}, d.Unmatched...), append([]live.RuleState{}, d.Rules...)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	do(ctx, t, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("state = %s; allLimits = []; show()", text)))
}

func bodyText(ctx context.Context, t *testing.T) string {
	t.Helper()
	return get(ctx, t, chromedp.Evaluate[string]("document.body.innerText"))
}

// TestPageShowsEveryPart shows a state with all optional parts.
func TestPageShowsEveryPart(t *testing.T) {
	ctx, browserErrors := openPaused(t)
	at, p99, inFlight := pageTime, 0.00021, uint64(3)
	s := newState()
	s.Counters, s.ShadowMode, s.TopKeys, s.Config = "store", true, live.Hashed, live.Config{Hash: "cafe", Limits: 3}
	s.Status = live.Status{Calls: 1234, Denied: 56.7, Errors: 8.9, Connections: 4, P99: &p99, Counters: 5000, MaxCounters: 2_000_000, Store: "unavailable"}
	s.Conditions = []telemetry.Condition{{Code: telemetry.RulesRejected, Severity: "error", Since: at, Text: "a condition", Remedy: "a remedy", Docs: "docs/a.md", Lines: []string{"a line"}, Fields: map[string]any{"peer": "10.0.0.1"}}}
	s.Domains = []live.DomainState{{
		Domain: "shop",
		DeniedKeys: []live.Key{
			{Hash: "cafe", Rule: "user", Limit: "5/hour", PenaltyUntil: &at, PerSecond: 9, Share: 0.75, Since: at, Last: at},
			{Hash: "beef", Descriptor: "customer=acme", Rule: "customer", Limit: "60/minute", OwnLimit: "0/minute", Table: "customers"},
			{Hash: "f00d", Descriptor: "upload=1", Rule: "upload", Limit: "3 concurrent requests, each for at most 1 minute", Unit: "permits", Permits: 3, InFlight: &inFlight},
			{Hash: "d00d", Descriptor: "user=own"},
		},
		Unmatched: []live.Unmatched{{Why: "a reason", Seen: 3, Last: at}},
		Rules: []live.RuleState{
			{Rule: "llm", Limit: "40000/minute", Name: "llm-tokens", Unit: "tokens", At: "a.yaml:9:3", Rate: live.Rate{Hits: 30_000, Denied: 100}},
			{Rule: "user", Limit: "5/hour", Unit: "requests", At: "a.yaml:7:3", Rate: live.Rate{Hits: 20, Denied: 10}, Line: &live.Line{Seconds: 10, Hits: []uint32{0, 1, 200}, Denied: []uint32{0, 0, 50}}},
			{Rule: "shy", Limit: "5/hour", Unit: "requests", Shadow: true, Rate: live.Rate{Shadow: 2}},
		},
	}}
	s.UnknownDomains = []live.UnknownDomain{{Domain: "shpo", PerSecond: 1, Meant: "shop"}, {Domain: "past", Descriptors: 7}}
	s.Quota = &live.Quota{Streams: 1, Buckets: 2, Largest: []live.QuotaBucket{{
		Domain: "shop", Rule: "api", Limit: "100/second", Hash: "ba11", LimitRate: 100, Assigned: 98.5, DemandRate: 130, Unconfirmed: 3,
		Lost: 20, LostUntil: &at, LearningUntil: &at, Holders: 1, Shares: []live.QuotaShare{{Stream: 2, Share: 60, Demand: 90}},
	}}}
	for i := range 9 {
		s.Events = append(s.Events, telemetry.Event{Time: at, Text: fmt.Sprint("event ", i), Count: 1})
	}
	s.Events[0] = telemetry.Event{Time: at, Level: "warning", Text: "an event", Code: "a_code", Ends: true, Count: 2, Lines: []string{"another line"}}
	s.Events[8] = telemetry.Event{Time: at, Text: "rules loaded", Count: 1, Fields: map[string]any{"changed": []string{"shop: user 5/hour -> 0/hour"}, "changes": 3, "hash": "cafe"}}
	showState(ctx, t, s)
	got := strings.Join(strings.Fields(bodyText(ctx, t)), " ")
	for _, want := range []string{
		"2026-01-02 09:00:00 (times: Asia/Tokyo)", "rates and keys are those seen by this replica", "shadow mode: every request is allowed",
		"calls/s 1,234", "denied/s 56.7", "errors/s 8.9", "Envoy connections 4", "p99 time 0.21 ms", "counters used 5,000 of 2,000,000", "store unavailable",
		"a condition rules_rejected since 2026-01-02 09:00:00 peer=10.0.0.1", "Remedy: a remedy (docs/a.md)", "a line",
		"an event ends a_code (2 times) another line", "event 4 2026-01-02 09:00:00 rules loaded hash=cafe shop: user 5/hour -> 0/hour and 2 more", "earlier events: 3",
		"9.0 75% 0 2026-01-02 09:00:00 #cafe shop: user 5/hour, penalty until 2026-01-02 09:00:00",
		"customer=acme shop: customer 0/minute, from table customers", "upload=1 shop: upload 3 concurrent requests, each for at most 1 minute, 3 of 3 in flight", "user=own shop: limit override of the request",
		"shop: a reason seen 3", "1.0 descriptors per second for the domain shpo, which has no rules; did you mean shop?", "none now, 7 before, for the domain past",
		"shop: user 5/hour a.yaml:7:3", "shop: shy 5/hour, shadow: would deny 2.0/s", "shop: llm 40000/minute (tokens) a.yaml:9:3",
		"130.0 98.5 100.0 shop: api 100/second #ba11 1: stream 2 60.0 of 90.0 unconfirmed; 3.0 not confirmed; 20.0 lost until 2026-01-02 09:00:00; learning until",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if strings.Index(got, "shop: shy") > strings.Index(got, "shop: llm") {
		t.Errorf("limits of tokens are sorted among those of requests:\n%s", got)
	}
	// A copy of the banner, because the page hides its own while it is paused.
	do(ctx, t, chromedp.Evaluate[chromedp.Void]("const banner = byId('stale').cloneNode(true); banner.hidden = false; banner.firstElementChild.append('stale'); byId('stale').after(banner)"),
		chromedp.Evaluate[chromedp.Void](axe(t)))
	eachDisplay(ctx, t, func(display string) { checkLayout(ctx, t, display) })
	s.Quota, s.Config = &live.Quota{}, live.Config{Hash: "cafe"}
	showState(ctx, t, s)
	if got := bodyText(ctx, t); !strings.Contains(got, "no Envoy is connected") || !strings.Contains(got, "the rules have no limits: every request is allowed") {
		t.Errorf("without Envoys and limits the page is\n%s", got)
	}
	showState(ctx, t, newState())
	if got := bodyText(ctx, t); !strings.Contains(got, "no rules loaded: every request gets an error") || strings.Contains(got, "Divided limits") ||
		!strings.Contains(got, "; no rules; keys:") || !strings.Contains(got, "no rules are loaded") {
		t.Errorf("without rules the page is\n%s", got)
	}
	reportErrors(t, browserErrors)
}

// TestPageShowsHostileNames shows names with HTML, escapes for terminals, characters that reverse the
// direction, and 16 KiB, in all parts of the page.
func TestPageShowsHostileNames(t *testing.T) {
	ctx, browserErrors := openPaused(t)
	hostile := "<img src=x onerror=alert(1)>\x1b[31m\u202e"
	long := hostile + strings.Repeat("x", 16<<10)
	rule := live.RuleState{Rule: long, Limit: "5/hour", Unit: "requests", At: "a.yaml:7:3", Line: &live.Line{Seconds: 10, Hits: []uint32{1}, Denied: []uint32{1}}}
	s := newState()
	s.Conditions = []telemetry.Condition{{Text: long, Remedy: long, Docs: "docs/a.md", Lines: []string{long}, Fields: map[string]any{"peer": long}}}
	s.Domains = []live.DomainState{{
		Domain:     long,
		DeniedKeys: []live.Key{{Hash: "0123456789abcdef", Descriptor: "user=" + hostile, Rule: long, Limit: "5/hour"}, {Hash: "0123456789abcdee"}},
		Unmatched:  []live.Unmatched{{Why: long}}, Rules: []live.RuleState{rule},
	}}
	s.UnknownDomains = []live.UnknownDomain{{Domain: long, Meant: long}}
	s.Quota = &live.Quota{Streams: 1, Largest: []live.QuotaBucket{{Domain: long, Rule: long, Hash: "0123456789abcdef", Shares: []live.QuotaShare{{Address: hostile}}}}}
	s.Events = []telemetry.Event{{Text: hostile, Fields: map[string]any{"changed": []string{hostile}, hostile: hostile}}}
	showState(ctx, t, s)
	do(ctx, t, chromedp.EmulateViewport(375, 800))
	check := func(where string) {
		t.Helper()
		if n := get(ctx, t, chromedp.Evaluate[int]("document.querySelectorAll('img').length")); n != 0 {
			t.Errorf("%s: a name has become an element", where)
		}
		if text := bodyText(ctx, t); strings.ContainsAny(text, "\x1b\u202e") || !strings.Contains(text, `user=<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}`) {
			t.Errorf("%s: the names are shown as\n%.2000q", where, text)
		}
		for _, e := range get(ctx, t, chromedp.Evaluate[[]string](findCut)) {
			t.Errorf("%s: %s", where, e)
		}
		if n := get(ctx, t, chromedp.Evaluate[int]("Math.max(...Array.from(document.querySelectorAll('td'), (e) => e.offsetHeight))")); n > 400 {
			t.Errorf("%s: a cell is %d pixels high, want long names to be shortened in tables", where, n)
		}
	}
	check("the page")
	hash := "Array.from(document.querySelectorAll('#keys .name button')).find((b) => b.innerText.startsWith('#')).getClientRects().length"
	if n := get(ctx, t, chromedp.Evaluate[int](hash)); n != 1 {
		t.Errorf("a hash is on %d lines, want 1", n)
	}
	do(ctx, t, chromedp.Click("#keys .name button"))
	check("the details of a key")
	if n := get(ctx, t, chromedp.Evaluate[int]("document.querySelector('#facts').innerText.length")); n < 16<<10 {
		t.Errorf("the details have %d characters, want the complete name", n)
	}
	do(ctx, t, chromedp.Click("#details .close"), chromedp.Click("#limits .name button"))
	check("the details of a limit")
	reportErrors(t, browserErrors)
}
