package filter_test

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
)

const second = time.Second

// TestBucket has a bucket told all kinds of things. The same steps are played to a real Envoy by
// e2e/quota.
func TestBucket(t *testing.T) {
	tokens := func(rate quota.Rate, most uint32) *quota.Action {
		return &quota.Action{Kind: quota.Assign, Rate: rate, MaxTokens: most, TTL: 12 * second}
	}
	var b filter.Bucket
	b.Apply(0, tokens(0, 5))
	if b.Active(0) || b.Known {
		t.Fatalf("a bucket that has had no request was told something: %+v", b)
	}
	b.Start(0)
	for _, step := range []struct {
		at    time.Duration
		tell  *quota.Action
		n     uint64
		deny  bool // what acts where nothing is assigned
		want  uint64
		after string
	}{
		{at: 0, n: 3, want: 3, after: "nothing, with ALLOW_ALL"},
		{at: 0, n: 3, deny: true, want: 0, after: "nothing, with DENY_ALL"},
		{at: second, tell: tokens(0, 20), n: 30, want: 20, after: "the first token bucket, which is full"},
		{at: second, tell: tokens(0, 8), n: 9, want: 0, after: "an empty one, of which the next is as empty"},
		{at: second, tell: &quota.Action{Kind: quota.AssignDenyAll, TTL: 12 * second}, n: 5, want: 0, after: "DENY_ALL"},
		{at: second, tell: tokens(0, 20), n: 5, want: 5, after: "a token bucket after a blanket rule, which is full"},
		{at: second, tell: tokens(0, 8), n: 9, want: 6, after: "one of 15/20, of which the next has 6/8"},
		{at: second, tell: &quota.Action{Kind: quota.AssignAllowAll, TTL: 12 * second}, n: 500, want: 500, after: "ALLOW_ALL"},
		{at: second, tell: tokens(3600, 4), n: 4, want: 4, after: "a full one"},
		{at: 3 * second, n: 4, want: 2, after: "two seconds at one a second"},
		{at: 3500 * time.Millisecond, n: 4, want: 0, after: "half a token"},
		{at: 4 * second, n: 4, want: 1, after: "the other half"},
		{at: 12 * second, n: 9, want: 4, after: "more time than it takes to be full"},
		{at: 13 * second, n: 9, want: 9, after: "its end, with ALLOW_ALL"},
		{at: 20 * second, tell: tokens(0, 8), n: 9, want: 8, after: "a token bucket after another has ended"},
	} {
		if step.tell != nil {
			b.Apply(step.at, step.tell)
		}
		if got := b.Admit(step.at, step.n, !step.deny); got != step.want {
			t.Fatalf("after %s %d of %d requests pass, want %d", step.after, got, step.n, step.want)
		}
	}
	r := b.TakeReport(20*second + 900*time.Millisecond)
	if r.Allowed != 562 || r.Denied != 45 || r.Elapsed != 20*second {
		t.Errorf("it reports %+v", r)
	}
	if r = b.TakeReport(21 * second); r.Allowed+r.Denied != 0 || r.Elapsed != 0 {
		t.Errorf("then it reports %+v", r)
	}
	if b.Apply(21*second, &quota.Action{Kind: quota.Abandon}); b != (filter.Bucket{}) {
		t.Errorf("an abandoned bucket is %+v", b)
	}
}

var hundred = &quota.Limit{Hits: 100, Window: second, Burst: 100 * time.Millisecond}

// play has requests of a bucket come at each of n Envoys, every so often, and returns how many
// passed in each second.
func play(n int, every time.Duration, length time.Duration, limit *quota.Limit) (passed []int, f *filter.Fleet) {
	f = filter.NewFleet(n, true)
	passed = make([]int, length/second)
	for at := time.Duration(0); at < length; at += every {
		for i := range n {
			if f.Request(at, i, quota.Bucket{1}, limit) {
				passed[at/second]++
			}
		}
	}
	return passed, f
}

// TestFleetDivides has Envoys admit a limit together, once they have shares of it.
func TestFleetDivides(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		passed, f := play(n, 10*time.Millisecond, 30*second, hundred) // n times as much as the limit
		for i, got := range passed[10:] {
			if got < 97 || got > 103+n {
				t.Errorf("%d Envoys let %d pass in second %d, want 100", n, got, 10+i)
			}
		}
		if f.Buckets() != n || f.UnassignedAllowed() == 0 || f.UnassignedAllowed() > 50 {
			t.Errorf("%d Envoys know %d buckets, and let %d requests pass without a share", n, f.Buckets(), f.UnassignedAllowed())
		}
		again, _ := play(n, 10*time.Millisecond, 30*second, hundred)
		for i := range again {
			if again[i] != passed[i] {
				t.Fatalf("the same requests lead to %v and %v", passed, again)
			}
		}
	}
	for verdict, want := range map[quota.Strategy]int{quota.AllowAll: 200, quota.DenyAll: 0} {
		if passed, _ := play(2, 10*time.Millisecond, 20*second, &quota.Limit{Strategy: verdict}); passed[15] != want {
			t.Errorf("with verdict %d, %d pass in a second, want %d", verdict, passed[15], want)
		}
	}
}

// TestFleetDenies has requests denied that come before there is a share.
func TestFleetDenies(t *testing.T) {
	f := filter.NewFleet(1, false)
	for range 2 {
		if f.Request(0, 0, quota.Bucket{1}, hundred) {
			t.Error("a request passes before there is a share")
		}
	}
	if !f.Request(10*time.Millisecond, 0, quota.Bucket{1}, hundred) || f.UnassignedAllowed() != 0 {
		t.Errorf("none passes then, or %d did without a share", f.UnassignedAllowed())
	}
}

// TestFleetRemovesIdleBuckets has buckets without requests be abandoned, and years pass at once.
func TestFleetRemovesIdleBuckets(t *testing.T) {
	f := filter.NewFleet(3, true)
	for i := range 3 {
		for key := range uint64(100) {
			if !f.Request(second, i, quota.Bucket{key}, hundred) {
				t.Fatal("a first request does not pass")
			}
		}
	}
	if f.Buckets() != 300 {
		t.Fatalf("%d buckets are known, want 300", f.Buckets())
	}
	const year = 365 * 24 * time.Hour
	for at := year; at < 20*year; at += year {
		f.Request(at, 2, quota.Bucket{7}, hundred)
		if f.Buckets() != 1 {
			t.Fatalf("%d buckets are known a year later, want 1", f.Buckets())
		}
	}
}
