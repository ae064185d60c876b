package rules

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

func TestRateText(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		window time.Duration
		want   string
	}{
		{time.Second, "7/second"},
		{90 * time.Second, "7/90second"},
		{10 * time.Minute, "7/10minute"},
		{time.Hour, "7/hour"},
		{day, "7/day"},
		{7 * day, "7/week"},
		{14 * day, "7/2week"},
		{30 * day, "7/month"},
		{365 * day, "7/year"},
		{10 * 365 * day, "7/10year"},
	} {
		if got := RateText(&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 7, Window: tt.window, Burst: 1}); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.window, got, tt.want)
		}
	}
	if got := RateText(&limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1, Window: time.Hour}); got != "1 concurrent request" {
		t.Errorf("concurrency: %s", got)
	}
}
