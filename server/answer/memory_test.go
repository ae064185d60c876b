package answer

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestMemoryPerRule bounds the heap that a rule uses permanently, for the tree, the data for
// requests, and metrics, to a kilobyte.
func TestMemoryPerRule(t *testing.T) {
	effort.Require(t, effort.More)
	const n = 20_000
	for _, tt := range []struct {
		name, rule string // %[1]d is the rule's number
	}{
		{"a value", "  - {key: user, value: customer-%06[1]d, rate_limit: {unit: minute, requests_per_unit: %[1]d}}\n"},
		{"a name", "  - {key: user, value: customer-%06[1]d, rate_limit: {name: limit-of-%06[1]d, unit: minute, requests_per_unit: 5}}\n"},
		{"shadow mode and a bucket", "  - {key: user, value: customer-%06[1]d, shadow_mode: true, rate_limit: {algorithm: token_bucket, unit: minute, requests_per_unit: 5}}\n"},
		{"its own branch of two levels", "  - {key: user, value: customer-%06[1]d, descriptors: [{key: path, value: /search, rate_limit: {unit: minute, requests_per_unit: 5}}]}\n"},
		{"detailed metrics", "  - {key: user-%06[1]d, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 5}}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := bytes.NewBufferString("domain: d\ndescriptors:\n")
			for i := range n {
				fmt.Fprintf(text, tt.rule, i)
			}
			metrics, err := telemetry.New(telemetry.Options{})
			if err != nil {
				t.Fatal(err)
			}
			table, err := limiter.New(limiter.Options{Bytes: limiter.MinBytes})
			if err != nil {
				t.Fatal(err)
			}
			s := NewService(Settings{}, table, metrics)
			before := liveHeap()
			configs, found := rulefile.Parse("rules.yaml", text.Bytes())
			set, ds := descriptors.Build(configs, found, nil, descriptors.Options{})
			if err := ds.Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.SetRules(0, set); err != nil {
				t.Fatal(err)
			}
			after := liveHeap()
			got := float64(after-before) / n
			t.Logf("%.0f bytes a rule", got)
			if got > 1000 {
				t.Errorf("a rule with %s takes %.0f bytes, want at most 1000", tt.name, got)
			}
			runtime.KeepAlive(s)
			runtime.KeepAlive(text)
		})
	}
}

// liveHeap returns the bytes of all reachable objects.
func liveHeap() int64 {
	var m runtime.MemStats
	// The second collection frees the objects that the first one removed from pools.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
