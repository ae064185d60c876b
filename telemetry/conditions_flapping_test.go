package telemetry

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// TestFlappingConditions raises and clears 100,000 conditions with long subjects and details. The
// state stays small, and none is left.
func TestFlappingConditions(t *testing.T) {
	e, logger, _ := watchedLogger(zap.FatalLevel)
	long := strings.Repeat("x", 16<<10)
	for i := range effort.Times(t, 10_000) {
		subject := fmt.Sprint(i, long)
		Raise(logger, StoreUnavailable, subject, zap.String("store", subject))
		logger.Info("store recovered", Clear(subject, StoreUnavailable))
	}
	expectCodes(t, e.conditions, time.Now())
	expectSize(t, e, 0)
}

// TestManyConditions raises 100,000 conditions with one code. Only the first are kept, and they do
// not hide one with another code.
func TestManyConditions(t *testing.T) {
	for name, raise := range map[string]func(e *Events, logger *zap.Logger, subject string){
		"raised": func(_ *Events, logger *zap.Logger, subject string) {
			Raise(logger, TableRejected, subject, zap.String("table", subject))
		},
		"updated": func(e *Events, _ *zap.Logger, subject string) {
			e.conditions.Update(TableRejected, subject, zap.String("table", subject))
		},
	} {
		e, logger, lines := watchedLogger(zap.InfoLevel)
		long := strings.Repeat("x", 16<<10)
		for i := range effort.Times(t, 10_000) {
			raise(e, logger, fmt.Sprint(i, long))
			if name == "raised" {
				lines.TakeAll()
			}
		}
		if name == "updated" && lines.Len() != maxPerCode {
			t.Errorf("the log has %d lines, want one for each of %d conditions", lines.Len(), maxPerCode)
		}
		Raise(logger, StoreUnavailable, "")
		expectSize(t, e, maxPerCode+1)
		if active := e.conditions.Active(time.Now()); active[0].Code != StoreUnavailable && active[maxPerCode].Code != StoreUnavailable {
			t.Errorf("%s: the conditions lack %s", name, StoreUnavailable)
		}
		logger.Info("loaded", Clear("0"+long, TableRejected))
		raise(e, logger, "new")
		expectSize(t, e, maxPerCode+1)
	}
}

// expectSize fails the test unless there are n conditions, and these and the events are at most
// 1 MiB of JSON.
func expectSize(t *testing.T, e *Events, n int) {
	t.Helper()
	active := e.conditions.Active(time.Now())
	text, err := json.Marshal([]any{active, e.Last()})
	if err != nil {
		t.Fatal(err)
	}
	if len(active) != n || len(text) > 1<<20 {
		t.Errorf("there are %d conditions, and %d bytes of JSON; want %d, at most 1 MiB", len(active), len(text), n)
	}
}

// TestUpdateAndEnd checks that an update changes the details alone, and that the log has a line at
// the start and at the end.
func TestUpdateAndEnd(t *testing.T) {
	e, _, lines := watchedLogger(zap.InfoLevel)
	c := e.conditions
	c.End(CostsMissing, "d: user") // is not active
	for n := range uint64(3) {
		c.Update(CostsMissing, "d: user", zap.Uint64("requests", n))
		if active := c.Active(time.Now()); len(active) != 1 || active[0].Fields["requests"] != n || active[0].Remedy != CostsMissing.Define().Remedy {
			t.Errorf("the conditions are %+v, want one with %d requests", active, n)
		}
	}
	c.End(CostsMissing, "d: user")
	expectCodes(t, c, time.Now())
	if lines.Len() != 2 {
		t.Errorf("the log has %d lines, want the start and the end", lines.Len())
	}
}
