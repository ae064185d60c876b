package limiter

import (
	"testing"
	"time"
)

// A log's slot is its own until its newest hit has ceased to count, also if that hit
// took the short way.
func TestALogLivesAsLongAsItsNewestHit(t *testing.T) {
	p := &Policy{Algorithm: SlidingLog, Limit: 8, Window: time.Minute}
	p.Prepare()
	table, err := New(Options{Bytes: minBytes, Policies: []Policy{*p}})
	if err != nil {
		t.Fatal(err)
	}
	hit := func(now Time, n int) *Decision { return &decide(table, now, take(counterID(n), p)).Decisions[0] }
	hit(0, 0)
	if d := hit(min1-1, 0); d.Before != 1 {
		t.Fatalf("Before = %d at the second hit, want 1", d.Before)
	}
	for n := 1; n <= 1000; n++ { // most of them push each other out
		hit(min1, n)
	}
	if table.Stats().GivenUp == 0 {
		t.Fatal("nothing was given up: this is no flood")
	}
	if d := hit(min1, 0); d.Before != 1 || d.Remaining != 6 {
		t.Errorf("Before = %d, Remaining = %d after the flood, want 1 and 6: the second hit still counts", d.Before, d.Remaining)
	}
}
