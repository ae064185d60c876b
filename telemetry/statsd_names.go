package telemetry

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// statsdEntry says how one family of the registry is sent. A family may have
// several.
type statsdEntry struct {
	// id tells the entries apart.
	id   string
	kind dto.MetricType // counter, gauge, or histogram: its values, as timers
	// name returns the name and the tags of a series.
	name func(labels statsdLabels) (string, []Tag)
	// value is of a counter or gauge.
	value func(*dto.Metric) float64
}

// statsdLabels are the labels of a series without the tags that all have.
type statsdLabels []Tag

func newStatsdLabels(m *dto.Metric, common []Tag) statsdLabels {
	var labels statsdLabels
	for _, l := range m.GetLabel() {
		t := Tag{l.GetName(), l.GetValue()}
		if t.Value == "" || slices.ContainsFunc(common, func(c Tag) bool { return c.Key == t.Key }) {
			continue
		}
		labels = append(labels, t)
	}
	return labels
}

func (l statsdLabels) get(key string) string {
	for _, t := range l {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// statsdEntries returns how a family is sent: under the name that
// envoyproxy/ratelimit has for it; what has no counterpart there under its own
// name, with its labels as tags; nothing of the process and of Go beyond what is
// known there.
func statsdEntries(f *dto.MetricFamily) []statsdEntry {
	family := f.GetName()
	one := func(kind dto.MetricType, name func(statsdLabels) (string, []Tag)) []statsdEntry {
		return []statsdEntry{{family, kind, name, plainValue}}
	}
	fixed := func(name string) func(statsdLabels) (string, []Tag) {
		return func(statsdLabels) (string, []Tag) { return name, nil }
	}
	kind := f.GetType()
	if suffix, ok := strings.CutPrefix(family, "ratelimit_service_rate_limit_"); ok {
		return one(kind, func(l statsdLabels) (string, []Tag) { return ruleName(l, suffix) })
	}
	if entries, ok := goEntries(family, fixed); ok {
		return entries
	}
	switch family {
	case "ratelimit_service_total_requests":
		return one(kind, func(l statsdLabels) (string, []Tag) {
			return "ratelimit_server." + l.get("grpc_method") + ".total_requests", nil
		})
	case "ratelimit_service_response_time_seconds":
		return one(kind, func(l statsdLabels) (string, []Tag) {
			return "ratelimit_server." + l.get("grpc_method") + ".response_time", nil
		})
	case "ratelimit_service_should_rate_limit_error":
		return one(kind, func(l statsdLabels) (string, []Tag) {
			return "ratelimit.service.call.should_rate_limit." + l.get("err_type"), nil
		})
	case "sluice_unknown_domain_total":
		// There it is by domain; here a stranger's domains must not become names.
		return one(kind, fixed("ratelimit.service.rate_limit.unknown.domain_not_found"))
	}
	if suffix, ok := strings.CutPrefix(family, "ratelimit_service_"); ok {
		return one(kind, fixed("ratelimit.service."+suffix))
	}
	if strings.HasPrefix(family, "sluice_") {
		return one(kind, func(l statsdLabels) (string, []Tag) { return family, l })
	}
	return nil
}

// ruleName returns a rule's name: the domain and the whole metric key. The limits
// of a list, which envoyproxy/ratelimit does not have, differ in a tag.
func ruleName(l statsdLabels, suffix string) (string, []Tag) {
	var tags []Tag
	if limit := l.get("limit"); limit != "" {
		tags = []Tag{{"limit", limit}}
	}
	return "ratelimit.service.rate_limit." + sanitizeQuads(l.get("domain")) + "." + l.get("rule") + "." + suffix, tags
}

// goNames are envoyproxy/ratelimit's metrics of Go's run-time system.
var goNames = map[string]string{
	"go_goroutines":                   "numGoroutine",
	"go_memstats_alloc_bytes":         "alloc",
	"go_memstats_alloc_bytes_total":   "totalAlloc",
	"go_memstats_mallocs_total":       "mallocs",
	"go_memstats_frees_total":         "frees",
	"go_memstats_heap_alloc_bytes":    "heapAlloc",
	"go_memstats_heap_sys_bytes":      "heapSys",
	"go_memstats_heap_idle_bytes":     "heapIdle",
	"go_memstats_heap_inuse_bytes":    "heapInuse",
	"go_memstats_heap_released_bytes": "heapReleased",
	"go_memstats_heap_objects":        "heapObjects",
	"go_memstats_next_gc_bytes":       "nextGC",
}

func goEntries(family string, fixed func(string) func(statsdLabels) (string, []Tag)) ([]statsdEntry, bool) {
	if name, ok := goNames[family]; ok {
		kind := dto.MetricType_GAUGE
		if strings.HasSuffix(family, "_total") {
			kind = dto.MetricType_COUNTER
		}
		return []statsdEntry{{family, kind, fixed("ratelimit.go." + name), plainValue}}, true
	}
	if family != "go_gc_duration_seconds" {
		return nil, false
	}
	return []statsdEntry{
		{"numGC", dto.MetricType_COUNTER, fixed("ratelimit.go.numGC"), func(m *dto.Metric) float64 {
			return float64(m.GetSummary().GetSampleCount())
		}},
		{"pauseTotalNs", dto.MetricType_COUNTER, fixed("ratelimit.go.pauseTotalNs"), func(m *dto.Metric) float64 {
			return m.GetSummary().GetSampleSum() * 1e9
		}},
	}, true
}

func plainValue(m *dto.Metric) float64 {
	if c := m.GetCounter(); c != nil {
		return c.GetValue()
	}
	return m.GetGauge().GetValue()
}

// sanitizeName makes a name fit for a line: a colon or a bar would end it, a
// control character could begin another one.
func sanitizeName(name string) string { return replace(name, ":|") }

// sanitizeQuads does the same to a domain, and makes one level of an IPv4
// address.
func sanitizeQuads(domain string) string {
	return quads.ReplaceAllStringFunc(domain, func(quad string) string { return strings.ReplaceAll(quad, ".", "_") })
}

// appendTags appends tags to a name as gostats, the library of
// envoyproxy/ratelimit, does: sorted by key.
func appendTags(name string, tags []Tag) string {
	slices.SortStableFunc(tags, func(a, b Tag) int { return strings.Compare(a.Key, b.Key) })
	var b strings.Builder
	b.WriteString(name)
	for _, t := range tags {
		b.WriteString(".__" + replace(t.Key, ".:|=") + "=" + replace(t.Value, ".:|"))
	}
	return b.String()
}

// dogTag returns a tag as DogStatsD has it: a comma would begin another one.
func dogTag(t Tag) string { return replace(t.Key, ",|:") + ":" + replace(t.Value, ",|") }

// replace puts an underscore for each of the bytes in bad and for control
// characters.
func replace(s, bad string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(bad, r) {
			return '_'
		}
		return r
	}, s)
}
