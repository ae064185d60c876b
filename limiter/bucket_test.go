package limiter

import (
	"math"
	"math/rand/v2"
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

func playSteps(t *testing.T, p Policy, steps []step) {
	t.Helper()
	prepared := p
	prepared.Prepare()
	for _, tt := range []struct {
		name   string
		p      *Policy
		decide decider
	}{
		{"not prepared", &p, inTable(newTable(t, MinBytes))},
		{"prepared", &prepared, inTable(newTable(t, MinBytes))},
	} {
		for i, s := range steps {
			want := Decision{
				Over: s.over, Denied: s.over, Before: s.before, Charged: s.charged, Wait: s.wait,
				Remaining: s.remaining, Reset: s.reset, RetryAfter: s.retry,
			}
			if got := tt.decide(s.now, Charge{Policy: tt.p, Hits: s.hits, Refund: s.refund}, time.Minute); got != want {
				t.Fatalf("%s: step %d: decision = %+v, want %+v", tt.name, i, got, want)
			}
		}
	}
}

func TestBuckets(t *testing.T) {
	const msec, day = time.Millisecond, 24 * time.Hour
	tests := []struct {
		name  string
		p     Policy
		steps []step
	}{
		{
			name: "token bucket of 60 a minute: one token a second",
			p:    Policy{Algorithm: TokenBucket, Limit: 60, Window: time.Minute, Burst: 60},
			steps: []step{
				{now: min1, hits: 60, charged: 60, reset: time.Minute},
				{now: min1, hits: 1, before: 60, over: true, reset: time.Second, retry: time.Second},
				{now: min1 + sec - 1, hits: 1, before: 60, over: true, reset: 1, retry: 1},
				{now: min1 + sec, before: 59, remaining: 1, reset: 59 * time.Second},
				{now: min1 + sec, hits: 1, before: 59, charged: 1, reset: time.Minute},
				{now: min1 + 31*sec, hits: 31, before: 30, over: true, reset: time.Second, retry: time.Second},
				{now: min1 + 31*sec, hits: 10, before: 30, charged: 10, remaining: 20, reset: 40 * time.Second},
				{now: min1 + 31*sec, hits: 61, before: 40, over: true, reset: time.Minute, retry: Never},
				{now: min1 * 9, remaining: 60, reset: 1},
			},
		},
		{
			name: "burst differs from rate",
			p:    Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 3},
			steps: []step{
				{now: 0, hits: 2, charged: 2, remaining: 1, reset: 200 * msec},
				{now: 50 * ms, hits: 1, before: 2, charged: 1, reset: 250 * msec},
				{now: 50 * ms, hits: 3, before: 3, over: true, reset: 250 * msec, retry: 250 * msec},
				{now: 0, hits: 1, before: 3, over: true, reset: 100 * msec, retry: 100 * msec}, // late hit
				{now: 300 * ms, hits: 3, charged: 3, reset: 300 * msec},
			},
		},
		{
			name: "interval that is not an integer number of units",
			p:    Policy{Algorithm: TokenBucket, Limit: 3, Window: time.Second, Burst: 3},
			steps: []step{
				{now: 0, hits: 1, charged: 1, remaining: 2, reset: 333_333_334},
				{now: 0, hits: 2, before: 1, charged: 2, reset: 1_000_000_002},
				{now: 333_333_333, hits: 1, before: 3, over: true, reset: 1, retry: 1},
				{now: 333_333_334, hits: 1, before: 2, charged: 1, reset: 1_000_000_002},
			},
		},
		{
			name: "interval below a nanosecond",
			p:    Policy{Algorithm: TokenBucket, Limit: 1 << 31, Window: time.Second, Burst: 1 << 31},
			steps: []step{
				{now: sec, hits: 1 << 31, charged: 1 << 31, reset: 1 << 30}, // 8/16 ns per hit
				{now: sec + 1, hits: 3, before: 1<<31 - 2, over: true, reset: 1, retry: 1},
				{now: sec + 1, hits: 1, before: 1<<31 - 2, charged: 1, remaining: 1, reset: 1 << 30},
				{now: 3 * sec, remaining: 1 << 31, reset: 1},
			},
		},
		{
			name: "debt", p: Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 5, CountRefused: true},
			steps: []step{
				{now: 0, hits: 4, charged: 4, remaining: 1, reset: 400 * msec},
				{now: 0, hits: 3, before: 4, charged: 3, over: true, reset: 500 * msec, retry: 500 * msec},
				{now: 0, before: 7, over: true, reset: 200 * msec, retry: 200 * msec},
				{now: 200 * ms, before: 5, reset: 500 * msec},
				{now: 200 * ms, hits: 100, before: 5, charged: 10, over: true, reset: time.Second, retry: Never},
				{now: 200 * ms, hits: 1, before: 15, over: true, reset: 1100 * msec, retry: 1100 * msec},
				{now: 200 * ms, hits: math.MaxUint64, before: 15, over: true, reset: time.Second, retry: Never},
				{now: 200 * ms, hits: 12, refund: true, before: 15, charged: 12, remaining: 2, reset: 300 * msec},
			},
		},
		{
			name: "refund", p: Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 5},
			steps: []step{
				{now: 0, hits: 2, refund: true, remaining: 5, reset: 1},
				{now: 0, hits: 4, charged: 4, remaining: 1, reset: 400 * msec},
				{now: 0, hits: 1, refund: true, before: 4, charged: 1, remaining: 2, reset: 300 * msec},
				{now: 250 * ms, hits: 2, refund: true, before: 1, charged: 1, remaining: 5, reset: 1},
				{now: 0, hits: math.MaxUint64, refund: true, before: 3, charged: 3, remaining: 5, reset: 1},
			},
		},
		{
			name: "limit 0", p: Policy{Algorithm: TokenBucket, Window: time.Second, Burst: 5, CountRefused: true},
			steps: []step{
				{now: 0, hits: 1, over: true, reset: time.Second, retry: Never},
				{now: 0, reset: 1},
				{now: 0, hits: 1, refund: true, reset: 1},
			},
		},
		{
			// At 45 ms the last start time was 0 and no slack is left. The next ten hits start at
			// 45, 45, 45, 45, 50, 60, ... 100 ms.
			name: "leaky bucket with slack",
			p: Policy{
				Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: 10,
				MaxWait: time.Second, MaxWaiting: 100,
			},
			steps: []step{
				{now: 0, hits: 11, charged: 11, remaining: 100, reset: 110 * msec},
				{now: 45 * ms, hits: 1, before: 7, charged: 1, remaining: 103, reset: 75 * msec},
				{now: 45 * ms, hits: 1, before: 8, charged: 1, remaining: 102, reset: 85 * msec},
				{now: 45 * ms, hits: 1, before: 9, charged: 1, remaining: 101, reset: 95 * msec},
				{now: 45 * ms, hits: 1, before: 10, charged: 1, remaining: 100, reset: 105 * msec},
				{now: 45 * ms, hits: 1, before: 11, charged: 1, wait: 5 * msec, remaining: 99, reset: 115 * msec},
				{now: 45 * ms, hits: 1, before: 12, charged: 1, wait: 15 * msec, remaining: 98, reset: 125 * msec},
				{now: 45 * ms, hits: 1, before: 13, charged: 1, wait: 25 * msec, remaining: 97, reset: 135 * msec},
				{now: 45 * ms, hits: 1, before: 14, charged: 1, wait: 35 * msec, remaining: 96, reset: 145 * msec},
				{now: 45 * ms, hits: 1, before: 15, charged: 1, wait: 45 * msec, remaining: 95, reset: 155 * msec},
				{now: 45 * ms, hits: 1, before: 16, charged: 1, wait: 55 * msec, remaining: 94, reset: 165 * msec},
			},
		},
		{
			name: "leaky bucket without slack: ten in a row, 10 ms apart",
			p: Policy{
				Algorithm: LeakyBucket, Limit: 100, Window: time.Second, MaxWait: time.Second, MaxWaiting: 9,
			},
			steps: []step{
				{now: 0, hits: 1, charged: 1, remaining: 9, reset: 10 * msec},
				{now: 0, hits: 1, before: 1, charged: 1, wait: 10 * msec, remaining: 8, reset: 20 * msec},
				{now: 0, hits: 1, before: 2, charged: 1, wait: 20 * msec, remaining: 7, reset: 30 * msec},
				{now: 0, hits: 6, before: 3, charged: 6, wait: 80 * msec, remaining: 1, reset: 90 * msec},
				{now: 0, hits: 1, before: 9, charged: 1, wait: 90 * msec, reset: 100 * msec},
				{now: 0, hits: 1, before: 10, over: true, retry: 10 * msec, reset: 10 * msec},
				{now: 0, before: 10, reset: 100 * msec},
				{now: 0, hits: 5, refund: true, before: 10, reset: 100 * msec}, // hits are delayed
				{now: 90*ms - 1, hits: 1, refund: true, before: 2, remaining: 8, reset: 10*msec + 1},
				{now: 90 * ms, hits: 1, refund: true, before: 1, charged: 1, remaining: 10, reset: 1},
			},
		},
		{
			name: "debt of a leaky bucket whose delays are longer than its window",
			p: Policy{
				Algorithm: LeakyBucket, Limit: 10, Window: time.Second, MaxWait: time.Minute, MaxWaiting: 600, CountRefused: true,
			},
			steps: []step{
				{now: 0, hits: 100_000, charged: 11, over: true, reset: time.Second, retry: Never},
				{now: 0, hits: 20, before: 11, charged: 20, wait: 3000 * msec, remaining: 570, reset: 3100 * msec},
				{now: 0, hits: 600, before: 31, over: true, retry: 3000 * msec, reset: 3000 * msec},
				{now: 3000 * ms, hits: 1, before: 1, charged: 1, wait: 100 * msec, remaining: 599, reset: 200 * msec},
			},
		},
		{
			name: "leaky bucket without delays",
			p:    Policy{Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: 1, MaxWaiting: 9},
			steps: []step{
				{now: 0, hits: 3, over: true, retry: Never, reset: time.Second},
				{now: 0, hits: 2, charged: 2, reset: 20 * msec},
				{now: 0, hits: 1, before: 2, over: true, retry: 10 * msec, reset: 10 * msec},
			},
		},
		{
			name: "longest wait", p: Policy{Algorithm: LeakyBucket, Limit: 1, Window: time.Second, MaxWait: 2500 * msec, MaxWaiting: 9},
			steps: []step{
				{now: 0, hits: 1, charged: 1, remaining: 2, reset: time.Second},
				{now: 0, hits: 2, before: 1, charged: 2, wait: 2 * time.Second, reset: 3 * time.Second},
				{now: 0, hits: 1, before: 3, over: true, retry: 500 * msec, reset: 500 * msec},
				{now: 500 * ms, hits: 1, before: 3, charged: 1, wait: 2500 * msec, reset: 3500 * msec},
				{now: 500 * ms, hits: 4, before: 4, over: true, retry: Never, reset: time.Second},
			},
		},
		{
			name: "the largest bucket", p: Policy{Algorithm: TokenBucket, Limit: 1, Window: time.Second, Burst: 1152921504, CountRefused: true},
			steps: []step{
				{now: 1_700_000_000 * sec, hits: 1152921504, charged: 1152921504, reset: 1152921504 * time.Second},
				{now: 1_700_000_000 * sec, hits: 9, before: 1152921504, charged: 1, over: true, reset: 10 * time.Second, retry: 10 * time.Second},
				{now: (1_700_000_000 - 3600) * sec, hits: 1, before: 1152921505 + 3600, over: true, reset: 3602 * time.Second, retry: 3602 * time.Second},
				{now: 2_852_921_504 * sec, hits: 1, before: 1, charged: 1, remaining: 1152921502, reset: 2 * time.Second},
			},
		},
		{
			name: "ten years", p: Policy{Algorithm: TokenBucket, Limit: 1, Window: MaxWindow, Burst: 3},
			steps: []step{
				{now: -sec, hits: 3, charged: 3, reset: 3 * MaxWindow},
				{now: -sec + 3*Time(MaxWindow) - 1, hits: 3, before: 1, over: true, retry: 1, reset: 1},
				{now: -sec + 3*Time(MaxWindow), hits: 3, charged: 3, reset: 3 * MaxWindow},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { playSteps(t, tt.p, tt.steps) })
	}
	_ = day
}

// TestDivideAtBoundaries checks the division by multiplication at the boundaries of every quotient.
func TestDivideAtBoundaries(t *testing.T) {
	const most = math.MaxInt64
	r := rand.New(rand.NewPCG(1, 2))
	check := func(n, step uint64) {
		k := bucket{step: ticks(step)}
		k.factor, k.shift = reciprocal(step)
		if got := k.divide(ticks(n)); got != n/step {
			t.Fatalf("%d over a step of %d = %d, want %d", n, step, got, n/step)
		}
	}
	for step := uint64(2); step < 300; step++ {
		for n := range uint64(3000) {
			check(n, step)
			check(most-n, step)
		}
	}
	for i := range 200_000 {
		step := max(2, r.Uint64()>>(2+r.IntN(62)))
		if i%2 == 0 {
			step = max(2, 1<<r.IntN(62)+uint64(r.IntN(3))-1)
		}
		q := r.Uint64() >> (1 + r.IntN(63)) / step
		for _, n := range []uint64{0, 1, step - 1, step, q * step, max(1, q*step) - 1, q*step + 1, q*step + step - 1, most, most / step * step, maxFull, 1 << 62} {
			check(min(n, most), step)
		}
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
