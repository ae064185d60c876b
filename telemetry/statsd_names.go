package telemetry

import (
	"os"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// statsdEntry describes how a metric family is sent. A family may have several entries.
type statsdEntry struct {
	// id identifies the entry.
	id   string
	kind dto.MetricType // counter, gauge, or histogram, whose values are sent as timers
	// name is the name of a series, with $label for the value of a label.
	name string
	// tags are the labels that are sent as tags.
	tags []string
	// value returns the value of a counter or gauge.
	value func(*dto.Metric) float64
}

// series returns the name and the tags of a series, without the common tags.
func (e *statsdEntry) series(m *dto.Metric, common []Tag) (name string, tags []Tag) {
	values := map[string]string{}
	for _, l := range m.GetLabel() {
		t := Tag{l.GetName(), l.GetValue()}
		values[t.Key] = t.Value
		if t.Value != "" && slices.Contains(e.tags, t.Key) &&
			!slices.ContainsFunc(common, func(c Tag) bool { return c.Key == t.Key }) {
			tags = append(tags, t)
		}
	}
	values["domain"] = sanitizeIPv4(values["domain"])
	return os.Expand(e.name, func(label string) string { return values[label] }), tags
}

// statsdNames are envoyproxy/ratelimit's names of families.
var statsdNames = map[string]string{
	"ratelimit_service_total_requests":          "ratelimit_server.${grpc_method}.total_requests",
	"ratelimit_service_response_time_seconds":   "ratelimit_server.${grpc_method}.response_time",
	"ratelimit_service_should_rate_limit_error": "ratelimit.service.call.should_rate_limit.${err_type}",
	"go_goroutines":                   "ratelimit.go.numGoroutine",
	"go_memstats_alloc_bytes":         "ratelimit.go.alloc",
	"go_memstats_alloc_bytes_total":   "ratelimit.go.totalAlloc",
	"go_memstats_mallocs_total":       "ratelimit.go.mallocs",
	"go_memstats_frees_total":         "ratelimit.go.frees",
	"go_memstats_heap_alloc_bytes":    "ratelimit.go.heapAlloc",
	"go_memstats_heap_sys_bytes":      "ratelimit.go.heapSys",
	"go_memstats_heap_idle_bytes":     "ratelimit.go.heapIdle",
	"go_memstats_heap_inuse_bytes":    "ratelimit.go.heapInuse",
	"go_memstats_heap_released_bytes": "ratelimit.go.heapReleased",
	"go_memstats_heap_objects":        "ratelimit.go.heapObjects",
	"go_memstats_next_gc_bytes":       "ratelimit.go.nextGC",
}

// statsdEntries returns the entries of a family. A family of envoyproxy/ratelimit is sent under its
// name there, other families under their own name with their labels as tags. Families of the
// process and of Go are sent only if envoyproxy/ratelimit has them.
func statsdEntries(f *dto.MetricFamily) []statsdEntry {
	family := f.GetName()
	e := statsdEntry{id: family, kind: f.GetType(), value: plainValue}
	rule, isRule := strings.CutPrefix(family, "ratelimit_service_rate_limit_")
	service, isService := strings.CutPrefix(family, "ratelimit_service_")
	switch name := statsdNames[family]; {
	case name != "":
		e.name = name
	case isRule && strings.HasSuffix(rule, notFoundEnd):
		e.name = "ratelimit.service.rate_limit.$domain.domain_not_found"
	case isRule:
		// The domain and the complete metric key. The limits of a list, which envoyproxy/ratelimit
		// lacks, differ in a tag.
		e.name = "ratelimit.service.rate_limit.$domain.$rule." + rule
		e.tags = []string{"limit"}
	case isService:
		e.name = "ratelimit.service." + service
	case strings.HasPrefix(family, "sluice_"):
		e.name = family
		e.tags = ownLabels
	case family == "go_gc_duration_seconds":
		return []statsdEntry{
			{"numGC", dto.MetricType_COUNTER, "ratelimit.go.numGC", nil, func(m *dto.Metric) float64 {
				return float64(m.GetSummary().GetSampleCount())
			}},
			{"pauseTotalNs", dto.MetricType_COUNTER, "ratelimit.go.pauseTotalNs", nil, func(m *dto.Metric) float64 {
				return m.GetSummary().GetSampleSum() * 1e9
			}},
		}
	default:
		return nil
	}
	return []statsdEntry{e}
}

func plainValue(m *dto.Metric) float64 {
	if c := m.GetCounter(); c != nil {
		return c.GetValue()
	}
	return m.GetGauge().GetValue()
}

// appendTags appends tags to a name, sorted by key, like gostats, the library of
// envoyproxy/ratelimit.
func appendTags(name string, tags []Tag) string {
	slices.SortStableFunc(tags, func(a, b Tag) int { return strings.Compare(a.Key, b.Key) })
	var b strings.Builder
	b.WriteString(name)
	for _, t := range tags {
		b.WriteString(".__" + replace(t.Key, ".:|=") + "=" + replace(t.Value, ".:|"))
	}
	return b.String()
}

// dogTag returns a tag in DogStatsD's format. A comma would start another tag.
func dogTag(t Tag) string { return replace(t.Key, ",|:") + ":" + replace(t.Value, ",|") }
