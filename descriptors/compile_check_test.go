package descriptors

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

func TestCompileChecksFieldRanges(t *testing.T) {
	hour := rules.Limit{Unit: rules.Hour, UnitMultiplier: 1, RequestsPerUnit: 1}
	for _, tc := range []struct {
		change func(l *rules.Limit)
		want   string
	}{
		{func(l *rules.Limit) { l.Algorithm = limiter.Algorithms }, fmt.Sprintf("unknown algorithm %d", limiter.Algorithms)},
		{func(l *rules.Limit) { l.Burst = new(uint32(1)) }, `"burst" is not supported by algorithm fixed_window`},
		{func(l *rules.Limit) { l.Algorithm, l.Burst = limiter.TokenBucket, new(uint32(math.MaxUint32)) }, `"burst" is 4294967295`},
		{func(l *rules.Limit) { l.Algorithm, l.Burst = limiter.TokenBucket, new(uint32(0)) }, "burst of 0"},
		{func(l *rules.Limit) { l.Algorithm, l.Slack = limiter.LeakyBucket, new(uint32(math.MaxUint32)) }, `"slack" is 4294967295`},
		{func(l *rules.Limit) { l.Algorithm, l.MaxWait = limiter.LeakyBucket, new(2*time.Minute) }, `"max_wait" must be from 0s to 1m`},
		{func(l *rules.Limit) { l.Algorithm, l.MaxWait = limiter.LeakyBucket, new(-time.Second) }, `"max_wait" must be from 0s to 1m`},
		{func(l *rules.Limit) { l.Algorithm, l.RequestsPerUnit = limiter.SlidingLog, 5000 }, "at most 4096"},
		{func(l *rules.Limit) { l.Algorithm, l.SubWindows = limiter.SlidingWindow, new(uint32(0)) }, "sub-windows: must be 1 to 60"},
		{func(l *rules.Limit) { l.Algorithm, l.SubWindows = limiter.SlidingWindow, new(uint32(61)) }, "sub-windows: must be 1 to 60"},
	} {
		l := hour
		tc.change(&l)
		s, ds := Compile([]rules.Config{{Domain: "d", Descriptors: []rules.Descriptor{{Key: "k", RateLimits: []rules.Limit{l}}}}}, Options{})
		if s != nil || len(ds) != 1 || !strings.Contains(ds[0].String(), tc.want) {
			t.Errorf("Compile(%+v) = %v, %v, want %q", l, s, ds, tc.want)
		}
	}
}
