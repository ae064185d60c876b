package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const metricsPage = "../docs/metrics.md"

const pageHead = `# Metrics

All metrics of sluice, except those of Go (` + "`go_...`" + `) and of the process (` + "`process_...`" + `). ` + "`go test\n./telemetry -run TestMetricsPage -update`" + ` writes this page. [Dashboards](../dashboards/README.md)
has a dashboard and alerts.

` + "`ratelimit_...`" + ` metrics have their names in envoyproxy/ratelimit's Prometheus exporter; additional
metrics start with ` + "`sluice_`" + `. Names that end in ` + "`_total`" + ` and those of ` + "`ratelimit_...`" + ` are
counters, and others are gauges, unless they are called histograms. Where a metric has another name
in StatsD, it is in parentheses: text in angle brackets is the value of a label, and other labels
become tags.

**A hit** counts in total_hits, and in within_limit or over_limit. Hits above four fifths of the
limit (NEAR_LIMIT_RATIO) also count in near_limit. A descriptor that is within its limit in a denied
request counts in total_hits only, and refunds in total_negative_hits only.

Metrics **of limits** have these labels, so any two of them can be joined:

| label | |
| --- | --- |
| ` + "`domain`" + ` | the domain |
| ` + "`key1`" + `, ` + "`key2`" + ` | the first two levels, as ` + "`key`" + ` or ` + "`key_value`" + `; empty where there is none |
| ` + "`rule`" + ` | all levels joined by dots |
| ` + "`limit`" + ` | the limit in a ` + "`rate_limits`" + ` list: its name, else ` + "`60/minute`" + `, with its number, such as ` + "` #2`" + `, after an equal one; empty outside lists |

In label values, ` + "`:`" + `, ` + "`|`" + ` and the dots of IPv4 addresses are replaced by ` + "`_`" + `, as in
envoyproxy/ratelimit. ` + "`--extra-tags`" + ` adds labels to every series.

**The number of series is bounded.** Up to 10,000 configured limits have series of their own, eight
each. The first 1,000 have them from the start, at 0; the others get them with their first hit, so
` + "`rate()`" + ` misses the hits before the next scrape. Up to 1,000 names that contain request values
(` + "`detailed_metric`" + `, ` + "`value_to_metric`" + `, limits in requests) have six series each; further names count
under ` + "`rule=\"other\"`" + ` of their domain. Of the domains without rules, the first 100 have one series
each.

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
	page := bytes.NewBufferString(pageHead + "| metric, labels | |\n| --- | --- |\n")
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		if slices.Contains(own, f.GetName()) {
			t.Errorf("the registry and the rules both emit %s", f.GetName())
		}
		own = append(own, f.GetName())
		// The name contains the domain of everySeries.
		name := strings.Replace(f.GetName(), "_d"+notFoundEnd, "_<domain>"+notFoundEnd, 1)
		kind := ""
		if f.GetType() == dto.MetricType_HISTOGRAM {
			kind = "Histogram: "
		}
		fmt.Fprintf(page, "| `%s`%s | %s%s%s |\n", name, labelNames(f), kind, f.GetHelp(), namesInStatsd(f))
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

// labelNames returns the names of a family's labels, after a space.
func labelNames(f *dto.MetricFamily) string {
	var names []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	switch text := strings.Join(names, ","); text {
	case "":
		return ""
	case "domain,key1,key2,limit,rule":
		return " of limits"
	default:
		return " `{" + text + "}`"
	}
}

// namesInStatsd returns a family's names in StatsD, in parentheses, if they differ.
func namesInStatsd(f *dto.MetricFamily) string {
	var names []string
	for _, e := range statsdEntries(f) {
		name := os.Expand(e.name, func(label string) string { return "<" + label + ">" })
		if name != f.GetName() {
			names = append(names, "`"+name+"`")
		}
	}
	if names == nil {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
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
			if !bytes.Contains(page, fmt.Appendf(nil, "| `%s` ", match[1])) {
				t.Errorf("%s: docs/metrics.md lacks %s: run `go test ./telemetry -run TestMetricsPage -update`; if it is still missing, create a series of it in everySeries", file, match[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d names in the source, want at least 30: the pattern is wrong", found)
	}
}
