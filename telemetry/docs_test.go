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

Every metric of sluice, beside those of Go (` + "`go_...`" + `) and of the process (` + "`process_...`" + `).
` + "`go test ./telemetry -run TestMetricsPage -update`" + ` writes this page.

` + "`ratelimit_...`" + ` metrics are those of envoyproxy/ratelimit, by their names in its Prometheus
exposition. Metrics that it lacks begin with ` + "`sluice_`" + `. The last column is the name in StatsD:
text in angle brackets stands for a label's value, and other labels become tags. A dashboard and
alerts are in [dashboards](../dashboards/README.md).

All series of a limit have the same labels, so they join as they are:

| label | |
| --- | --- |
| ` + "`domain`" + ` | the domain |
| ` + "`key1`, `key2`" + ` | the first two levels, as ` + "`key`" + ` or ` + "`key_value`" + `; empty where there is none |
| ` + "`rule`" + ` | all levels joined by dots |
| ` + "`limit`" + ` | which of a ` + "`rate_limits`" + ` list: its name, else ` + "`60/minute`" + `; empty outside lists |

In them ` + "`:` and `|`" + `, and the dots of IPv4 addresses, are ` + "`_`" + `, as in envoyproxy/ratelimit. With
` + "`--sanitize-metric-dots`" + ` so are all dots of keys and values, and dots in ` + "`rule`" + ` divide levels only.
` + "`--extra-tags`" + ` adds labels to every series.

**Series are bounded.** Up to 10,000 configured limits have series of their own, eight each: 80,000.
The first 1,000 limits have them from the start, at 0. The others get them with their first hit, so
` + "`rate()`" + ` misses the hits before the next scrape. A limit without series has had no hit.
Up to 1,000 names that hold values of requests (` + "`detailed_metric`, `value_to_metric`" + `, limits in
requests) have six each, for as long as their domain is configured. The rest count under
` + "`rule=\"other\"`" + ` of their domain. The first 100 domains without rules that requests name have one
each, in whose name all but letters and digits is ` + "`_`" + `, and the rest count as the domain ` + "`other`" + `.

**Leases.** Limits that give leases have two more: ` + "`sluice_in_flight`" + `, those that are out now, and
` + "`sluice_leases_expired_total`" + `, those that ran out because no end call brought them back. Both know
of the leases that this process has given since its start, the last 65,536 at most; after a restart
with ` + "`--state-file-leases`" + ` older ones free their places without being counted. With a store both are
left out, because an end call may reach another replica.

**Penalties.** Limits with ` + "`penalty`" + ` have ` + "`sluice_penalties_total`" + `, which counts each penalty once.
The requests that a penalty denies count in over_limit, as other denials do.

**Limits that Envoys divide.** Limits with the word ` + "`quota`" + ` have
` + "`sluice_quota_in_force_ratio`" + `, unless their metrics have values of requests or they are in shadow
mode: the sum of what may be in force at all Envoys, of all buckets, by the sum of their limits. It
is up to a second old, with 100,000 buckets six, and of more than that it is of 100,000 of them.

**StatsD.** Counters are sent as differences, with the last hits of rules that a reload removes. A
line longer than a packet, 1,432 bytes over UDP and 8,192 otherwise, is not sent: the log names its
metric once.

**How a hit counts.** A hit counts in total_hits, and in within_limit or over_limit. Hits above
` + "`--near-limit-ratio`" + ` of the limit count in near_limit too. A descriptor that had room in a denied
request counts in total_hits only. Refunds count in total_negative_hits only.

`

// TestMetricsPage holds docs/metrics.md against what the registry shows.
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
		// The name has the domain of everySeries.
		name := strings.Replace(f.GetName(), "_d"+notFoundEnd, "_<domain>"+notFoundEnd, 1)
		fmt.Fprintf(page, "| `%s` | %s | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), f.GetHelp(), namesThere(f))
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
		t.Errorf("docs/metrics.md is not what the registry shows (-page +registry), run with -update:\n%s", diff)
	}

	// Names of our own follow the custom; those of envoyproxy/ratelimit do not.
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

// namesThere returns a family's names in StatsD.
func namesThere(f *dto.MetricFamily) string {
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

// TestEveryMetricIsOnThePage looks for names in the source, so that a metric that
// the page's test does not bring to show is missed.
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
