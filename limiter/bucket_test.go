package limiter

import (
	"testing"
	"time"
)

const ms = Time(time.Millisecond)

// A decider decides one charge on one counter, with the budget of a batch.
type decider func(now Time, c Charge, budget time.Duration) Decision

// inTable returns a decider for a counter of the table.
func inTable(t *Table) decider {
	return func(now Time, c Charge, budget time.Duration) Decision {
		b := &Batch{Charges: []Charge{c}, Budget: budget}
		b.Charges[0].ID = counterID(1)
		t.Decide(now, b)
		return b.Decisions[0]
	}
}

// TestPreparedPolicyIsCopied checks that a copy of a prepared policy may be changed.
func TestPreparedPolicyIsCopied(t *testing.T) {
	p := &Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Minute, Burst: 10}
	p.Prepare()
	q := *p
	q.Limit, q.Burst = 5, 3
	if got := q.Capacity(); got != 3 {
		t.Errorf("capacity of a changed copy = %d, want 3", got)
	}
	if got := p.Capacity(); got != 10 {
		t.Errorf("capacity = %d, want 10", got)
	}
	tab, id := newTable(t, MinBytes), counterID(1)
	decide(tab, 0, oneHit(id, p))
	if got, want := decide(tab, 0, oneHit(id, &q)).Decisions[0].Remaining, uint64(1); got != want {
		t.Errorf("the changed copy leaves %d hits after two, want %d", got, want)
	}
	q.Prepare()
	if got := q.Capacity(); got != 3 {
		t.Errorf("capacity of a copy that is prepared = %d, want 3", got)
	}
}

// TestBucketKeepsHitsWhenItsUnitChanges checks that a bucket keeps its level at any time if its
// limit and thereby its unit changes. The word also stores the unit of its number.
func TestBucketKeepsHitsWhenItsUnitChanges(t *testing.T) {
	coarse := &Policy{Algorithm: TokenBucket, Limit: 900_000, Window: time.Second, Burst: 900_000}
	fine := &Policy{Algorithm: TokenBucket, Limit: 1_800_000, Window: time.Second, Burst: 1_800_000}
	coarse.Prepare()
	fine.Prepare()
	if coarse.ready.bucket.unit == fine.ready.bucket.unit {
		t.Fatal("both limits have the same unit; the test needs different ones")
	}
	tab := newTable(t, MinBytes)
	for i := range 500 {
		now := Time(i) * Time(40*24*time.Hour)
		decide(tab, now, Charge{ID: counterID(2 * i), Policy: coarse, Hits: 450_000})
		if d := decide(tab, now, oneHit(counterID(2*i), fine)).Decisions[0]; d.Before < 890_000 || d.Before > 910_000 {
			t.Fatalf("at %d: the hits of half a second are %d at twice the rate, want about 900000", now, d.Before)
		}
		decide(tab, now, Charge{ID: counterID(2*i + 1), Policy: fine, Hits: 900_000})
		if d := decide(tab, now, oneHit(counterID(2*i+1), coarse)).Decisions[0]; d.Before < 440_000 || d.Before > 460_000 {
			t.Fatalf("at %d: the hits of half a second are %d at half the rate, want about 450000", now, d.Before)
		}
	}
}
