package top

import (
	"encoding/json"
	"errors"
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

// replicas adds a replica for each handler, with the program's state.
func (p *program) replicas(t *testing.T, answer ...func(r *http.Request) (code int, reply any)) {
	t.Helper()
	for _, one := range answer {
		debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code, reply := one(r)
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(reply)
		}))
		t.Cleanup(debug.Close)
		state := *p.snapshot.Sum
		p.snapshot.Replicas = append(p.snapshot.Replicas, Replica{&client.Debug{Addr: strings.TrimPrefix(debug.URL, "http://")}, &state})
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
	for _, want := range []string{"user=alice of shop", "COUNTER (sluice explain)\ncounter: " + p.snapshot.Replicas[0].Addr + ": user\n", "403 Forbidden: no?[2J right", p.snapshot.Replicas[1].Addr + ": 12.3 denied/s"} {
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
	if text := p.screen(); !strings.Contains(text, "user=alice") || !strings.Contains(text, "not in the last minute") {
		t.Errorf("without the key the details are\n%s", text)
	}
	p.press("esc")
	if p.details != nil {
		t.Error("esc does not go back")
	}
}

// TestUnmaskedKeyStaysOpen verifies that details and the selection follow a key whose values become
// known, also if its hash is not that of the sum.
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
	if text := p.screen(); !strings.Contains(text, "user=alice") || strings.Contains(text, "not in the last minute") {
		t.Errorf("the details are\n%s", text)
	}
	p = newProgram(masked)
	p.press("enter")
	sum := newState()
	sum.Domains[0].DeniedKeys[0].Descriptor, sum.Domains[0].DeniedKeys[0].Hash = "user=alice", "of another replica"
	p.send(fetched{&Snapshot{Sum: sum, Replicas: []Replica{{State: known}}}, nil})
	if text := p.screen(); !strings.Contains(text, "user=alice") || strings.Contains(text, "not in the last minute") {
		t.Errorf("the details are\n%s", text)
	}
}

// TestReplicaHangs verifies that a replica that does not respond delays requests for a limited
// time, and that details do not start a query while another is under way.
func TestReplicaHangs(t *testing.T) {
	s := newState()
	s.Domains[0].DeniedKeys[0].Descriptor = "user=alice"
	p := newProgram(s)
	debug := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(debug.Close)
	p.snapshot.Replicas = []Replica{{&client.Debug{Addr: strings.TrimPrefix(debug.URL, "http://")}, s}}
	p.service.Timeout = time.Millisecond
	p.run(p.press("r"))
	if text := p.screen(); !strings.Contains(text, "deadline exceeded") {
		t.Errorf("the reset shows\n%s", text)
	}
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

// TestReset verifies that a reset asks for confirmation, that only y confirms, and that counters
// shared by the replicas are counted once.
func TestReset(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s := newState()
		if shared {
			s.Counters = "store"
		}
		p := newProgram(s)
		var resets []string
		answer := func(r *http.Request) (int, any) {
			report := live.Reset{Counters: 1, Used: 7, Token: "t"}
			if q := r.URL.Query(); q.Get("token") != "" {
				resets = append(resets, q.Get("domain")+" "+q.Get("key")+" "+q.Get("token"))
				report = live.Reset{Counters: 1, Used: 7, Done: true}
			}
			return http.StatusOK, report
		}
		p.replicas(t, answer, answer, func(*http.Request) (int, any) {
			return http.StatusNotFound, map[string]string{"error": "no such key is denied"}
		})
		p.snapshot.Replicas[1].State.Domains = []live.DomainState{{Domain: "shop", DeniedKeys: []live.Key{{Hash: "other", Descriptor: s.Domains[0].DeniedKeys[0].Descriptor, Rule: "user", Limit: "5/hour"}}}}
		want := "2 counters, 14 used"
		if shared {
			want = "1 counter, 7 used"
		}
		p.run(p.press("r"))
		if text := p.screen(); !strings.Contains(text, "Reset user=?[31mevil?  shop: user 5/hour? "+want) {
			t.Errorf("the question is\n%s", text)
		}
		p.run(p.press("n"))
		if len(resets) > 0 || p.notice != nil {
			t.Errorf("without confirmation, reset %q", resets)
		}
		p.run(p.press("r"))
		p.run(p.press("y"))
		if fmt.Sprint(resets) != "[shop 0123456789abcdef t shop other t]" {
			t.Errorf("reset %q", resets)
		}
		if text := p.screen(); !strings.Contains(text, "reset "+strings.Replace(want, " used", " were used", 1)) {
			t.Errorf("after the reset the screen is\n%s", text)
		}
	}
}

// TestResetIsIncomplete verifies that the question and the result name each replica that does not
// reset: one that rejects it, one that fails in the second step, and one that does not respond. A
// replica that has not denied the key is not named.
func TestResetIsIncomplete(t *testing.T) {
	p := newProgram(newState())
	accept := func(*http.Request) (int, any) {
		return http.StatusOK, live.Reset{Counters: 1, Used: 7, Token: "t"}
	}
	answer := func(code int, text string) func(*http.Request) (int, any) {
		return func(*http.Request) (int, any) { return code, map[string]string{"error": text} }
	}
	p.replicas(t, accept, answer(http.StatusForbidden, "alice may only read"), func(r *http.Request) (int, any) {
		if r.URL.Query().Get("token") != "" {
			return http.StatusServiceUnavailable, map[string]string{"error": "no store"}
		}
		return accept(r)
	}, answer(http.StatusNotFound, "no such key is denied"))
	p.snapshot.Missing = []Missing{{"c:1", errors.New("refused")}}
	p.send(tea.WindowSizeMsg{Width: 200, Height: 24})
	addr := func(i int) string { return p.snapshot.Replicas[i].Addr }
	forbidden := "not reset at " + addr(1) + ": 403 Forbidden: alice may only read"
	p.run(p.press("r"))
	if text := p.screen(); !strings.Contains(text, "2 counters, 14 used; not reset at c:1: refused; "+forbidden+". Press y") {
		t.Errorf("the question is\n%s", text)
	}
	p.run(p.press("y"))
	text := strings.ReplaceAll(p.notice.text, "\n", " ")
	if want := "reset 1 counter, 7 were used; not reset at c:1: refused; " + forbidden + "; not reset at " + addr(2) + ": 503 Service Unavailable: no store"; text != want || !p.notice.failed {
		t.Errorf("the result is %q, want %q", text, want)
	}
}

// TestLateQuestion verifies that a question is dropped if the user has pressed a key since. The y of
// a filter, or the question about another key, would confirm it.
func TestLateQuestion(t *testing.T) {
	s := newState()
	p := newProgram(s)
	var resets []string
	p.replicas(t, func(r *http.Request) (int, any) {
		if q := r.URL.Query(); q.Get("token") != "" {
			resets = append(resets, q.Get("key"))
		}
		return http.StatusOK, live.Reset{Counters: 1, Used: 7, Token: "t"}
	})
	preview := p.press("r")
	if text := p.screen(); !strings.Contains(text, "asking...") {
		t.Errorf("while replicas are asked the screen is\n%s", text)
	}
	p.press("/", "b", "o")
	p.run(preview)
	p.press("y")
	if p.filter.Value() != "boy" || p.notice != nil {
		t.Errorf("the filter is %q, the notice %v", p.filter.Value(), p.notice)
	}
	p.press("esc")
	preview = p.press("r")
	p.send(tea.PasteMsg{Content: "x"})
	if p.run(preview); p.notice != nil {
		t.Errorf("after a paste the notice is %q", p.notice.text)
	}
	first := p.press("r")
	p.press("down")
	second := p.press("r")
	p.run(second)
	p.run(first)
	if text := p.screen(); !strings.Contains(text, "Reset #01  shop") {
		t.Errorf("the question is\n%s", text)
	}
	p.run(p.press("y"))
	if fmt.Sprint(resets) != "[01]" {
		t.Errorf("reset %q", resets)
	}
}

// TestResetWithoutRight verifies that the error of a client that may only read is shown.
func TestResetWithoutRight(t *testing.T) {
	p := newProgram(newState())
	p.replicas(t, func(*http.Request) (int, any) {
		return http.StatusForbidden, map[string]string{"error": "alice may only read"}
	})
	p.run(p.press("r"))
	if text := p.screen(); !strings.Contains(text, "alice may only read") {
		t.Errorf("the screen is\n%s", text)
	}
	if then := p.press("y"); then != nil {
		t.Error("y confirms an error")
	}
}

// TestUnmaskIsIncomplete verifies that the result names the replicas that show values, also if
// another does not respond.
func TestUnmaskIsIncomplete(t *testing.T) {
	debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == admin.UnmaskPath {
			_ = json.NewEncoder(w).Encode(live.Unmasked{Until: &time.Time{}})
			return
		}
		_ = json.NewEncoder(w).Encode(newState())
	}))
	t.Cleanup(debug.Close)
	addr := strings.TrimPrefix(debug.URL, "http://")
	p := newProgram(newState())
	p.service.Addrs = []string{addr, "127.0.0.1:1"}
	p.service.Dial = func(addr, _ string) (*client.Debug, error) { return &client.Debug{Addr: addr}, nil }
	p.run(p.press("u", "y"))
	if n := p.notice; !n.failed || !strings.Contains(n.text, addr+": values of denied keys are shown until ") || !strings.Contains(n.text, "query 127.0.0.1:1: ") {
		t.Errorf("the result is %+v", n)
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
		p.run(p.press("r"))
		check(p, "a reset of "+name)
		p.press("esc", "esc", "down")
	}
	p.send(fetched{nil, fmt.Errorf("%s", evil)})
	check(p, "an error")
}

// TestUnmask verifies that values are shown after a confirmation only.
func TestUnmask(t *testing.T) {
	asked := 0
	debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == admin.UnmaskPath && r.Method == http.MethodPost && r.URL.Query().Get("for") == "10m0s" {
			asked++
			until := time.Unix(1_700_000_600, 0)
			_ = json.NewEncoder(w).Encode(live.Unmasked{Until: &until})
			return
		}
		_ = json.NewEncoder(w).Encode(newState())
	}))
	t.Cleanup(debug.Close)
	addr := strings.TrimPrefix(debug.URL, "http://")
	hashed := newState()
	hashed.Domains[0].DeniedKeys[0].Descriptor = ""
	p := newProgram(hashed)
	if p.press("enter"); !strings.Contains(p.screen(), "Press u to show the values") {
		t.Errorf("the details of a hash are\n%s", p.screen())
	}
	p.service.Addrs = []string{addr}
	p.service.Dial = func(addr, _ string) (*client.Debug, error) { return &client.Debug{Addr: addr}, nil }
	if p.press("u", "n"); asked > 0 || p.notice != nil {
		t.Errorf("without confirmation, %d requests", asked)
	}
	p.run(p.press("u", "y"))
	if text := p.screen(); asked != 1 || !strings.Contains(text, "values of denied keys are shown until "+time.Unix(1_700_000_600, 0).Format("15:04:05 MST")) {
		t.Errorf("after %d requests the screen is\n%s", asked, text)
	}
}
