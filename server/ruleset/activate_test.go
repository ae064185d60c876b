package ruleset

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// testLoader is a Loader with the tables a and b, which are read from files, and c, which is
// changed row by row.
type testLoader struct {
	*Loader
	t     *testing.T
	logs  *observer.ObservedLogs
	table *limiter.Table
}

func newTestLoader(t *testing.T) *testLoader {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	metrics := servertest.Metrics(t)
	all := new(tables.Registry)
	for name, path := range map[string]string{"a": "a.csv", "b": "b.csv", "c": ""} {
		if _, err := all.Add(name, path); err != nil {
			t.Fatal(err)
		}
	}
	settings := answer.Settings{Tables: all, TableMetrics: NewTableMetrics(metrics, all)}
	settings.Bounds = servertest.Bounds(settings.Bounds)
	table := servertest.Table(t)
	return &testLoader{New(Options{
		Service: answer.NewService(settings, table, metrics), Tables: all, TableMetrics: settings.TableMetrics,
		Metrics: metrics, Logger: metrics.Events.Watch(zap.New(core)), Now: func() limiter.Time { return limiter.Time(time.Now().UnixNano()) },
	}), t, logs, table}
}

var errBad = errors.New("bad")

// rules returns an update with rules. Each word is a key and the table of its limit, such as
// user:a, or user!:a for a limit that gives leases; "bad" does not load.
func (l *testLoader) rules(text string) *source.Update {
	l.t.Helper()
	if text == "bad" {
		return &source.Update{Err: errBad}
	}
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for word := range strings.FieldsSeq(text) {
		key, table, _ := strings.Cut(word, ":")
		key, leases := strings.CutSuffix(key, "!")
		algorithm := map[bool]string{false: "fixed_window", true: "concurrency"}[leases]
		fmt.Fprintf(&b, "- {key: %s, rate_limit: {name: %[1]s, unit: hour, requests_per_unit: 0, table: %s, algorithm: %s}}\n", key, table, algorithm)
	}
	configs, found := rulefile.Parse("rules.yaml", []byte(b.String()))
	if len(found) > 0 {
		l.t.Fatal(found)
	}
	set, found := descriptors.Compile(configs, l.options())
	if len(found) > 0 {
		l.t.Fatal(found)
	}
	return &source.Update{Set: set}
}

func (l *testLoader) options() descriptors.Options {
	return descriptors.Options{Tables: l.tables, TablesLater: true, HashKey: l.table.Key()}
}

// rows returns an update of a table with a row of the given column and number, such as user=5;
// "bad" does not load.
func (l *testLoader) rows(table, text string) source.TableUpdate {
	l.t.Helper()
	e, err := l.tables.Table(table)
	must.OK(l.t, err)
	column, number, _ := strings.Cut(text, "=")
	if text == "bad" {
		return source.TableUpdate{Table: e.Table, Err: errBad}
	}
	rows, found := e.Read(e.Path, strings.NewReader(column+",requests_per_unit\nal,"+number+"\n"))
	if len(found) > 0 {
		l.t.Fatal(found)
	}
	return source.TableUpdate{Table: e.Table, Rows: rows}
}

// active returns the active rules and rows in the form of step.
func (l *testLoader) active() (rules, a, b string) {
	if set := l.service.Rules(); set != nil {
		var words []string
		for _, l := range set.Limits {
			words = append(words, l.Rule.Path()+":"+l.Table.Name())
		}
		rules = strings.Join(words, " ")
	}
	row := func(name string) string {
		e, _ := l.tables.Table(name)
		columns := e.Rows().Columns()
		if columns == nil {
			return ""
		}
		row, _ := e.Rows().Get([]string{"al"})
		return fmt.Sprintf("%s=%d", (*columns)[0], row.RequestsPerUnit)
	}
	return rules, row("a"), row("b")
}

// TestChangesAreActivatedTogether changes sources. Some of the versions fail to load or do not fit
// each other.
func TestChangesAreActivatedTogether(t *testing.T) {
	type step struct {
		rules, a, b string // empty for a source that does not change
		want        string // the active rules and rows, empty if they do not change
		fails       bool   // the rules are not activated
	}
	first := step{"user:a path:b", "user=1", "path=1", "user:a path:b|user=1|path=1", false}
	for name, steps := range map[string][]step{
		"all good":              {first, {"user:a", "user=2", "path=2", "user:a|user=2|path=2", false}},
		"one after the other":   {first, {a: "user=2", want: "user:a path:b|user=2|path=1"}, {rules: "user:a", want: "user:a|user=2|path=1"}},
		"other columns":         {first, {"ip:a path:b", "ip=2", "", "ip:a path:b|ip=2|path=1", false}},
		"columns, rules first":  {first, {rules: "ip:a path:b", fails: true}, {a: "ip=2", want: "ip:a path:b|ip=2|path=1"}},
		"columns, rows first":   {first, {a: "ip=2"}, {rules: "ip:a path:b", want: "ip:a path:b|ip=2|path=1"}},
		"columns, then neither": {first, {a: "ip=2"}, {a: "user=3", want: "user:a path:b|user=3|path=1"}, {rules: "user:a", want: "user:a|user=3|path=1"}},
		"bad rules":             {first, {"bad", "user=2", "", "", true}, {rules: "user:a", want: "user:a|user=2|path=1"}},
		"bad rules go back":     {first, {"bad", "user=2", "", "", true}, {"user:a path:b", "user=1", "", "user:a path:b|user=1|path=1", false}},
		"a bad table":           {first, {"user:a", "bad", "", "", true}, {a: "user=2", want: "user:a|user=2|path=1"}},
		"a bad table stays bad": {first, {"user:a", "bad", "", "", true}, {a: "bad"}, {rules: "path:b", want: "path:b|user=1|path=1"}, {a: "user=2", want: "path:b|user=2|path=1"}},
		"a table and a bad one": {first, {"", "user=2", "bad", "", false}, {b: "path=2", want: "user:a path:b|user=2|path=2"}},
		"bad, then worse":       {first, {"user:a", "user=2", "bad", "", true}, {"", "bad", "path=3", "", false}, {a: "user=4", want: "user:a|user=4|path=3"}},
		"another bad table":     {first, {b: "bad"}, {rules: "ip:a path:b", fails: true}, {a: "ip=2", want: "ip:a path:b|ip=2|path=1"}},
		"a change meanwhile":    {first, {"user:a", "bad", "", "", true}, {b: "path=2", want: "user:a path:b|user=1|path=2"}, {a: "user=3", want: "user:a|user=3|path=2"}},
		"bad rows stay, rules change": {
			first,
			{"user:a", "bad", "", "", true},
			{rules: "path:b user:a", fails: true},
			{a: "user=2", want: "path:b user:a|user=2|path=1"},
		},
		"a bad table stays, the other is read again": {
			first,
			{"", "user=2", "bad", "", false},
			{a: "user=2"},
			{a: "user=3"},
			{b: "path=2", want: "user:a path:b|user=3|path=2"},
		},
		"bad rules stay, rows are read again": {
			first,
			{"bad", "user=2", "", "", true},
			{a: "user=2"},
			{rules: "user:a", want: "user:a|user=2|path=1"},
		},
		"a bad table stays, rules come with rows": {
			first,
			{"", "user=2", "bad", "", false},
			{rules: "path:b user:a", a: "user=3", fails: true},
			{rules: "user:a", a: "user=4", fails: true},
			{b: "path=2", want: "user:a|user=4|path=2"},
		},
		"columns of one of two":     {first, {"user:a", "user=2", "ip=2", "user:a|user=2|ip=2", false}, {"user:a path:b", "user=3", "", "", true}, {b: "path=4", want: "user:a path:b|user=3|path=4"}},
		"a bad table at the start":  {{"user:a path:b", "bad", "path=1", "user:a path:b||path=1", false}, {a: "user=1", want: "user:a path:b|user=1|path=1"}},
		"bad rules at the start":    {{"bad", "user=1", "path=1", "|user=1|path=1", true}, {rules: "user:a", want: "user:a|user=1|path=1"}},
		"columns at the start":      {{"user:a", "ip=1", "", "||", true}, {a: "user=1", want: "user:a|user=1|"}},
		"rows and other rules wait": {first, {rules: "ip:a path:b", fails: true}, {"", "bad", "path=2", "", false}, {a: "user=3", want: "user:a path:b|user=3|path=2"}, {rules: "path:b", want: "path:b|user=3|path=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, want := newTestLoader(t), ""
			for i, s := range steps {
				var c source.Change
				if s.rules != "" {
					c.Rules = l.rules(s.rules)
				}
				for name, text := range map[string]string{"a": s.a, "b": s.b} {
					if text != "" {
						c.Tables = append(c.Tables, l.rows(name, text))
					}
				}
				if err := l.Load(c); (err != nil) != s.fails {
					t.Errorf("step %d: Load returned %v", i, err)
				}
				if s.want != "" {
					want = s.want
				}
				rules, a, b := l.active()
				if got := rules + "|" + a + "|" + b; got != want {
					t.Errorf("step %d: %s is active, want %s", i, got, want)
				}
			}
			if len(l.waiting) > 0 {
				t.Errorf("%d versions wait at the end", len(l.waiting))
			}
		})
	}
}

// TestRulesWaitForColumnsThatAreBeingSaved loads rules while the first row of a table is being
// saved, which determines the columns of the table.
func TestRulesWaitForColumnsThatAreBeingSaved(t *testing.T) {
	l := newTestLoader(t)
	e, err := l.tables.Table("c")
	must.OK(t, err)
	claim := func() (release func()) {
		t.Helper()
		release, err := l.tables.Claim(e, []string{"user"}, func() error { return nil })
		must.OK(t, err)
		return release
	}
	wantRules := func(when, want string) {
		t.Helper()
		if rules, _, _ := l.active(); rules != want {
			t.Errorf("%s: the rules %q are active, want %q", when, rules, want)
		}
	}
	accepted := 0
	load := func(rules string) {
		u := *l.rules(rules)
		u.Accepted = func() {
			l.tables.Lock() // Accepted is called without the lock
			defer l.tables.Unlock()
			accepted++
		}
		_ = l.LoadRules(u)
	}
	load("user:c")

	release := claim()
	load("ip:c")
	wantRules("while the row is saved", "user:c")
	other := claim()
	release()
	wantRules("while another one is saved", "user:c")
	if _, err := l.tables.Claim(e, []string{"ip"}, func() error { return nil }); !errors.Is(err, tables.ErrColumns) {
		t.Errorf("other columns can be claimed: %v", err)
	}
	must.OK(t, e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 1}))
	other()
	wantRules("after a row was put", "user:c")
	release = claim()
	e.Delete([]string{"al"})
	release()
	wantRules("after the row was deleted", "ip:c")

	load("user:c")
	release = claim()
	load("ip:c")
	wantRules("while the row is saved again", "user:c")
	release() // without a row, as after a failed save
	wantRules("after the row could not be saved", "ip:c")
	if accepted != 2 {
		t.Errorf("Accepted is called %d times for rejected rules, want 2", accepted)
	}
	misfit := errors.New("no such entry")
	if _, err := l.tables.Claim(e, []string{"user"}, func() error { return misfit }); !errors.Is(err, misfit) {
		t.Errorf("Claim of columns that do not fit the rules returned %v", err)
	}
}

// TestRulesReturnAfterOthersThatWaited reverts a source to its first rules. In between, other rules
// were rejected, and later became active together with a table. Requests may still read the first
// set, so the revert must not write to it.
func TestRulesReturnAfterOthersThatWaited(t *testing.T) {
	l := newTestLoader(t)
	reload := source.Reload[string]{OnLoad: l.LoadRules}
	load := func(rules string) error { return reload.Apply(rules, func() source.Update { return *l.rules(rules) }) }
	loadRows := func(text string) { _ = l.Load(source.Change{Tables: []source.TableUpdate{l.rows("a", text)}}) }
	must.OK(t, load("user:b"))
	first := l.service.Rules()
	loadRows("ip=1")
	if err := load("user!:a"); err == nil {
		t.Fatal("rules are active that do not fit their table")
	}
	loadRows("user=1")
	if rules, _, _ := l.active(); rules != "user:a" {
		t.Fatalf("%s is active, want the rules that waited", rules)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { // under -race this finds writes
		first.Plan(new(descriptors.Plan), &descriptors.Request{Domain: []byte("d"), Descriptors: []descriptors.Descriptor{
			{Entries: []descriptors.Entry{{Key: []byte("user"), Value: []byte("al")}}},
		}}, descriptors.Global{})
	})
	must.OK(t, load("user:b"))
	if rules, _, _ := l.active(); rules != "user:b" || l.service.Rules() == first {
		t.Errorf("%s is active, the first set: %v; want a new set of the same rules", rules, l.service.Rules() == first)
	}
	if rejected := l.logs.FilterMessageSnippet("failed to load rules").Len(); rejected != 1 {
		t.Errorf("rejected rules are logged %d times, want once", rejected)
	}
}
