package top

import (
	"slices"
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
	for _, utf8 := range []bool{false, true} {
		v := view{width: 80, utf8: utf8}
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
			`did you mean "user"?`, "the domain shpo, which has no rules; did you mean shop?", "rules loaded [ends rules_rejected]: shop: user 5/hour -> 0/hour; and",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the screen lacks %q:\n%s", want, text)
			}
		}
	}
}

// TestLongKeysKeepTheirLimit verifies that the name of a client is shortened in favour of the
// limit and the end of the penalty.
func TestLongKeysKeepTheirLimit(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	v := view{width: 90, utf8: true}
	got := texts(v.screen(&live.State{Time: until, Domains: []live.DomainState{{Domain: "shop", DeniedKeys: []live.Key{{
		Since: until, Hash: "0123456789abcdef", Descriptor: "user=" + strings.Repeat("é", 100), Rule: "user", Limit: "5/hour", PenaltyUntil: &until,
	}}}}}, 60))
	last := got[len(got)-1]
	if !strings.HasSuffix(last, "user=éééé…éééééééé  until 03:04:05  shop: user 5/hour") {
		t.Errorf("the line is %q", last)
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

// TestAClientIsNamedOnce verifies that a rule for one client is not preceded by the client.
func TestAClientIsNamedOnce(t *testing.T) {
	v := view{width: 80}
	got := v.fit(keyItem("shop", &live.Key{Hash: "01", Descriptor: "user=customer-00001", Rule: "user=customer-00001", Limit: "5/hour"}, time.Time{}), 43)
	if want := "shop: user=customer-00001 5/hour"; got != want {
		t.Errorf("the key is %q, want %q", got, want)
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
	v := view{width: 80, utf8: true}
	lines := texts(v.screen(s, 60))
	for _, line := range lines {
		if n := columns(line); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"user=漢漢漢…漢漢漢漢漢  shop: user 5/hour", "user=" + strings.Repeat("e\u0301", 8) + "  shop: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
	v.utf8 = false
	for _, line := range texts(v.screen(s, 60)) {
		if strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) || len(line) > 80 {
			t.Errorf("on a terminal without UTF-8 a line is %q", line)
		}
	}
}

// TestSuggestionsComeFirst verifies that a suggestion is not truncated after long positions of
// rules, and that domains that are no longer requested come last.
func TestSuggestionsComeFirst(t *testing.T) {
	s := newState()
	s.Domains[0].Unmatched[0].Why = "nothing matches entry 1, usr: the rules begin with " + strings.Repeat("user (/etc/sluice/config/rules.yaml:3:5), ", 9) + `; did you mean "user"?`
	s.UnknownDomains = append(s.UnknownDomains, live.UnknownDomain{Domain: "past", Descriptors: 7})
	v := view{width: 80}
	var l list
	l.add(&v, v.sections(s, byDenials)[2], "", 60)
	lines := texts(l.lines[2:])
	if len(lines) != 5 || !strings.HasSuffix(lines[1], `: did you mean "user"? nothing matches entry 1,`) || lines[4] != "  none now, 7 before, for the domain past, which has no rules" {
		t.Errorf("unmatched descriptors are shown as\n%s", strings.Join(lines, "\n"))
	}
}

// TestDifferentHashKeysAreReported verifies the hint that one client has different hashes at
// several replicas.
func TestDifferentHashKeysAreReported(t *testing.T) {
	s := newState()
	for counters, want := range map[string]string{"store": "--hash-key-file", "memory": "its own hash key"} {
		s.TopKeys, s.HashKey, s.Counters = live.Hashed, "", counters
		if text := strings.Join(texts((&view{width: 80}).header(s)), "\n"); !strings.Contains(text, want) {
			t.Errorf("with counters in %s the header lacks %q:\n%s", counters, want, text)
		}
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
		v.utf8 = true
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
	for _, o := range []order{byDenials, byHits} {
		text := strings.Join(texts(v.layout(s, o, "", 60).lines), "\n")
		for _, want := range []string{"customer=acme  shop: customer 0/minute, from table customers", "tenant=b  shop: tenant 3 of 3 in flight, 3 at once (permits)", "shop: model 100000/minute (tokens)"} {
			if !strings.Contains(text, want) {
				t.Errorf("the list lacks %q:\n%s", want, text)
			}
		}
		if strings.Index(text, "shop: user 5/hour") > strings.Index(text, "shop: model") {
			t.Errorf("in order %d a limit of tokens precedes one of requests:\n%s", o, text)
		}
	}
}

// TestLongNamesAreShortened verifies that clients and rules are shortened for the other columns and
// the limits, and that columns are dropped on a narrow terminal, for all rows of a table.
func TestLongNamesAreShortened(t *testing.T) {
	rule := "user > path=/a/rather/long/path/of/a/rule"
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	s := &live.State{Time: at, Domains: []live.DomainState{{
		Domain: "shop", DeniedKeys: []live.Key{
			{Descriptor: "user=alice", Rule: rule, Limit: "5/hour", Since: at, PerSecond: 3},
			{Hash: strings.Repeat("x", 16), Rule: "user", Limit: "5/hour, penalty: [1h, 24h]", Since: at, PerSecond: 2},
			{Descriptor: "token=" + strings.Repeat("x", 100) + "end", Rule: "token", Limit: "5/hour", Since: at, PerSecond: 1},
		},
		Rules: []live.RuleState{{Rule: rule, Limit: "5/hour"}, {Rule: strings.Repeat("long > ", 99) + "end", Limit: "5/hour, count_refused: true"}},
	}}}
	for width, want := range map[int][]string{
		60: {
			"DENIED/S  SHARE  KEY (share of domain's denials)",
			"     3.0     0%  user=alice  shop: user >~h/of/a/rule 5/hour",
			"     2.0     0%  #xxxxxxxxxxxxxxxx  shop: user 5/hour, pena~",
			"     1.0     0%  token=xxxxx~xxxxxxxxend  shop: token 5/hour",
			"  HITS/S  DENIED/S  LIMIT",
			"     0.0       0.0  shop: user > pat~g/path/of/a/rule 5/hour",
			"     0.0       0.0  shop: long > lon~ng > long > end 5/hour~",
		},
		80: {
			"DENIED/S  SHARE    DENIED     SINCE  KEY (share of domain's denials)",
			"     3.0     0%         0  03:04:05  user=alice  shop: user >~h/of/a/rule 5/hour",
			"     2.0     0%         0  03:04:05  #xxxxxxxxxxxxxxxx  shop: user 5/hour, pena~",
			"     1.0     0%         0  03:04:05  token=xxxxx~xxxxxxxxend  shop: token 5/hour",
			"  HITS/S  DENIED/S   LAST 5 MINUTES  LIMIT",
			"     0.0       0.0  000000000000000  shop: user > path=~ng/path/of/a/rule 5/hour",
			"     0.0       0.0  000000000000000  shop: long > long~long > long > end 5/hour~",
		},
		120: {
			"DENIED/S  SHARE    DENIED     SINCE  KEY (share of domain's denials)",
			"     3.0     0%         0  03:04:05  user=alice  shop: " + rule + " 5/hour",
			"     2.0     0%         0  03:04:05  #xxxxxxxxxxxxxxxx  shop: user 5/hour, penalty: [1h, 24h]",
			"     1.0     0%         0  03:04:05  token=xxxxxxxxxxxxxxxxxxxxxxxxx~xxxxxxxxxxxxxxxxxxxxxxxxxxxxend  shop: token 5/hour",
			"  HITS/S  DENIED/S   LAST 5 MINUTES  LIMIT",
			"     0.0       0.0  000000000000000  shop: " + rule + " 5/hour",
		},
	} {
		lines := texts((&view{width: width}).layout(s, byDenials, "", 60).lines)
		for _, line := range want {
			if !slices.Contains(lines, line) {
				t.Errorf("at %d columns the list lacks\n%s\nit is\n%s", width, line, strings.Join(lines, "\n"))
			}
		}
	}
	// The end of a penalty and the limit need the space of a column.
	s.Domains[0].DeniedKeys[2].PenaltyUntil = &at
	lines := texts((&view{width: 80}).layout(s, byDenials, "", 60).lines)
	for _, line := range []string{"DENIED/S  SHARE    DENIED  KEY (share of domain's denials)", "     1.0     0%         0  token=xx~xxxxxend  until 03:04:05  shop: token 5/hour"} {
		if !slices.Contains(lines, line) {
			t.Errorf("with a penalty the list lacks\n%s\nit is\n%s", line, strings.Join(lines, "\n"))
		}
	}
}
