package format_test

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/server/live"
)

func TestShares(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	until := format.Time(at)
	for _, tt := range []struct {
		bucket live.QuotaBucket
		want   string
	}{
		{live.QuotaBucket{Holders: 1}, "1 Envoy, ..."},
		{
			live.QuotaBucket{Holders: 2, Shares: []live.QuotaShare{
				{Address: "10.0.0.5", Stream: 1, Share: 60, Demand: 90, Confirmed: true},
				{Stream: 2, Share: 18.5, Demand: 40},
			}},
			"2 Envoys, 10.0.0.5 has 60.0 of 90.0, stream 2 has 18.5 of 40.0 (unconfirmed)",
		},
		{
			live.QuotaBucket{Unconfirmed: 3, Lost: 20, LostUntil: &at, LearningUntil: &at},
			"0 Envoys, 3.0 not confirmed, 20.0 lost until " + until + ", learning until " + until,
		},
	} {
		if got := format.Shares(&tt.bucket); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.bucket, got, tt.want)
		}
	}
}
