package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// TestSumsSaturate simulates requests of 2^64-1 hits each. Sums saturate, and every form of the
// report can be written.
func TestSumsSaturate(t *testing.T) {
	for _, hits := range []uint64{math.MaxUint64, math.MaxUint64 - 1, 1 << 63, math.MaxUint64 / 7} {
		var log strings.Builder
		for i := range 12 {
			fmt.Fprintf(&log, `{"time":%q,"status":429,"domain":"shop","descriptors":[{"entries":[["user","u%d"]],"hits":%d}]}`+"\n",
				noon.Add(time.Duration(i)*20*time.Second).Format(time.RFC3339Nano), i%2, hits)
		}
		found := simulateUsers(t, func(o *Options) {
			o.Format, o.Templates, o.Recommend = "requests", nil, 90
		}, logOf("log", log.String()))
		for _, counts := range found.Rules.Limits {
			total := uint64(0)
			for _, bin := range counts.Timeline {
				if total = max(total, bin.Hits); bin.Over > bin.Hits {
					t.Errorf("%d hits: a bin has %d of %d hits over", hits, bin.Over, bin.Hits)
				}
			}
			if counts.Hits != math.MaxUint64 || counts.Over != math.MaxUint64 || total < hits {
				t.Errorf("%d hits each: the totals are %d hits, %d over and %d in a bin, want 2^64-1", hits, counts.Hits, counts.Over, total)
			}
			if counts.Used.Max < 1e15 || counts.Recommended == nil || !strings.Contains(counts.Recommended.Reason, "no limit admits") {
				t.Errorf("%d hits: used %v of the limit, recommended %+v", hits, counts.Used.Max, counts.Recommended)
			}
			for _, k := range counts.TopKeys {
				if k.Hits != math.MaxUint64 && hits > 1<<62 || k.Over != k.Hits || k.Peak < 1e15 {
					t.Errorf("%d hits: key %+v", hits, k)
				}
			}
		}
		writeAll(t, found)
	}
}

func writeAll(t *testing.T, r *report.Report) {
	t.Helper()
	var text, page strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Error(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if n := page.Len(); n > 1<<20 {
		t.Errorf("the page has %d bytes", n)
	}
}
