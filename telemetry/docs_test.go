package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const metricsPage = "../docs/metrics.md"

const pageHead = `# Metrics

All metrics of sluice, except those of Go (` + "`go_...`" + `) and of the process (` + "`process_...`" + `).
` + "`go test ./telemetry -run TestMetricsPage -update`" + ` writes this page.

` + "`ratelimit_...`" + ` metrics have their names in envoyproxy/ratelimit's Prometheus exporter. Additional
metrics start with ` + "`sluice_`" + `. The last column is the name in StatsD: text in angle brackets is the
value of a label, and other labels become tags. [dashboards](../dashboards/README.md) has a
dashboard and alerts.

All series of a limit have the same labels, so any two of them can be joined:

| label | |
| --- | --- |
| ` + "`domain`" + ` | the domain |
| ` + "`key1`, `key2`" + ` | the first two levels, as ` + "`key`" + ` or ` + "`key_value`" + `; empty where there is none |
| ` + "`rule`" + ` | all levels joined by dots |
| ` + "`limit`" + ` | the limit in a ` + "`rate_limits`" + ` list: its name, else ` + "`60/minute`" + `; empty outside lists |

In label values, ` + "`:`" + `, ` + "`|`" + ` and the dots of IPv4 addresses are replaced by ` + "`_`" + `, as in
envoyproxy/ratelimit. ` + "`--sanitize-metric-dots`" + ` also replaces all other dots of keys and values, so
that dots in ` + "`rule`" + ` only separate levels. ` + "`--extra-tags`" + ` adds labels to every series.

**The number of series is bounded.** Up to 10,000 configured limits have series of their own, eight
each: 80,000. The first 1,000 limits have them from the start, at 0. The others get them with their
first hit, so ` + "`rate()`" + ` misses the hits before the next scrape. A limit without series has had no
hit. Up to 1,000 names that contain request values (` + "`detailed_metric`, `value_to_metric`" + `, limits
in requests) have six series each while their domain is configured. Further names count under
` + "`rule=\"other\"`" + ` of their domain. Domains without rules have one series each, for the first 100
that requests contain; further ones count as the domain ` + "`other`" + `. The series has the domain in its
name, with ` + "`_`" + ` in place of all characters except letters and digits.

**Leases.** Limits that grant leases have two more metrics: ` + "`sluice_leases_active`" + ` and
` + "`sluice_leases_expired_total`" + `, which counts leases that were not released in time. Both cover the
leases that this process has granted since its start, at most the last 65,536. After a restart
with ` + "`--state-file-leases`" + ` the restored leases still release their permits, but are not counted.
With a store both are omitted, because another replica may receive the end call.

**Penalties.** Limits with ` + "`penalty`" + ` have ` + "`sluice_penalties_total`" + `, which counts each penalty once.
The requests that a penalty denies count in over_limit, like other denials.

**Limits divided among Envoys.** Limits with ` + "`quota`" + ` have ` + "`sluice_quota_assigned_ratio`" + `: the sum
of the rates that are assigned to Envoys in all buckets, divided by the sum of the buckets' limits.
Limits in shadow mode, and those whose metrics contain request values, do not have it. The value is
up to one second old, or six seconds with 100,000 buckets. With more buckets it covers 100,000.

**StatsD.** Counters are sent as differences, including the last hits of removed rules.
A line longer than a packet, 1,432 bytes over UDP and 8,192 otherwise, is not sent; the log names
its metric once.

**How a hit counts.** A hit counts in total_hits, and in within_limit or over_limit. Hits above
` + "`--near-limit-ratio`" + ` of the limit also count in near_limit. A descriptor that is within its limit
in a denied request counts in total_hits only. Refunds count in total_negative_hits only.

`

// TestMetricsPage compares docs/metrics.md with the metrics of the registry.
func TestMetricsPage(t *testing.T) {
	m, err := New(Options{Build: Build{Version: "v1"}})
	if err != nil {
		t.Fatal(err)
	}
	everySeries(t, m)
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	page := bytes.NewBufferString(pageHead + "| metric | type | labels | | StatsD |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		own = append(own, f.GetName())
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		// The name contains the domain of everySeries.
		name := strings.Replace(f.GetName(), "_d"+notFoundEnd, "_<domain>"+notFoundEnd, 1)
		fmt.Fprintf(page, "| `%s` | %s | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), f.GetHelp(), namesInStatsd(f))
	}
	if *update {
		if err := os.WriteFile(metricsPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), page.String()); diff != "" {
		t.Errorf("docs/metrics.md differs from the registry (-page +registry); run with -update:\n%s", diff)
	}

	// Additional names follow Prometheus' conventions; those of envoyproxy/ratelimit do not.
	var ours []string
	for _, name := range own {
		if strings.HasPrefix(name, "sluice_") {
			ours = append(ours, name)
		}
	}
	problems, err := testutil.GatherAndLint(m.Registry, ours...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// namesInStatsd returns a family's names in StatsD.
func namesInStatsd(f *dto.MetricFamily) string {
	var names []string
	for _, e := range statsdEntries(f) {
		name := os.Expand(e.name, func(label string) string { return "<" + label + ">" })
		if name == f.GetName() {
			name = "the same"
		} else {
			name = "`" + name + "`"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// TestEveryMetricIsOnThePage searches the source for names, to find metrics without a series in
// TestMetricsPage.
func TestEveryMetricIsOnThePage(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"((?:sluice|ratelimit_service)_[a-z0-9_]*[a-z0-9])"`)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range name.FindAllSubmatch(text, -1) {
			found++
			if !bytes.Contains(page, fmt.Appendf(nil, "| `%s` |", match[1])) {
				t.Errorf("%s: docs/metrics.md lacks %s: run `go test ./telemetry -run TestMetricsPage -update`; if it is still missing, create a series of it in everySeries", file, match[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d names in the source, want at least 30: the pattern is wrong", found)
	}
}
