package rulefile

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

func FuzzDefaults(f *testing.F) {
	const rules = "{domain: d, descriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 1, name: n}}, {key: b, value: c, rate_limit: {unit: second, requests_per_unit: 4294967295}}]}"
	for _, text := range []string{
		"{domain: d, all_or_nothing: true, max_counters: 5, defaults: [{rate_limit: {algorithm: sliding_window, sub_windows: 7}}]}",
		"{domain: '*', defaults: [{name: n, rate_limit: {algorithm: token_bucket, burst: 40}}]}\n---\n{domain: d}",
		"{domain: d, defaults: [{path: [{key: b, value: c}], rate_limit: {algorithm: leaky_bucket, slack: 3, max_wait: 1s, max_waiting: 1}}]}",
		"{domain: d, defaults: [{shadow_mode: true, detailed_metric: on, rate_limit: {penalty: [2m, 5m]}}, {name: n, rate_limit: {reserve: {p90: true, first: 1}}}]}",
		"{domain: d, defaults: [{path: [{key: a}], rate_limit: {unit_multiplier: 10, count_refused: no}}]}",
	} {
		f.Add([]byte(text))
	}
	configs, ds := Parse("rules.yaml", []byte(rules))
	if len(ds) > 0 {
		f.Fatal(ds)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		d, ds := ParseDefaults("f.yaml", content)
		if ds.HasErrors() == (d != nil) {
			t.Fatalf("ParseDefaults = %v and %v, want either defaults or errors", d, ds)
		}
		set, more := descriptors.Compile(configs, descriptors.Options{Defaults: d})
		if more.HasErrors() == (set != nil) {
			t.Fatalf("Compile = %v and %v, want either a set or errors", set, more)
		}
		for _, d := range append(ds, more...) {
			if d.Pos.File != "f.yaml" || d.Pos.Line < 1 || d.Pos.Col < 1 || d.Message == "" {
				t.Errorf("diagnostic %v has no position or message", d)
			}
		}
		if set == nil {
			return
		}
		for _, l := range set.Limits {
			if err := l.Policy.Validate(); err != nil {
				t.Errorf("%v: %v", l, err)
			}
		}
	})
}
