package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func watchedLogger(level zapcore.Level) (*Events, *zap.Logger, *observer.ObservedLogs) {
	core, lines := observer.New(level)
	e := newEvents()
	return e, e.Watch(zap.New(core)), lines
}

// TestEventsAreTheLog holds which lines are events, and that the log stays what it was.
func TestEventsAreTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, logger, lines := watchedLogger(zap.ErrorLevel)
		logger.Debug("a request")
		logger.Info("rules loaded", zap.String("hash", "1"), zap.Duration("took", 1500*time.Millisecond))
		logger.Info("rules loaded", zap.String("hash", "2"))
		time.Sleep(time.Second)
		logger.Warn("rules: a.yaml:1: a warning")
		logger.Info("http: TLS handshake error from 1.2.3.4:5")
		for i := range 5 {
			time.Sleep(time.Second)
			logger.With(zap.Int("n", i)).Warn("closed")
		}
		logger.Error("the store is away", zap.String("store", "s"), zap.Error(errors.New("no")))
		now := time.Now().UTC()
		want := []Event{
			{Time: now, Level: "error", Text: "the store is away", Fields: map[string]any{"store": "s", "error": "no"}, Count: 1},
			{Time: now, Level: "warning", Text: "closed", Fields: map[string]any{"n": int64(4)}, Count: 5},
			{Time: now.Add(-6 * time.Second), Level: "info", Text: "rules loaded", Fields: map[string]any{"hash": "2"}, Count: 1},
			{Time: now.Add(-6 * time.Second), Level: "info", Text: "rules loaded", Fields: map[string]any{"hash": "1", "took": "1.5s"}, Count: 1},
		}
		if diff := cmp.Diff(want, e.Last()); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
		if n := lines.Len(); n != 1 {
			t.Errorf("the log has %d lines, want the error alone", n)
		}
	})
}

func TestEventsAreBounded(t *testing.T) {
	e, logger, _ := watchedLogger(zap.InfoLevel)
	for i := range 3 * MaxEvents {
		logger.Info(fmt.Sprint("line ", i))
	}
	all := e.Last()
	if len(all) != MaxEvents || all[0].Text != "line 299" || all[MaxEvents-1].Text != "line 200" {
		t.Errorf("%d events, from %q to %q, want the last %d", len(all), all[0].Text, all[len(all)-1].Text, MaxEvents)
	}
}

// TestWrongNow holds what is wrong after lines of the log, and since when.
func TestWrongNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, logger, _ := watchedLogger(zap.InfoLevel)
		wrong := func() []string {
			said := []string{}
			for _, w := range e.Wrong() {
				said = append(said, fmt.Sprintf("%s %v %s", w.Kind, time.Since(w.Since), strings.Join(w.Lines, "|")))
			}
			return said
		}
		expect := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(append([]string{}, want...), wrong()); diff != "" {
				t.Errorf("what is wrong differs (-want +got):\n%s", diff)
			}
		}
		expect()
		for i := range 30 {
			logger.Error(fmt.Sprintf("rules: a.yaml:%d: bad", i))
		}
		logger.Error("rules do not load: what is in force stays")
		var twenty []string
		for i := range maxLines {
			twenty = append(twenty, fmt.Sprintf("a.yaml:%d: bad", i))
		}
		expect("rules_rejected 0s " + strings.Join(twenty, "|"))
		time.Sleep(time.Second)
		logger.Error("the store is away", zap.String("store", "a"))
		logger.Error("the store is away", zap.String("store", "b"))
		logger.Error("rules: a.yaml:7: worse")
		logger.Error("rules do not load: what is in force stays")
		time.Sleep(time.Second)
		logger.Info("the store is back", zap.String("store", "a"))
		expect("store_away 1s ", "rules_rejected 2s a.yaml:7: worse")
		logger.Info("rules loaded")
		expect("store_away 1s ")
		logger.Info("the store is back", zap.String("store", "b"))
		expect()
	})
}

// TestTroublesAreInTheLog holds that the lines which say what is wrong are those that are logged.
func TestTroublesAreInTheLog(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "grep", "-hF", "-e", ".Error(", "-e", ".Warn(", "-e", ".Info(", "-e", "tell(", "-e", "log(", "-e", "after :=", "-e", "after =", "--", "*.go", ":!*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: no git here to look through the sources with: %v", err)
	}
	for _, trouble := range troubles {
		for _, text := range append([]string{trouble.begin}, trouble.ends...) {
			if !strings.Contains(string(out), `"`+text) {
				t.Errorf("nobody logs %q", text)
			}
		}
	}
}

// TestKindsAreInTheDocs holds docs/state.md against what may be wrong.
func TestKindsAreInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, trouble := range troubles {
		if !strings.Contains(string(text), "`"+trouble.kind+"`") {
			t.Errorf("docs/state.md lacks `%s`", trouble.kind)
		}
	}
}

func TestFieldsText(t *testing.T) {
	changed := []any{"shop: user 5/hour -> 0/hour", "shop: path added, 1/day"}
	for want, fields := range map[string]map[string]any{
		"":                   nil,
		" a=1 b=x":           {"b": "x", "a": 1},
		" changed=[] hash=1": {"changed": []any{}, "hash": 1},
		": shop: user 5/hour -> 0/hour; shop: path added, 1/day":              {"changed": changed, "changes": int64(2), "hash": "1"},
		": shop: user 5/hour -> 0/hour; shop: path added, 1/day; and 38 more": {"changed": changed, "changes": 40.0},
	} {
		if got := FieldsText(fields); got != want {
			t.Errorf("%v is written %q, want %q", fields, got, want)
		}
	}
}

// TestFieldsOfEventsAreBounded logs as a load of 6,000 domains does, and an error as long as what a server sent: the log has them
// all, and an event the first.
func TestFieldsOfEventsAreBounded(t *testing.T) {
	e, logger, lines := watchedLogger(zap.InfoLevel)
	domains := make([]string, 6000)
	for i := range domains {
		domains[i] = fmt.Sprint("domain", i)
	}
	long := strings.Repeat("é", 1<<15)
	for range 2 * MaxEvents {
		logger.Error("rules: " + long)
		logger.Error("rules do not load: "+long, zap.Strings("domains", domains), zap.Error(errors.New(long)))
		logger.Info("rules loaded", zap.Strings("domains", domains[:maxLines]))
	}
	last := e.Last()
	text, err := json.Marshal([]any{last, e.Wrong()})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(text); n > (MaxEvents+1)*5*maxText {
		t.Errorf("%d events have %d bytes", len(last), n)
	}
	if got, ok := last[0].Fields["domains"].([]any); !ok || len(got) != maxLines || got[maxLines-1] != "domain19" {
		t.Errorf("of %d domains the event has %v, want all", maxLines, last[0].Fields["domains"])
	}
	got, ok := last[1].Fields["domains"].([]any)
	if !ok || len(got) != maxLines+1 || got[0] != "domain0" || got[maxLines] != "and 5980 more" {
		t.Errorf("of 6,000 domains the event has %v, want the first", got)
	}
	for _, text := range []string{last[1].Text, last[1].Lines[0], fmt.Sprint(last[1].Fields["error"])} {
		if !utf8.ValidString(text) || len(text) > maxText || !strings.HasSuffix(text, "é…") {
			t.Errorf("an event has a text of %d bytes, %.20q to %q, want it cut", len(text), text, text[max(0, len(text)-10):])
		}
	}
	if n := len(lines.All()[0].Message); n < len(long) {
		t.Errorf("the log has a line of %d bytes, want all of it", n)
	}
}

// Errors of single rules are lines of the event that says that the rules do not load, also if another error comes in between.
func TestErrorsBetweenThoseOfRules(t *testing.T) {
	e, logger, _ := watchedLogger(zap.InfoLevel)
	logger.Error("rules: a.yaml:1: an error")
	logger.Error("the store is away", zap.String("store", "s"))
	logger.Error("rules: a.yaml:2: an error")
	logger.Error("rules do not load: what is in force stays")
	want := [][]string{{"a.yaml:1: an error", "a.yaml:2: an error"}, nil}
	var got [][]string
	for _, event := range e.Last() {
		got = append(got, event.Lines)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the lines of events differ (-want +got):\n%s", diff)
	}
	for _, wrong := range e.Wrong() {
		if (wrong.Kind == "rules_rejected") != (len(wrong.Lines) == 2) {
			t.Errorf("%s has the lines %q", wrong.Kind, wrong.Lines)
		}
	}
}

// A text that is not UTF-8 is cut, too.
func TestTextsOfOtherBytesAreCut(t *testing.T) {
	for _, text := range []string{strings.Repeat("\x80", maxText+1), strings.Repeat("ö", maxText), strings.Repeat("\xf0\x9f\x98\x80", maxText)} {
		if got := cut(text); len(got) > maxText || len(got) < maxText-8 {
			t.Errorf("%.8q is cut at %d bytes, want about %d", text, len(got), maxText)
		}
	}
}
