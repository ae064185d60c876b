//go:build torture

package torture_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/torture"
)

// TestPanics runs a sluice of which one request in a hundred panics, by turns before
// it is decoded, before it is matched and when its counters are charged. Those are
// answered INTERNAL, which the metric counts, all others are right, and the process
// goes on.
func TestPanics(t *testing.T) {
	rnd := torture.Rand(t)
	ledger := torture.NewLedger(200, 100)
	ledger.MayPanic = true
	binary, err := sluice.Build(t.Context(), torture.Root, t.TempDir(), "-tags", "sluicetorture")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sluice.Start(t.Context(), sluice.Options{Binary: binary, Args: []string{"--config", torture.WriteRules(t, ledger.Rules())}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	ask := ledger.Caller(t, s.Addr("grpc"), rnd)
	before := torture.Metrics(t, s).Sum("sluice_panics_total")
	load := torture.StartLoad(t, torture.LoadOptions{
		Rate: torture.Rate, Ask: ask,
		Deadline: torture.Patience, // so that nobody misses what became of a call
	})
	load.Run(t, torture.Pick(3*time.Second, 20*time.Second))
	report := load.Stop(t)
	report.AtLeast(t, torture.Least, "before")
	report.Errors(t, "before", "Internal")
	phase := report.Phase(t, "before")
	internal := phase.Errors()["Internal"]
	if all := phase.Answered() + phase.Failed(); internal < all/110 || internal > all/90 {
		t.Errorf("%d of %d calls are answered INTERNAL, want one in a hundred", internal, all)
	}
	if got := torture.Metrics(t, s).Sum("sluice_panics_total") - before; got != float64(internal) {
		t.Errorf("%v panics are counted, want %d", got, internal)
	}
	ledger.Settle(t, s)
	told := strings.Count(s.Log(), `"@message":"panic in a request"`)
	lost := int(torture.Metrics(t, s).Sum("sluice_log_lines_dropped_total"))
	if told+lost < internal {
		t.Errorf("%d panics are in the log and %d lines were lost, want %d", told, lost, internal)
	}
	if strings.Contains(s.Log(), "as the tag sluicetorture has it") {
		t.Error("what was thrown is in the log")
	}
	if code, err := s.Stop(t.Context()); code != 0 || err != nil {
		t.Errorf("the end is %d, %v, want 0", code, err)
	}
}
