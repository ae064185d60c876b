package limiter

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A group of two is decided as it is beside a third charge that changes nothing,
// which keeps it from the short path.
func TestPairIsGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var policies []*Policy
	for _, p := range []Policy{
		{Algorithm: FixedWindow, Limit: 4, Window: time.Second},
		{Algorithm: FixedWindow, Limit: 4, Window: time.Second, CountRefused: true},
		{Algorithm: SlidingWindow, Limit: 4, Window: time.Second, SubWindows: 4},
		{Algorithm: SlidingLog, Limit: 4, Window: time.Second},
		{Algorithm: TokenBucket, Limit: 4, Window: time.Second, Burst: 4},
		{Algorithm: LeakyBucket, Limit: 4, Window: time.Second, Slack: 3},
		{Algorithm: LeakyBucket, Limit: 4, Window: time.Second, Slack: 1, MaxWait: time.Second, MaxWaiting: 2},
	} {
		p.Prepare() // where it is; the copy below is not
		q := p
		q.Prepare()
		policies = append(policies, &p, &q)
	}
	modes := []Mode{Enforce, Enforce, Shadow, Quota}
	short, long := newTable(t, 1<<20), newTable(t, 1<<20)
	now, admitted := benchNow, 0
	for n := range 20_000 {
		now += Time(r.IntN(int(80 * time.Millisecond)))
		var charges []Charge
		for range 2 {
			i := r.IntN(len(policies))
			charges = append(charges, Charge{
				ID: counterID(i/2 + 10*r.IntN(2)), Policy: policies[i], Hits: uint64(r.IntN(3)), Mode: modes[r.IntN(len(modes))],
			})
		}
		pair := &Batch{Charges: charges, Budget: time.Minute}
		idle := Charge{ID: counterID(99), Policy: perDay(1), Mode: Shadow}
		three := &Batch{Charges: append(slices.Clone(charges), idle), Budget: time.Minute}
		short.Decide(now, pair)
		long.Decide(now, three)
		if got, want := pair.Decisions, three.Decisions[:2]; !slices.Equal(got, want) || pair.Denied != three.Denied || pair.Wait != three.Wait {
			t.Fatalf("step %d: %+v\n and %+v:\n got %+v\nwant %+v", n, *charges[0].Policy, *charges[1].Policy, got, want)
		}
		if !pair.Denied {
			admitted++
		}
	}
	if admitted < 2000 || admitted > 18_000 {
		t.Errorf("%d pairs admitted of 20000, want some and not all", admitted)
	}
}
