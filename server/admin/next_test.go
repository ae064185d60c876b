package admin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// The next request of one hit is described by the limit that denies it longest; quotas deny together.
func TestNextRequest(t *testing.T) {
	window := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Hour}
	sliding := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 5, Window: time.Hour}
	bucket := &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 5, Window: time.Hour, Burst: 5}
	full := func(name string, seconds float64) CounterState {
		return CounterState{Name: name, Limit: "5/hour, burst: 5", Used: 5, Capacity: 5, ResetsIn: seconds}
	}
	free := CounterState{Name: "free", Used: 1, Capacity: 5, Remaining: 4}
	reserved := CounterState{Name: "reserved", Used: 3, Capacity: 5, Remaining: 2, Reserves: 3, ResetsIn: 60}
	over, penalised := full("debt", 100), full("penalised", 100)
	over.Over, penalised.Over, penalised.Penalty = true, true, 1
	early := penalised
	early.Used = 4
	type charge struct {
		mode   limiter.Mode
		policy *limiter.Policy
		state  CounterState
	}
	for name, tt := range map[string]struct {
		charges []charge
		want    NextRequest
	}{
		"room":                  {[]charge{{limiter.Enforce, window, free}}, NextRequest{}},
		"the longest":           {[]charge{{limiter.Enforce, window, full("a", 9)}, {limiter.Enforce, window, full("b", 14)}, {limiter.Enforce, window, free}}, NextRequest{Denied: true, By: "b", For: 14}},
		"in shadow mode":        {[]charge{{limiter.Shadow, window, full("a", 9)}}, NextRequest{}},
		"a bucket":              {[]charge{{limiter.Enforce, bucket, full("", 3500)}}, NextRequest{Denied: true, By: "5/hour", For: 620}},
		"a bucket with debt":    {[]charge{{limiter.Enforce, bucket, over}}, NextRequest{Denied: true, By: "debt", For: 820}},
		"a reservation":         {[]charge{{limiter.Enforce, window, reserved}}, NextRequest{Denied: true, By: "reserved", For: 60, AtMost: true}},
		"a sliding window":      {[]charge{{limiter.Enforce, sliding, full("a", 9)}}, NextRequest{Denied: true, By: "a", For: 9, AtMost: true}},
		"a penalty":             {[]charge{{limiter.Enforce, bucket, early}}, NextRequest{Denied: true, By: "penalised", For: 100}},
		"a penalty, and full":   {[]charge{{limiter.Enforce, bucket, penalised}}, NextRequest{Denied: true, By: "penalised"}},
		"one quota has room":    {[]charge{{limiter.Quota, window, full("a", 9)}, {limiter.Quota, window, free}}, NextRequest{}},
		"no quota has room":     {[]charge{{limiter.Quota, window, full("a", 9)}, {limiter.Quota, window, full("b", 14)}}, NextRequest{Denied: true, By: "a", For: 9}},
		"a quota and a limit":   {[]charge{{limiter.Quota, window, full("a", 9)}, {limiter.Enforce, window, full("b", 14)}}, NextRequest{Denied: true, By: "b", For: 14}},
		"a quota denies longer": {[]charge{{limiter.Quota, window, full("a", 19)}, {limiter.Enforce, window, full("b", 14)}}, NextRequest{Denied: true, By: "a", For: 19}},
	} {
		var b limiter.Batch
		var counters []CounterState
		for _, c := range tt.charges {
			b.Charges = append(b.Charges, limiter.Charge{Mode: c.mode, Policy: c.policy})
			counters = append(counters, c.state)
		}
		if diff := cmp.Diff(&tt.want, nextRequest(&b, counters)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
