package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ownLabels are the labels that series have of themselves; no tag may have such a
// name. A test holds them complete.
var ownLabels = []string{
	"code", "domain", "err_type", "goversion", "grpc_method", "hash", "key1", "key2", "kind",
	"le", "limit", "quantile", "result", "revision", "rule", "use", "version",
}

// CheckTags returns why tags cannot be labels of every series, or nil.
func CheckTags(tags []Tag) error {
	for i, t := range tags {
		switch {
		case !isLabelName(t.Key):
			return fmt.Errorf("tag %q: a name must be letters, digits and underscores, and not begin with a digit or with __", t.Key)
		case slices.Contains(ownLabels, t.Key):
			return fmt.Errorf("tag %q: series have a label of that name; taken are %s", t.Key, strings.Join(ownLabels, ", "))
		case !utf8.ValidString(t.Value):
			return fmt.Errorf("tag %q: its value %q is not UTF-8", t.Key, t.Value)
		case slices.ContainsFunc(tags[:i], func(before Tag) bool { return before.Key == t.Key }):
			return fmt.Errorf("tag %q comes twice", t.Key)
		}
	}
	return nil
}

// isLabelName reports whether every version of Prometheus takes name for a label.
func isLabelName(name string) bool {
	if name == "" || strings.HasPrefix(name, "__") || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.Trim(name, "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
