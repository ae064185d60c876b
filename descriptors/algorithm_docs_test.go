package descriptors

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestAlgorithmDocs checks docs/algorithms.md: its rules load without warnings, each algorithm has
// an example, and the bytes per counter equal the limiter's.
func TestAlgorithmDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/algorithms.md")
	must.OK(t, err)
	used := map[limiter.Algorithm]bool{}
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.HasPrefix(block, "rate_limit") {
			continue // Envoy's configuration
		}
		s, ds := compile(t, Options{}, "domain: d\ndescriptors:\n- key: k\n  "+strings.ReplaceAll(block, "\n", "\n  "))
		if s == nil || len(ds) > 0 {
			t.Fatalf("%s gives %v", block, ds)
		}
		for _, l := range s.Limits {
			used[l.Policy.Algorithm] = true
		}
	}
	if len(used) != len(rules.AlgorithmNames()) {
		t.Errorf("the rules use %d algorithms, want %d", len(used), len(rules.AlgorithmNames()))
	}
	ring := func(k uint32) int {
		return limiter.CounterBytes(limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1, Window: time.Minute, SubWindows: k})
	}
	log := func(n uint32) int {
		return limiter.CounterBytes(limiter.Policy{Algorithm: limiter.SlidingLog, Limit: n, Window: time.Minute})
	}
	permits := func(n uint32) int {
		return limiter.CounterBytes(limiter.Policy{Algorithm: limiter.Concurrency, Limit: n, Window: time.Minute})
	}
	for _, want := range []string{
		fmt.Sprintf("32 + 8N, rounded up: %d for 5, %d for 10, %d for 100, %d for 4096", permits(5), permits(10), permits(100), permits(4096)),
		fmt.Sprintf("%d with 10 sub-windows, %d with 1, %d with 60", ring(10), ring(1), ring(60)),
		fmt.Sprintf("%d for 5, %d for 10, %d for 100, %d for 4096", log(5), log(10), log(100), log(4096)),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
