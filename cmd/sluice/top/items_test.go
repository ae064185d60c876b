package top

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// newState returns a state with one of everything but divided limits.
func newState() *live.State {
	at := time.Unix(1_700_000_000, 0)
	return &live.State{
		Version: live.Version, Time: at, Started: at.Add(-time.Hour), Program: "v1", Host: "host", Counters: "memory", TopKeys: "clear", HashKey: "beef",
		Config:     live.Config{Hash: "cafe", Limits: 2, Domains: 1},
		Status:     live.Status{Calls: 20, Denied: 12.3, Connections: 1},
		Conditions: []telemetry.Condition{{Code: telemetry.RulesRejected, Since: at, Text: "failed to load rules; keeping the previous rules", Remedy: "correct them", Lines: []string{"a.yaml:7:3: bad", "b\x1b[2J.yaml"}}},
		Domains: []live.DomainState{{
			Domain: "shop", DeniedKeys: []live.Key{{Hash: "0123456789abcdef", Descriptor: "user=\x1b[31mevil\u202e", Rule: "user", Limit: "5/hour", PerSecond: 12.3, Share: 0.5, Denied: 99, Since: at}, {Hash: "01", Rule: "a\x1b[31m=b\nc", Limit: "5/hour"}},
			Unmatched: []live.Unmatched{{Key: "usr", Why: `nothing matches entry 1, usr; did you mean "user"?`, Meant: "user", Seen: 3, Last: at}},
			Rules:     []live.RuleState{{Rule: "user", Limit: "5/hour", Rate: live.Rate{Hits: 20, Denied: 12.3}, Line: &live.Line{Seconds: 10, Hits: []uint32{0, 5, 9}, Denied: []uint32{0, 1, 2}}}, {Rule: "a\x1b[31m=b\nc"}},
		}},
		UnknownDomains: []live.UnknownDomain{{Domain: "shpo", PerSecond: 1, Meant: "shop"}},
		Events:         []telemetry.Event{{Time: at, Level: "info", Text: "rules loaded", Code: "rules_rejected", Ends: true, Fields: map[string]any{"changed": []any{"shop: user 5/hour -> 0/hour"}, "changes": 3.0}, Count: 1}},
	}
}

func texts(lines []line) (all []string) {
	for _, l := range lines {
		all = append(all, l.text)
	}
	return all
}

// TestTextIsPlain verifies that lines fit the width and the height, and contain no control
// characters.
func TestTextIsPlain(t *testing.T) {
	v := view{width: 80}
	for height := range 40 {
		lines := texts(v.screen(newState(), height))
		if len(lines) > height {
			t.Errorf("%d lines in %d", len(lines), height)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
			if strings.ContainsAny(line, "\x1b\u202e\n\r") {
				t.Errorf("a control character: %q", line)
			}
		}
	}
	text := strings.Join(texts(v.screen(newState(), 24)), "\n")
	for _, want := range []string{
		"failed to load rules; keeping the previous rules [rules_rejected]", "remedy: correct them", "a.yaml:7:3: bad", "user=?[31mevil?  shop: user 5/hour", "12.3    50%        99",
		"did you mean", "the domain shpo, which has no rules; did you mean shop?", "rules loaded [ends rules_rejected]: shop: user 5/hour -> 0/hour; and",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
}

// TestNarrowTerminalShowsNames verifies that the figures before a name do not hide it.
func TestNarrowTerminalShowsNames(t *testing.T) {
	s := newState()
	s.Domains[0].Rules[0].Rule = "user-of-the-shop"
	v := view{width: 40}
	if text := strings.Join(texts(v.screen(s, 60)), "\n"); !strings.Contains(text, "\n  shop: user-of-the-shop 5/hour") {
		t.Errorf("the screen is\n%s", text)
	}
}

// TestOtherDays verifies that times of other days have a date.
func TestOtherDays(t *testing.T) {
	s := newState()
	s.Events[0].Time, s.Conditions[0].Since, s.Domains[0].DeniedKeys[0].Since = s.Time.AddDate(0, 0, -3), s.Time.AddDate(0, 0, -4), s.Time.AddDate(0, 0, -5)
	date := func(days int) string { return s.Time.Local().AddDate(0, 0, -days).Format(time.DateOnly) }
	v := view{width: 80}
	text := strings.Join(texts(v.screen(s, 60)), "\n")
	for _, want := range []string{date(3) + " " + format.Time(s.Events[0].Time) + "   rules loaded", date(4) + " " + format.Time(s.Conditions[0].Since) + " ! failed", "99  " + date(5) + "  user="} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
	p := newProgram(s)
	p.press("G", "enter")
	if text := p.screen(); !strings.Contains(text, "at          "+date(3)) {
		t.Errorf("the details of an event are\n%s", text)
	}
}

// TestWideCharactersFit uses names of characters that take two columns, or none. A line that is
// too wide would wrap, and push the first line off the screen.
func TestWideCharactersFit(t *testing.T) {
	wide := strings.Repeat("漢", 100)
	s := newState()
	s.Conditions[0].Text = wide + " " + wide
	s.Domains[0].DeniedKeys[0].Descriptor = "user=" + wide
	s.Domains[0].DeniedKeys[1] = live.Key{Descriptor: "user=" + strings.Repeat("e\u0301", 8), Rule: wide}
	s.Domains[0].Rules[0].Rule = wide
	s.UnknownDomains[0].Domain = wide
	columns := func(line string) int {
		return len([]rune(line)) + strings.Count(line, "漢") - strings.Count(line, "\u0301")
	}
	v := view{width: 80}
	lines := texts(v.screen(s, 60))
	for _, line := range lines {
		if n := columns(line); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"  user=漢漢漢", "漢…\n", "user=" + strings.Repeat("e\u0301", 8) + "  shop:\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
}

// TestPastDomainsComeLast verifies that domains that are no longer requested follow unmatched
// descriptors.
func TestPastDomainsComeLast(t *testing.T) {
	s := newState()
	s.UnknownDomains = append(s.UnknownDomains, live.UnknownDomain{Domain: "past", Descriptors: 7})
	v := view{width: 80}
	var l list
	l.add(&v, v.sections(s)[2], "", 60)
	if last := l.lines[len(l.lines)-1].text; last != "  none now, 7 before, for the domain past, which has no rules" {
		t.Errorf("the last line is %q", last)
	}
}

// TestDifferentHashKeysAreReported verifies the hint that one client has different hashes at
// several replicas.
func TestDifferentHashKeysAreReported(t *testing.T) {
	s := newState()
	s.TopKeys = live.Hashed
	s.HashKey = ""
	if text := strings.Join(texts((&view{width: 80}).header(s)), "\n"); !strings.Contains(text, "its own hash key") {
		t.Errorf("the header is\n%s", text)
	}
}

// TestStatusComesFirst verifies the status line, and the hints of a service without calls.
func TestStatusComesFirst(t *testing.T) {
	p99 := 0.000_25
	s := &live.State{Config: live.Config{Hash: "cafe", Limits: 1}, Status: live.Status{Calls: 1234, Denied: 12.5, Connections: 3, P99: &p99, Counters: 15_000, MaxCounters: 4_194_304, Store: live.StoreAvailable}}
	s.Conditions = []telemetry.Condition{{Code: telemetry.ReplicasCountSeparately, Text: "3 replicas count separately: each grants the whole limit"}}
	v := view{width: 80}
	for _, tt := range []struct {
		connections int
		calls       float64
		want        string
	}{
		{3, 1234, "1234 calls/s, 12.5 denied/s, 0.0 errors/s, 3 connections p99 0.25 ms, 15k of 4.2M counters, store available"},
		{3, 1234, "3 replicas count separately: each grants the whole limit"},
		{0, 0, "no calls: no Envoy is connected"},
		{1, 0, "no calls, but 1 connection: Envoy only calls for routes with rate_limits"},
	} {
		s.Status.Connections, s.Status.Calls = tt.connections, tt.calls
		text := strings.Join(strings.Fields(strings.Join(texts(v.header(s)), " ")), " ")
		if !strings.Contains(text, tt.want) {
			t.Errorf("with %d connections and %g calls the header lacks %q: %s", tt.connections, tt.calls, tt.want, text)
		}
	}
}

// TestLimitsNameTheirUnits verifies that numbers of tables are those of the row, that limits of
// tokens are labelled and come after those of requests, and that permits in flight are shown.
func TestLimitsNameTheirUnits(t *testing.T) {
	three := uint64(3)
	s := newState()
	s.Domains[0].DeniedKeys = []live.Key{
		{Descriptor: "customer=acme", Rule: "customer", Limit: "9/minute", OwnLimit: "0/minute", Table: "customers", Unit: "requests", PerSecond: 3},
		{Descriptor: "tenant=b", Rule: "tenant", Limit: "3 at once", Unit: "permits", Permits: 3, InFlight: &three, PerSecond: 2},
	}
	s.Domains[0].Rules = []live.RuleState{
		{Rule: "model", Limit: "100000/minute", Unit: "tokens", Rate: live.Rate{Hits: 5000, Denied: 100}},
		{Rule: "user", Limit: "5/hour", Unit: "requests", Rate: live.Rate{Hits: 1}},
	}
	v := view{width: 120}
	text := strings.Join(texts(v.layout(s, "", 60).lines), "\n")
	for _, want := range []string{"customer=acme  shop: customer 0/minute, from table customers", "tenant=b  shop: tenant 3 of 3 in flight, 3 at once (permits)", "shop: model 100000/minute (tokens)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q:\n%s", want, text)
		}
	}
	if strings.Index(text, "shop: user 5/hour") > strings.Index(text, "shop: model") {
		t.Errorf("a limit of tokens precedes one of requests:\n%s", text)
	}
}
