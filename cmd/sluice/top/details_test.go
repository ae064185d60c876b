package top

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// sgr matches a control sequence that sets styles, after the escape.
var sgr = regexp.MustCompile(`^\[[0-9;]*m`)

// run runs a command and sends its message.
func (p *program) run(then tea.Cmd) {
	if then != nil {
		p.send(then())
	}
}

// replicas adds a replica for each handler.
func (p *program) replicas(t *testing.T, answer ...func(r *http.Request) (code int, reply any)) {
	t.Helper()
	for _, one := range answer {
		debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code, reply := one(r)
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(reply)
		}))
		t.Cleanup(debug.Close)
		p.snapshot.Replicas = append(p.snapshot.Replicas, &client.Debug{Addr: strings.TrimPrefix(debug.URL, "http://")})
	}
}

// TestWorstClientInFourKeys finds the worst client of a domain, the position of its rule and its
// last five minutes.
func TestWorstClientInFourKeys(t *testing.T) {
	s := newState()
	s.Domains[0].Rules[0].At, s.Domains[0].Rules[0].Unit = "/etc/rules.yaml:7:5", "requests"
	other := manyKeys(1, 20).Domains[0]
	s.Domains = append([]live.DomainState{other}, s.Domains...)
	for _, keys := range [][]string{{"/", "p", "enter", "enter"}} {
		p := newProgram(s)
		p.press(keys...)
		for _, want := range []string{"user=?[31mevil?", "rule at     /etc/rules.yaml:7:5", "LAST 5 MINUTES", "requests    ", "14, at most 9 in 10 s", "50% of the domain's denials", "99 since " + time.Unix(1_700_000_000, 0).Format(time.TimeOnly)} {
			if !strings.Contains(p.screen(), want) {
				t.Errorf("after %q the screen lacks %q:\n%s", keys, want, p.screen())
			}
		}
	}
}

// TestDetailsFollowTheState verifies that details are updated, also when the item disappears, and
// that the explanation of each replica is shown.
func TestDetailsFollowTheState(t *testing.T) {
	s := newState()
	s.Domains[0].DeniedKeys[0].Descriptor = "user=alice"
	p := newProgram(s)
	p.service.Explain = func(r *admin.CounterReport, q client.CounterQuery) string {
		return fmt.Sprintf("%s of %s\ncounter: %s\n", q.Descriptor, r.Domain, r.Rule)
	}
	explain := func(*http.Request) (int, any) {
		return http.StatusOK, admin.CounterReport{Domain: "shop", Rule: "user"}
	}
	p.replicas(t, explain, func(*http.Request) (int, any) {
		return http.StatusForbidden, map[string]string{"error": "no\x1b[2J right"}
	})
	p.run(p.press("enter"))
	for _, want := range []string{"user=alice of shop", "COUNTER (sluice explain)\ncounter: " + p.snapshot.Replicas[0].Addr + ": user\n", "403 Forbidden: no?[2J right"} {
		if text := ansi.Strip(strings.Join(texts(p.list.lines), "\n")); !strings.Contains(text, want) {
			t.Errorf("the details lack %q:\n%s", want, text)
		}
	}
	p.press("esc")
	s.Counters = "store"
	p.run(p.press("enter"))
	if text := ansi.Strip(strings.Join(texts(p.list.lines), "\n")); strings.Contains(text, "403 Forbidden") {
		t.Errorf("with shared counters the second replica was asked, too:\n%s", text)
	}
	gone := *s
	gone.Domains = nil
	p.send(fetched{&Snapshot{Sum: &gone}, nil})
	if text := p.screen(); !strings.Contains(text, "user=alice") || !strings.Contains(text, "denied      no longer") {
		t.Errorf("without the key the details are\n%s", text)
	}
	p.press("esc")
	if p.details != nil {
		t.Error("esc does not go back")
	}
}

// TestUnmaskedKeyStaysOpen verifies that details and the selection follow a key whose values become
// known.
func TestUnmaskedKeyStaysOpen(t *testing.T) {
	masked, known := newState(), newState()
	masked.Domains[0].DeniedKeys[0].Descriptor, known.Domains[0].DeniedKeys[0].Descriptor = "", "user=alice"
	masked.Domains[0].DeniedKeys[1].Descriptor, known.Domains[0].DeniedKeys[1].Descriptor = "", "user=bob"
	p := newProgram(masked)
	p.press("down")
	slices.Reverse(known.Domains[0].DeniedKeys)
	p.send(fetched{&Snapshot{Sum: known}, nil})
	if got := p.selection(); !strings.Contains(got, "user=bob") {
		t.Errorf("selected is %q", got)
	}
	p = newProgram(masked)
	p.press("enter")
	p.send(fetched{&Snapshot{Sum: known}, nil})
	if text := p.screen(); !strings.Contains(text, "user=alice") || strings.Contains(text, "no longer") {
		t.Errorf("the details are\n%s", text)
	}
}

// TestReplicaHangs verifies that a replica that does not respond delays details for a limited time,
// and that details do not start a query while another is under way.
func TestReplicaHangs(t *testing.T) {
	s := newState()
	s.Domains[0].DeniedKeys[0].Descriptor = "user=alice"
	p := newProgram(s)
	debug := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(debug.Close)
	p.snapshot.Replicas = []*client.Debug{{Addr: strings.TrimPrefix(debug.URL, "http://"), Timeout: time.Millisecond}}
	query := p.press("enter")
	if p.explain(p.details.item) != nil {
		t.Error("a second query starts while one is under way")
	}
	p.run(query)
	if text := strings.Join(texts(p.list.lines), "\n"); !strings.Contains(text, "deadline exceeded") {
		t.Errorf("the details are\n%s", text)
	}
	if p.explain(p.details.item) == nil {
		t.Error("no query follows the first")
	}
}

// TestHostileNames verifies that no text of the state reaches the terminal as a control character,
// or leaves the screen, on any screen.
func TestHostileNames(t *testing.T) {
	evil := "\x1b]0;title\a\x1b[2J\r\n\u202e\u0085\u009b31m\xff" + strings.Repeat("漢e\u0301", 4<<10)
	at := time.Unix(1_700_000_000, 0)
	own := uint64(1)
	s := &live.State{
		Time: at, Host: evil, Program: evil, TopKeys: evil, Counters: evil, HashKey: evil, Config: live.Config{Hash: evil, Limits: 1}, Status: live.Status{Store: evil},
		Conditions: []telemetry.Condition{{Code: telemetry.Code(evil), Severity: "error", Text: evil, Remedy: evil, Docs: evil, Replica: evil, Fields: map[string]any{evil: evil}, Lines: []string{evil}}},
		Domains: []live.DomainState{{
			Domain: evil, Unmatched: []live.Unmatched{{Key: evil, Why: evil, Meant: evil, Below: evil}},
			DeniedKeys: []live.Key{{Hash: evil, Descriptor: evil, Rule: evil, Limit: evil, Name: evil, OwnLimit: evil, Table: evil, Unit: evil, InFlight: &own, PenaltyUntil: &at}},
			Rules:      []live.RuleState{{Rule: evil, Limit: evil, Name: evil, At: evil, Unit: evil, Line: &live.Line{Seconds: 10, Hits: []uint32{1}, Denied: []uint32{1}}}},
		}},
		UnknownDomains: []live.UnknownDomain{{Domain: evil, Meant: evil, PerSecond: 1}},
		Events:         []telemetry.Event{{Text: evil, Code: evil, Level: "error", Replica: evil, Fields: map[string]any{evil: evil}, Lines: []string{evil}}},
	}
	check := func(p *program, about string) {
		t.Helper()
		lines := strings.Split(p.View().Content, "\n")
		if len(lines) != p.height {
			t.Errorf("%s: %d lines", about, len(lines))
		}
		for _, line := range lines {
			if strings.ContainsAny(ansi.Strip(line), "\x1b\a\r\u202e\u0085\u009b") || ansi.StringWidth(line) > 80 || strings.Contains(line, "]0;") && strings.Contains(line, "\x1b]") {
				t.Errorf("%s: %q", about, line)
			}
			for _, sequence := range strings.Split(line, "\x1b")[1:] {
				if !sgr.MatchString(sequence) {
					t.Errorf("%s: a control sequence is %q", about, sequence)
				}
			}
		}
	}
	p := newProgram(s)
	p.replicas(t, func(*http.Request) (int, any) { return http.StatusForbidden, map[string]string{"error": evil} })
	check(p, "the list")
	p.press("a", "g")
	for i := range p.list.items {
		name := fmt.Sprint("item ", i)
		p.run(p.press("enter"))
		check(p, name)
		p.press("esc", "esc", "down")
	}
	p.send(fetched{nil, fmt.Errorf("%s", evil)})
	check(p, "an error")
}
