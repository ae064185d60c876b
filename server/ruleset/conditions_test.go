package ruleset

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// activeCodes returns the codes of the active conditions, the newest condition first.
func activeCodes(m *telemetry.Metrics) string {
	var codes []string
	for _, c := range m.Conditions.Active(time.Now()) {
		codes = append(codes, string(c.Code))
	}
	return strings.Join(codes, " ")
}

// expectActive fails the test unless these are the codes of the active conditions.
func expectActive(t *testing.T, m *telemetry.Metrics, when, want string) {
	t.Helper()
	if got := activeCodes(m); got != want {
		t.Errorf("%s: the conditions are %q, want %q", when, got, want)
	}
}

// TestConditionsOfRules has rules that do not load, at the start and later.
func TestConditionsOfRules(t *testing.T) {
	l := newTestLoader(t)
	take := func(when, rules, want string) {
		t.Helper()
		_ = l.LoadRules(*l.rules(rules))
		expectActive(t, l.opt.Metrics, when, want)
	}
	take("bad at the start", "bad", "rules_missing")
	take("good", "user:a", "")
	take("bad after good ones", "bad", "rules_rejected")
	if lines := l.opt.Metrics.Conditions.Active(time.Now())[0].Lines; len(lines) != 1 || lines[0] != errBad.Error() {
		t.Errorf("the lines are %q, want the error", lines)
	}
	take("other good ones", "path:b", "")
	take("bad again", "bad", "rules_rejected")
	_ = l.LoadRules(source.Update{Set: l.service.Rules()})
	expectActive(t, l.opt.Metrics, "the file is as before", "")
}

// TestConditionsOfTables has a file of rows that does not load, and a journal that cannot be written.
func TestConditionsOfTables(t *testing.T) {
	l := newTestLoader(t)
	take := func(when, a, want string) {
		t.Helper()
		_ = l.Load(source.Change{Tables: []source.TableUpdate{l.rows("a", a), l.rows("b", "path=1")}})
		expectActive(t, l.opt.Metrics, when, want)
	}
	_ = l.LoadRules(*l.rules("user:a path:b"))
	take("a bad table and one that waits for it", "bad", "table_rejected table_rejected")
	take("good", "user=1", "")

	l.reportJournal("c", errors.New("no space"))
	l.reportJournal("b", errors.New("no space"))
	expectActive(t, l.opt.Metrics, "a full disk", "table_not_saved table_not_saved")
	l.reportJournal("c", nil)
	l.reportJournal("b", nil)
	expectActive(t, l.opt.Metrics, "room on the disk", "")
}
