package ruleset

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestConditionsOfRules uses rules that fail to load, at the start and later.
func TestConditionsOfRules(t *testing.T) {
	l := newTestLoader(t)
	load := func(when, rules, want string) {
		t.Helper()
		_ = l.LoadRules(*l.rules(rules))
		servertest.ExpectConditions(t, l.opt.Metrics, when, want)
	}
	load("bad at the start", "bad", "rules_missing")
	load("good", "user:a", "")
	load("bad after good ones", "bad", "rules_rejected")
	if lines := l.opt.Metrics.Conditions.Active(time.Now())[0].Lines; len(lines) != 1 || lines[0] != errBad.Error() {
		t.Errorf("the lines are %q, want the error", lines)
	}
	load("other good ones", "path:b", "")
	load("bad again", "bad", "rules_rejected")
	_ = l.LoadRules(source.Update{Set: l.service.Rules()})
	servertest.ExpectConditions(t, l.opt.Metrics, "the file is reverted", "")
}

// TestConditionsOfTables uses a table file that fails to load, and a journal that cannot be
// written.
func TestConditionsOfTables(t *testing.T) {
	l := newTestLoader(t)
	load := func(when, a, want string) {
		t.Helper()
		_ = l.Load(source.Change{Tables: []source.TableUpdate{l.rows("a", a), l.rows("b", "path=1")}})
		servertest.ExpectConditions(t, l.opt.Metrics, when, want)
	}
	_ = l.LoadRules(*l.rules("user:a path:b"))
	load("a bad table and a good one in the same change", "bad", "table_rejected table_rejected")
	load("good", "user=1", "")

	l.reportJournal("c", errors.New("no space"))
	l.reportJournal("b", errors.New("no space"))
	servertest.ExpectConditions(t, l.opt.Metrics, "a full disk", "table_not_saved table_not_saved")
	l.reportJournal("c", nil)
	l.reportJournal("b", nil)
	servertest.ExpectConditions(t, l.opt.Metrics, "space on the disk", "")
}
