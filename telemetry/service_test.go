package telemetry

import (
	"bytes"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsAreValidAndNamed(t *testing.T) {
	m, err := New(Options{Build: Build{Version: "v1", Revision: "c0ffee", CommitDate: "2026-11-21T18:57:30Z", Go: runtime.Version()}})
	if err != nil {
		t.Fatal(err)
	}
	everySeries(t, m)
	want := `
# HELP sluice_build_info Always 1; the labels describe the build. revision and commit_date are empty if the build did not record them.
# TYPE sluice_build_info gauge
sluice_build_info{commit_date="2026-11-21T18:57:30Z",goversion="` + runtime.Version() + `",revision="c0ffee",version="v1"} 1
# HELP ratelimit_service_config_load_error Rule sets that were rejected; the previous rules stayed active.
# TYPE ratelimit_service_config_load_error counter
ratelimit_service_config_load_error 1
# HELP ratelimit_service_config_load_success Rule sets that were loaded successfully.
# TYPE ratelimit_service_config_load_success counter
ratelimit_service_config_load_success 1
# HELP sluice_config_info Always 1; the label is the hash of the active rules.
# TYPE sluice_config_info gauge
sluice_config_info{hash="abc"} 1
# HELP sluice_config_last_load_successful 1 if the last rules of the source are active, 0 if they were rejected.
# TYPE sluice_config_last_load_successful gauge
sluice_config_last_load_successful 0
# HELP sluice_counters_live Counters of a size that can still affect a decision. Above 250,000 counters, or 128 MiB of a size, it is an estimate to about 1 %.
# TYPE sluice_counters_live gauge
sluice_counters_live{counter_bytes="16",domain=""} 2
sluice_counters_live{counter_bytes="72",domain="d"} 0
`
	names := []string{"sluice_build_info", "ratelimit_service_config_load_error", "ratelimit_service_config_load_success", "sluice_config_info", "sluice_config_last_load_successful", "sluice_counters_live"}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	m.ConfigRestored()
	m.ConfigLoaded("def", 13)
	if n := testutil.CollectAndCount(m.configMetrics.info); n != 1 {
		t.Errorf("%d hashes are exposed, want only that of the active rules", n)
	}
}

func TestLogger(t *testing.T) {
	for _, level := range slices.AppendSeq([]string{"WARN", "Info"}, maps.Keys(logLevels)) {
		if _, err := NewLogger(&bytes.Buffer{}, level, "text"); err != nil {
			t.Errorf("NewLogger(%q): %v", level, err)
		}
	}
	if _, err := NewLogger(&bytes.Buffer{}, "loud", "text"); err == nil || !strings.Contains(err.Error(), "warning") {
		t.Errorf("NewLogger(loud) = %v, want an error that lists the levels", err)
	}
	if _, err := NewLogger(&bytes.Buffer{}, "info", "xml"); err == nil {
		t.Error("NewLogger accepts the format xml")
	}
	var out bytes.Buffer
	l, err := NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	l.Debug("unseen")
	l.Info("seen")
	l.Warn("look")
	for _, want := range []string{`"@timestamp":"`, `"level":"info"`, `"@message":"seen"`, `"level":"warning"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log is %s, want %s in it", out.String(), want)
		}
	}
	if strings.Contains(out.String(), "unseen") {
		t.Error("a debug line is in the log of level info")
	}
}
