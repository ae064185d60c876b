package filter_test

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
)

const second = time.Second

// TestBucket applies all kinds of actions to a bucket. e2e/quota applies the same steps to a real
// Envoy.
func TestBucket(t *testing.T) {
	tokenBucket := func(rate division.Rate, maxTokens uint32) *division.Action {
		return &division.Action{Kind: division.Assign, Rate: rate, MaxTokens: maxTokens, TTL: 12 * second}
	}
	var b filter.Bucket
	b.Apply(0, tokenBucket(0, 5))
	if b.Active(0) || b.Known {
		t.Fatalf("a bucket without requests is assigned %+v", b)
	}
	b.Start(0)
	for _, step := range []struct {
		name     string
		at       time.Duration
		action   *division.Action
		requests uint64
		deny     bool // whether requests without an assignment are denied
		want     uint64
	}{
		{name: "no assignment, ALLOW_ALL", at: 0, requests: 3, want: 3},
		{name: "no assignment, DENY_ALL", at: 0, requests: 3, deny: true, want: 0},
		{name: "the first token bucket is full", at: second, action: tokenBucket(0, 20), requests: 30, want: 20},
		{name: "a token bucket that replaces an empty one is empty", at: second, action: tokenBucket(0, 8), requests: 9, want: 0},
		{name: "DENY_ALL", at: second, action: &division.Action{Kind: division.AssignDenyAll, TTL: 12 * second}, requests: 5, want: 0},
		{name: "a token bucket that replaces a blanket rule is full", at: second, action: tokenBucket(0, 20), requests: 5, want: 5},
		{name: "a token bucket that replaces one with 15 of 20 tokens has 6 of 8", at: second, action: tokenBucket(0, 8), requests: 9, want: 6},
		{name: "ALLOW_ALL", at: second, action: &division.Action{Kind: division.AssignAllowAll, TTL: 12 * second}, requests: 500, want: 500},
		{name: "a full token bucket", at: second, action: tokenBucket(3600, 4), requests: 4, want: 4},
		{name: "two seconds at one token per second", at: 3 * second, requests: 4, want: 2},
		{name: "half a token", at: 3500 * time.Millisecond, requests: 4, want: 0},
		{name: "the other half", at: 4 * second, requests: 4, want: 1},
		{name: "refilled to its capacity", at: 12 * second, requests: 9, want: 4},
		{name: "expired, ALLOW_ALL", at: 13 * second, requests: 9, want: 9},
		{name: "a token bucket that replaces an expired one is full", at: 20 * second, action: tokenBucket(0, 8), requests: 9, want: 8},
	} {
		if step.action != nil {
			b.Apply(step.at, step.action)
		}
		if got := b.Admit(step.at, step.requests, !step.deny); got != step.want {
			t.Fatalf("%s: %d of %d requests are allowed, want %d", step.name, got, step.requests, step.want)
		}
	}
	r := b.TakeReport(20*second + 900*time.Millisecond)
	if r.Allowed != 562 || r.Denied != 45 || r.Elapsed != 20*second {
		t.Errorf("the report is %+v", r)
	}
	if r = b.TakeReport(21 * second); r.Allowed+r.Denied != 0 || r.Elapsed != 0 {
		t.Errorf("the report after that is %+v", r)
	}
	if b.Apply(21*second, &division.Action{Kind: division.Abandon}); b != (filter.Bucket{}) {
		t.Errorf("an abandoned bucket is %+v", b)
	}
}
