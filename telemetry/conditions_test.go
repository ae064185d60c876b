package telemetry

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// codesOf returns the codes of conditions with their details, in their order.
func codesOf(all []Condition) []string {
	shown := []string{}
	for _, c := range all {
		text := string(c.Code)
		if len(c.Lines) > 0 {
			text += " " + strings.Join(c.Lines, "|")
		}
		shown = append(shown, text)
	}
	return shown
}

// watchedMetrics returns metrics, the logger that they watch, and its lines.
func watchedMetrics(t *testing.T) (*Metrics, *zap.Logger, *observer.ObservedLogs) {
	t.Helper()
	m := newMetrics(t)
	core, lines := observer.New(zap.InfoLevel)
	return m, m.Events.Watch(zap.New(core)), lines
}

// expectCodes fails the test unless exactly these conditions are active at the time now.
func expectCodes(t *testing.T, c *Conditions, now time.Time, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), codesOf(c.Active(now))); diff != "" {
		t.Errorf("the conditions differ (-want +got):\n%s", diff)
	}
}

// TestRaiseAndClear raises and clears conditions, including several with the same code.
func TestRaiseAndClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, logger, lines := watchedLogger(zap.InfoLevel)
		expect := func(want ...string) {
			t.Helper()
			expectCodes(t, e.conditions, time.Now(), want...)
		}
		expect()
		var thirty, twenty []string
		for i := range 30 {
			thirty = append(thirty, fmt.Sprintf("a.yaml:%d: bad", i))
		}
		twenty = thirty[:maxLines]
		began := time.Now().UTC()
		RaiseWithLines(logger, RulesRejected, "", "rules: ", thirty)
		expect("rules_rejected " + strings.Join(twenty, "|"))
		time.Sleep(time.Second)
		Raise(logger, StoreUnavailable, "a", zap.String("store", "a"))
		time.Sleep(time.Second)
		Raise(logger, StoreUnavailable, "b", zap.String("remedy", "start it"), zap.Error(errors.New("no")))
		RaiseWithLines(logger, RulesRejected, "", "rules: ", []string{"a.yaml:7: worse"})
		expect("store_unavailable", "store_unavailable", "rules_rejected a.yaml:7: worse")
		want := Condition{
			Code: StoreUnavailable, Severity: "error", Since: began.Add(2 * time.Second), Text: "the store is unavailable; --store-fallback decides",
			Remedy: "start it", Docs: "docs/store.md#errors", Fields: map[string]any{"error": "no"},
		}
		active := e.conditions.Active(time.Now())
		if diff := cmp.Diff(want, active[0]); diff != "" {
			t.Errorf("the condition differs (-want +got):\n%s", diff)
		}
		if since := active[2].Since; !since.Equal(began) {
			t.Errorf("the updated condition started at %v, want %v", since, began)
		}
		logger.Info("store recovered", Clear("a", StoreUnavailable))
		expect("store_unavailable", "rules_rejected a.yaml:7: worse")
		logger.Info("rules loaded", Clear("", RulesRejected, RulesMissing))
		logger.Info("rules loaded", Clear("", RulesRejected, RulesMissing))
		logger.Info("store recovered", Clear("b", StoreUnavailable))
		expect()
		if n := lines.FilterField(zap.String("condition", "rules_rejected")).Len(); n != 1 {
			t.Errorf("%d lines end rules_rejected, want only the first", n)
		}
		for _, event := range e.Last() {
			if strings.HasPrefix(event.Text, "rules: ") || event.Fields["condition"] != nil || event.Fields["remedy"] != nil {
				t.Errorf("an event contains details of its condition: %+v", event)
			}
		}
	})
}

// TestConditionLogAttribute checks the attributes of log lines about a condition.
func TestConditionLogAttribute(t *testing.T) {
	e, logger, lines := watchedLogger(zap.InfoLevel)
	RaiseWithLines(logger, TableRejected, "t", "tables: ", []string{"t.csv:1: bad"}, zap.String("table", "t"))
	logger.Info("table loaded", Clear("t", TableRejected))
	if last := e.Last(); len(last) != 2 || !last[0].Ends || last[1].Ends {
		t.Errorf("the events are %+v, want only the last one to end a condition", last)
	}
	got := []string{}
	for _, line := range lines.All() {
		m := line.ContextMap()
		got = append(got, fmt.Sprint(line.Level, " ", line.Message, " ", m["condition"], " ", m["remedy"]))
	}
	want := []string{
		"error tables: t.csv:1: bad table_rejected <nil>",
		"error " + TableRejected.Define().Sentence + " table_rejected " + TableRejected.Define().Remedy,
		"info table loaded table_rejected <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the log differs (-want +got):\n%s", diff)
	}
}

// TestConditionAfterClockSetBack checks that a condition that lasts while a count grows ends a
// minute after the last growth even if the clock was set back, and that setting the clock starts
// none.
func TestConditionAfterClockSetBack(t *testing.T) {
	n := uint64(0)
	e, _, _ := watchedLogger(zap.InfoLevel)
	c := e.conditions
	c.WhileGrows(MemoryFull, func() uint64 { return n })
	now := time.Unix(1_700_000_000, 0)
	active := func(grows uint64) bool {
		now = now.Add(time.Second)
		n += grows
		return len(c.Active(now)) > 0
	}
	if active(0) {
		t.Error("the condition is active before the count has grown")
	}
	if !active(1) {
		t.Error("the condition is not active after the count has grown")
	}
	now = now.Add(-time.Hour)
	if !active(0) || c.Active(now)[0].Since.After(now) {
		t.Errorf("after the clock was set back the conditions are %+v", c.Active(now))
	}
	for i := range 100 {
		if got, want := active(0), i < 60; got != want {
			t.Errorf("%d s after the clock was set back the condition is active: %t, want %t", i+1, got, want)
		}
	}
	now = now.Add(-time.Hour)
	if active(0) {
		t.Error("setting the clock back starts the condition")
	}
}

// TestGrowthConditionsAreLogged checks the count of a condition that lasts while a count grows, and
// its log lines.
func TestGrowthConditionsAreLogged(t *testing.T) {
	m, _, lines := watchedMetrics(t)
	now := time.Unix(1_700_000_000, 0)
	m.Conditions.Tick(now)
	for i := range 50 {
		m.RejectedConnections.Add(2)
		m.Conditions.Tick(now.Add(time.Duration(i) * time.Second))
	}
	now = now.Add(50 * time.Second)
	if all := m.Conditions.Active(now); len(all) != 1 || all[0].Code != ConnectionsRejected || all[0].Fields["count"] != uint64(100) {
		t.Errorf("the conditions are %+v, want connections_rejected, 100 times", all)
	}
	expectCodes(t, m.Conditions, now.Add(2*time.Minute))
	var got []string
	for _, line := range lines.All() {
		got = append(got, fmt.Sprint(line.Level, " ", line.Message, " ", line.ContextMap()["condition"]))
	}
	text := ConnectionsRejected.Define().Sentence
	if diff := cmp.Diff([]string{"warn " + text + " connections_rejected", "info not seen for a minute: " + text + " connections_rejected"}, got); diff != "" {
		t.Errorf("the log differs (-want +got):\n%s", diff)
	}
}

// TestOrderOfConditions raises conditions of each kind and severity.
func TestOrderOfConditions(t *testing.T) {
	m, logger, _ := watchedMetrics(t)
	Raise(logger, Draining, "")
	Raise(logger, StoreUnavailable, "")
	m.ClientErrors.Malformed.Report(zap.NewNop(), nil)
	m.Conditions.Tick(time.Now().Add(time.Minute))
	m.RejectedConnections.Inc()
	expectCodes(t, m.Conditions, time.Now().Add(time.Minute+time.Second), "store_unavailable", "connections_rejected", "requests_malformed", "draining")
}

// conditionCells returns the cells of a code's row in docs/state.md.
func conditionCells(d *Definition) []string {
	return []string{
		fmt.Sprintf("[`%s`](%s)", d.Code, strings.TrimPrefix(strings.Replace("../"+d.Docs, "../docs/", "", 1), "state.md")),
		levelName(d.Level), d.Sentence,
	}
}

// TestConditionsAreInTheDocs compares the table of docs/state.md with the definitions, and these
// with the codes.
func TestConditionsAreInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| code |")
	table, _, _ = strings.Cut(table, "\n\n")
	var got, want [][]string
	for _, row := range strings.Split(table, "\n")[2:] {
		got = append(got, strings.Split(strings.Trim(row, "| "), " | "))
	}
	seen := map[Code]bool{}
	for i := range Definitions {
		d := &Definitions[i]
		want = append(want, conditionCells(d))
		if seen[d.Code] || d.Sentence == "" || d.Remedy == "" || d.Docs == "" {
			t.Errorf("%+v is incomplete or a duplicate", d)
		}
		seen[d.Code] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of docs/state.md differs from Definitions (-definitions +docs):\n%s", diff)
	}
	source, err := os.ReadFile("condition_codes.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), " Code = \""); n != len(seen) {
		t.Errorf("there are %d codes and %d definitions", n, len(seen))
	}
}
