package division_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// TestLimitChangeWithdrawsQueued changes the limit of a bucket while assignments of the old one are
// queued. None of them can be taken after the change, and lower ones are queued at once, even for a
// bucket with so many streams that it is divided less often.
func TestLimitChangeWithdrawsQueued(t *testing.T) {
	limits := map[string]*division.Limit{
		"100":       hundred,
		"20":        {Hits: 20, Window: time.Second},
		"allow all": {Strategy: division.AllowAll},
		"deny all":  {Strategy: division.DenyAll},
		"no rule":   nil,
	}
	for before, old := range limits {
		for after, limit := range limits {
			for _, streams := range []int{2, 8, 20} {
				if old == nil || old == limit {
					continue
				}
				testLimitChange(t, fmt.Sprintf("%s to %s, %d streams", before, after, streams), old, limit, streams)
			}
		}
	}
}

func testLimitChange(t *testing.T, name string, old, limit *division.Limit, streams int) {
	t.Helper()
	const unlimited = 1 << 32
	r := newRig(division.Options{Fresh: true})
	for stream := range streams {
		r.reportFirst(division.StreamID(stream), 0, old)
	}
	r.advance(2 * time.Second)
	inEffect := make([]int64, streams)
	takeActions := func(stream int) (kinds []division.Kind) {
		for _, a := range r.takeAndConfirm(division.StreamID(stream)) {
			if inEffect[stream] = int64(a.Rate); a.Kind == division.AssignAllowAll {
				inEffect[stream] = unlimited
			}
			kinds = append(kinds, a.Kind)
		}
		return kinds
	}
	for stream := range streams / 2 {
		takeActions(stream)
	}
	r.advance(5 * time.Second)
	for stream := range streams { // queues renewals for the first half
		r.report(division.StreamID(stream), 0, old, 100, 100, 5*time.Second)
	}
	r.advance(1500 * time.Millisecond)
	sum := func() (sum int64) { // of the rates in effect
		for stream := range streams {
			sum += inEffect[stream]
		}
		return sum
	}
	before := sum()
	r.SetLimit(r.now, bucketOf(0), limit)
	for stream := range streams {
		actions, seq, _ := r.TakeActions(r.now, division.StreamID(stream), nil, 9)
		r.Confirm(r.now, division.StreamID(stream), seq)
		if len(actions) > 0 {
			t.Errorf("%s: stream %d takes %+v, which belongs to the old limit", name, stream, actions)
		}
	}
	r.tick()
	for stream := range streams / 2 {
		kinds := takeActions(stream)
		if lower := limit == nil || limit.Strategy == division.DenyAll || limit.Hits == 20 || old.Strategy == division.AllowAll; lower && len(kinds) == 0 {
			t.Errorf("%s: stream %d has no action at once", name, stream)
		}
	}
	for range 4 {
		for stream := range streams {
			takeActions(stream)
			maxRate := unlimited * int64(streams)
			if limit != nil && limit.Strategy == division.Divide {
				maxRate = max(int64(limit.Hits)*3600, before)
			}
			if sum() > maxRate {
				t.Fatalf("%s: the rates in effect are %d, want at most %d", name, sum(), maxRate)
			}
		}
		r.advance(time.Second)
	}
}

// TestLimitIsLoweredSlightly lowers a limit by less than what justifies a message in other cases, while
// the rates of some Envoys are not confirmed. The sum is at most the new limit at once.
func TestLimitIsLoweredSlightly(t *testing.T) {
	for seed := range uint64(200) {
		random, r, rates := rand.New(rand.NewPCG(seed, 0)), newRig(division.Options{Fresh: true}), make([]int64, 3)
		take := func(stream int, confirms bool) {
			actions, seq, _ := r.TakeActions(r.now, division.StreamID(stream), nil, 9)
			if len(actions) > 0 {
				rates[stream] = int64(actions[0].Rate)
			}
			if confirms {
				r.Confirm(r.now, division.StreamID(stream), seq)
				r.tick()
			}
		}
		for range 5 {
			for stream := range rates {
				r.report(division.StreamID(stream), 0, hundred, 50+random.Uint64N(100), random.Uint64N(300), 5*time.Second)
				take(stream, random.IntN(2) == 0)
			}
			r.advance(time.Second)
		}
		r.SetLimit(r.now, bucketOf(0), &division.Limit{Hits: 98, Window: time.Second, Burst: 100 * time.Millisecond})
		r.tick()
		for stream := range rates {
			take(stream, true)
		}
		if sum := rates[0] + rates[1] + rates[2]; sum > 98*3600 {
			t.Errorf("seed %d: the rates are %v, the sum is %d, want at most %d", seed, rates, sum, 98*3600)
		}
	}
}
