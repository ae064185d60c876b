package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// ownLabels are the labels of all metrics. A test checks that they are complete.
var ownLabels = []string{
	"by", "code", "commit_date", "counter_bytes", "domain", "err_type", "goversion", "grpc_method", "hash", "key1", "key2", "kind",
	"le", "limit", "quantile", "reason", "result", "revision", "rule", "shard", "table", "transport", "use", "version",
}

// Tag is a key and its value.
type Tag struct{ Key, Value string }

// ParseTags parses `KEY:VALUE,KEY:VALUE`. Keys must not be empty or repeated.
func ParseTags(text string) ([]Tag, error) {
	if text == "" {
		return nil, nil
	}
	var tags []Tag
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, ":")
		if !ok || key == "" {
			return nil, fmt.Errorf("tag %q: must be KEY:VALUE, several separated by commas", pair)
		}
		if seen[key] {
			return nil, fmt.Errorf("tag %q is repeated", key)
		}
		seen[key] = true
		tags = append(tags, Tag{key, value})
	}
	return tags, nil
}

// tagLabels returns tags as labels of every series. Like envoyproxy/ratelimit it accepts any name.
// Characters that are not letters or digits become underscores. A name that is used by a metric, or
// is not valid as a label, gets the prefix tag_. It returns an error if a value is not UTF-8 or two
// tags result in the same label.
func tagLabels(tags []Tag) (prometheus.Labels, error) {
	labels := prometheus.Labels{}
	for _, t := range tags {
		name := labelName(t.Key)
		if _, twice := labels[name]; twice {
			return nil, fmt.Errorf("tag %q: another tag already results in the label %s", t.Key, name)
		}
		if !utf8.ValidString(t.Value) {
			return nil, fmt.Errorf("tag %q: its value %q is not UTF-8", t.Key, t.Value)
		}
		labels[name] = t.Value
	}
	return labels, nil
}

// CheckTags returns an error if tags cannot be labels of every series.
func CheckTags(tags []Tag) error {
	_, err := tagLabels(tags)
	return err
}

// labelName returns a label name that every version of Prometheus accepts.
func labelName(key string) string {
	name := metricName(key)
	if name == "" || strings.HasPrefix(name, "__") || name[0] <= '9' || slices.Contains(ownLabels, name) {
		return "tag_" + name
	}
	return name
}
