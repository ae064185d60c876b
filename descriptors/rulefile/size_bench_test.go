package rulefile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkSize reads objects and lists of two sizes: the time of an item must be about the same in
// both.
func BenchmarkSize(b *testing.B) {
	rulesOf := func(i int) string {
		return fmt.Sprintf("domain: d%d\ndescriptors:\n- { key: k, rate_limit: { unit: hour, requests_per_unit: 1 } }\n", i)
	}
	const object = "kind: ConfigMap\napiVersion: v1\ndata:\n"
	for name, contentOf := range map[string]func(n int) string{
		"blocks": func(n int) string {
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, "  f%d.yaml: |\n    %s\n", i, strings.ReplaceAll(rulesOf(i), "\n", "\n    "))
			}
			return object + text.String()
		},
		"line": func(n int) string {
			files := map[string]string{}
			for i := range n {
				files[fmt.Sprintf("f%d.yaml", i)] = rulesOf(i)
			}
			data, _ := json.Marshal(files)
			return object + "  " + string(data)
		},
		"limits": func(n int) string {
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, "    - { unit: second, unit_multiplier: %d, requests_per_unit: 1, name: n%d }\n", i+1, i)
			}
			return "domain: d\ndescriptors:\n- key: k\n  rate_limits:\n" + text.String()
		},
	} {
		for _, n := range []int{2000, 8000} {
			content := []byte(contentOf(n))
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if _, found := Parse("f", content); found.HasErrors() {
						b.Fatal(found)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/item")
			})
		}
	}
}
