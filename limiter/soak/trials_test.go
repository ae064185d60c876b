package soak

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A kind is a policy that trials run with.
type kind struct {
	name   string
	policy limiter.Policy
}

func kinds() []kind {
	const second, day = time.Second, 24 * time.Hour
	return []kind{
		{"fixed window", limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 50, Window: second}},
		{"sliding window", limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 50, Window: second, SubWindows: 10}},
		{"sliding window of 1", limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 50, Window: second, SubWindows: 1}},
		// A second is not divisible by seven.
		{"sliding window of 7", limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 50, Window: second, SubWindows: 7}},
		{"fixed window of the calendar", limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 50, Window: day, Calendar: limiter.NewCalendar(time.UTC, 1)}},
		{"sliding window of the calendar", limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 50, Window: day, SubWindows: 10, Calendar: limiter.NewCalendar(time.UTC, 1)}},
		{"sliding log", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 50, Window: second}},
		{"token bucket", limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 100, Window: second, Burst: 20}},
		{"token bucket, 7 a second", limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 7, Window: second, Burst: 3}},
		{"token bucket, 3M a second", limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 3_000_000, Window: second, Burst: 100}},
		{"leaky bucket", limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 100, Window: second, Slack: 10}},
	}
}

// delaying is a leaky bucket that delays calls.
func delaying() kind {
	return kind{"leaky bucket with delays", limiter.Policy{
		Algorithm: limiter.LeakyBucket, Limit: 100, Window: time.Second, Slack: 2,
		MaxWait: 200 * time.Millisecond, MaxWaiting: 15,
	}}
}

func everyKind() []kind { return append(kinds(), delaying()) }

func trials() []trial {
	var all []trial
	add := func(name string, k kind, run func(*round)) {
		all = append(all, trial{name: name + ": " + k.name, policy: k.policy, run: run})
	}
	for _, k := range everyKind() {
		// With windows of a day, late callers would be hours late, as if the clock had been set
		// back.
		if k.policy.Calendar == nil {
			add("reclaim storm", k, reclaimStorm)
			add("saturated", k, saturate)
		}
		add("flood", k, flood)
		add("refunds", k, refunds)
		small := k
		small.policy.Limit, small.policy.Burst, small.policy.Slack, small.policy.MaxWaiting = 4, 4, 3, 0
		add("groups", small, groups)
		if k.policy.Calendar == nil {
			add("groups in time", small, passingGroups)
		}
	}
	add("waiting", delaying(), waiting)
	add("leases", kind{name: "concurrency of changing limits", policy: *atOnce()[0]}, leases)
	return append(all, trial{name: "real time: all kinds", run: realTime})
}
