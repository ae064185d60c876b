package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
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
	e := newEvents(newConditions())
	return e, e.Watch(zap.New(core)), lines
}

// TestEventsFollowLog checks which log lines become events, and that the log does not change.
func TestEventsFollowLog(t *testing.T) {
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
		Raise(logger, StoreUnavailable, "s", zap.String("store", "s"), zap.Error(errors.New("no")))
		now := time.Now().UTC()
		want := []Event{
			{Time: now, Level: "error", Code: "store_unavailable", Text: "the store is unavailable; --store-fallback decides", Fields: map[string]any{"store": "s", "error": "no"}, Count: 1},
			{Time: now, Level: "warning", Text: "closed", Fields: map[string]any{"n": int64(4)}, Count: 5},
			{Time: now.Add(-6 * time.Second), Level: "info", Text: "rules loaded", Fields: map[string]any{"hash": "2"}, Count: 1},
			{Time: now.Add(-6 * time.Second), Level: "info", Text: "rules loaded", Fields: map[string]any{"hash": "1", "took": "1.5s"}, Count: 1},
		}
		if diff := cmp.Diff(want, e.Last()); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
		if n := lines.Len(); n != 1 {
			t.Errorf("the log has %d lines, want only the error", n)
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
			t.Errorf("FieldsText(%v) = %q, want %q", fields, got, want)
		}
	}
}

// TestFieldsOfEventsAreBounded logs a field with 6,000 domains and a long error. The log contains
// all of it, and an event the first part.
func TestFieldsOfEventsAreBounded(t *testing.T) {
	e, logger, lines := watchedLogger(zap.InfoLevel)
	domains := make([]string, 6000)
	for i := range domains {
		domains[i] = fmt.Sprint("domain", i)
	}
	long := strings.Repeat("é", 1<<15)
	for range 2 * MaxEvents {
		RaiseWithLines(logger, RulesRejected, "", "rules: ", []string{long}, zap.Strings("domains", domains), zap.Error(errors.New(long)))
		logger.Info("rules loaded", zap.Strings("domains", domains[:maxLines]))
	}
	last := e.Last()
	text, err := json.Marshal([]any{last, e.conditions.Active(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(text); n > (MaxEvents+1)*5*maxText {
		t.Errorf("%d events have %d bytes", len(last), n)
	}
	if got, ok := last[0].Fields["domains"].([]any); !ok || len(got) != maxLines || got[maxLines-1] != "domain19" {
		t.Errorf("an event with %d domains has %v, want all", maxLines, last[0].Fields["domains"])
	}
	got, ok := last[1].Fields["domains"].([]any)
	if !ok || len(got) != maxLines+1 || got[0] != "domain0" || got[maxLines] != "and 5980 more" {
		t.Errorf("an event with 6,000 domains has %v, want the first ones", got)
	}
	for _, text := range []string{last[1].Lines[0], fmt.Sprint(last[1].Fields["error"])} {
		if !utf8.ValidString(text) || len(text) > maxText || !strings.HasSuffix(text, "é…") {
			t.Errorf("an event has a text of %d bytes, %.20q to %q, want it truncated", len(text), text, text[max(0, len(text)-10):])
		}
	}
	if n := len(lines.All()[0].Message); n < len(long) {
		t.Errorf("the log has a line of %d bytes, want the complete text", n)
	}
}

// TestInvalidUTF8IsTruncated checks texts that are not UTF-8 or have long characters.
func TestInvalidUTF8IsTruncated(t *testing.T) {
	for _, text := range []string{strings.Repeat("\x80", maxText+1), strings.Repeat("ö", maxText), strings.Repeat("\xf0\x9f\x98\x80", maxText)} {
		if got := cut(text); len(got) > maxText || len(got) < maxText-8 {
			t.Errorf("%.8q is truncated to %d bytes, want about %d", text, len(got), maxText)
		}
	}
}
