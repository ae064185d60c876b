package quota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

// TestQueuedAssignmentsEndWithTheirLimit changes the limit of a bucket while assignments of the old one wait to be taken: none of
// them is taken after the change, and lower ones are there at once, also if the bucket has so many holders that its divisions are
// paced.
func TestQueuedAssignmentsEndWithTheirLimit(t *testing.T) {
	limits := map[string]*quota.Limit{
		"100":       hundred,
		"20":        {Hits: 20, Window: time.Second},
		"allow all": {Strategy: quota.AllowAll},
		"deny all":  {Strategy: quota.DenyAll},
		"no rule":   nil,
	}
	for before, old := range limits {
		for after, limit := range limits {
			for _, holders := range []int{2, 8, 20} {
				if old == nil || old == limit {
					continue
				}
				testQueued(t, fmt.Sprintf("%s to %s, %d holders", before, after, holders), old, limit, holders)
			}
		}
	}
}

func testQueued(t *testing.T, name string, old, limit *quota.Limit, holders int) {
	t.Helper()
	const unlimited = 1 << 32
	r := newRig(quota.Options{Fresh: true})
	for h := range holders {
		r.first(quota.StreamID(h), 0, old)
	}
	r.pass(2 * time.Second)
	force := make([]int64, holders)
	take := func(h int) (kinds []quota.Kind) {
		for _, a := range r.told(quota.StreamID(h)) {
			if force[h] = int64(a.Rate); a.Kind == quota.AssignAllowAll {
				force[h] = unlimited
			}
			kinds = append(kinds, a.Kind)
		}
		return kinds
	}
	for h := range holders / 2 {
		take(h)
	}
	r.pass(5 * time.Second)
	for h := range holders { // so that the first half has a renewal to take, too
		r.report(quota.StreamID(h), 0, old, 100, 100, 5*time.Second)
	}
	r.pass(1500 * time.Millisecond)
	sum := func() (sum int64) {
		for h := range holders {
			sum += force[h]
		}
		return sum
	}
	had := sum()
	r.SetLimit(r.now, bucketOf(0), limit)
	for h := range holders {
		actions, seq, _ := r.TakeActions(r.now, quota.StreamID(h), nil, 9)
		r.Confirm(r.now, quota.StreamID(h), seq)
		if len(actions) > 0 {
			t.Errorf("%s: %d takes %+v of the old limit", name, h, actions)
		}
	}
	r.tick()
	for h := range holders / 2 {
		kinds := take(h)
		if lower := limit == nil || limit.Strategy == quota.DenyAll || limit.Hits == 20 || old.Strategy == quota.AllowAll; lower && len(kinds) == 0 {
			t.Errorf("%s: %d is told nothing at once", name, h)
		}
	}
	for range 4 {
		for h := range holders {
			take(h)
			most := unlimited * int64(holders)
			if limit != nil && limit.Strategy == quota.Divide {
				most = max(int64(limit.Hits)*3600, had)
			}
			if sum() > most {
				t.Fatalf("%s: %d is in force of %d", name, sum(), most)
			}
		}
		r.pass(time.Second)
	}
}
