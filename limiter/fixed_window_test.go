package limiter

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

const (
	sec  = Time(time.Second)
	min1 = 60 * sec
)

var testHasher = identity.Key{1, 2, 3}.Hasher()

// counterID returns the ID of the nth counter.
func counterID(n int) identity.ID {
	h := testHasher
	h.AddWord(uint64(n))
	return h.Sum()
}

func newTable(tb testing.TB, bytes int64) *Table {
	tb.Helper()
	t, err := New(Options{Bytes: bytes})
	must.OK(tb, err)
	t.nonces = testNonces
	return t
}

// testNonces is the nonce key of test tables.
var testNonces = nonceKey{0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93, 0x589965cc75374cc3}

// oneWord returns the size class of one-word counters.
func oneWord(t *Table) *sizeClass { return t.common.class(perMinute(1)) }

// decide decides a batch of the given charges.
func decide(t *Table, now Time, charges ...Charge) *Batch {
	b := &Batch{Charges: charges}
	t.Decide(now, b)
	return b
}

// A step is one charge on a counter and its expected decision.
type step struct {
	now    Time
	hits   uint64
	refund bool

	before, charged, remaining uint64
	over                       bool
	reset, retry, wait         time.Duration
}

func TestFixedWindow(t *testing.T) {
	const day = 24 * time.Hour
	const bigLimit, saturated = math.MaxUint32, uint64(maxWindowCount)
	tests := []struct {
		name  string
		p     Policy
		steps []step
	}{
		{
			// 150 hits at 1:50 and 150 at 2:10 are admitted, although they are within 20 s.
			name: "edge", p: Policy{Limit: 200, Window: time.Minute},
			steps: []step{
				{now: 110 * sec, hits: 150, charged: 150, remaining: 50, reset: 10 * time.Second},
				{now: 130 * sec, hits: 150, charged: 150, remaining: 50, reset: 50 * time.Second},
				{now: 130 * sec, hits: 51, before: 150, over: true, reset: 50 * time.Second, retry: 50 * time.Second},
				{now: 130 * sec, hits: 50, before: 150, charged: 50, reset: 50 * time.Second},
			},
		},
		{
			name: "last and first nanosecond", p: Policy{Limit: 1, Window: time.Minute},
			steps: []step{
				{now: 2*min1 - 1, hits: 1, charged: 1, reset: 1},
				{now: 2*min1 - 1, hits: 1, before: 1, over: true, reset: 1, retry: 1},
				{now: 2 * min1, hits: 1, charged: 1, reset: time.Minute},
			},
		},
		{
			name: "clock set back", p: Policy{Limit: 2, Window: time.Second},
			steps: []step{
				{now: 10 * sec, hits: 1, charged: 1, remaining: 1, reset: time.Second},
				{now: 9 * sec, hits: 1, before: 1, charged: 1, reset: 2 * time.Second},
				{now: 9*sec + 5, hits: 1, before: 2, over: true, reset: 2*time.Second - 5, retry: 2*time.Second - 5},
				{now: 10*sec + 1, hits: 1, before: 2, over: true, reset: time.Second - 1, retry: time.Second - 1},
				{now: 11 * sec, hits: 2, charged: 2, reset: time.Second},
			},
		},
		{
			// 1970-01-08 is a Thursday.
			name: "week", p: Policy{Limit: 9, Window: 7 * day},
			steps: []step{
				{now: 6 * Time(day), hits: 1, charged: 1, remaining: 8, reset: day},
				{now: 7 * Time(day), hits: 1, charged: 1, remaining: 8, reset: 7 * day},
			},
		},
		{
			name: "month", p: Policy{Limit: 9, Window: 30 * day},
			steps: []step{{now: 61 * Time(day), hits: 1, charged: 1, remaining: 8, reset: 29 * day}},
		},
		{
			name: "year", p: Policy{Limit: 9, Window: 365 * day},
			steps: []step{{now: 731*Time(day) + 1, hits: 1, charged: 1, remaining: 8, reset: 364*day - 1}},
		},
		{
			name: "ten years, past 2^31 seconds", p: Policy{Limit: 9, Window: MaxWindow},
			steps: []step{
				{now: 2_147_483_647 * sec, hits: 1, charged: 1, remaining: 8, reset: 60_036_353 * time.Second},
				{now: 2_207_519_999 * sec, hits: 1, before: 1, charged: 1, remaining: 7, reset: time.Second},
				{now: 2_207_520_000 * sec, hits: 1, charged: 1, remaining: 8, reset: MaxWindow},
			},
		},
		{
			name: "window of 7 s", p: Policy{Limit: 9, Window: 7 * time.Second},
			steps: []step{{now: 1_000_000 * sec, hits: 1, charged: 1, remaining: 8, reset: 6 * time.Second}},
		},
		{
			name: "before the epoch", p: Policy{Limit: 9, Window: time.Minute},
			steps: []step{
				{now: -1, hits: 2, charged: 2, remaining: 7, reset: 1},
				{now: -min1, hits: 1, before: 2, charged: 1, remaining: 6, reset: time.Minute},
				{now: 0, hits: 1, charged: 1, remaining: 8, reset: time.Minute},
			},
		},
		{
			name: "peek", p: Policy{Limit: 2, Window: time.Minute},
			steps: []step{
				{now: min1, remaining: 2, reset: time.Minute},
				{now: min1, hits: 1, charged: 1, remaining: 1, reset: time.Minute},
				{now: min1, before: 1, remaining: 1, reset: time.Minute},
				{now: min1, hits: 1, before: 1, charged: 1, reset: time.Minute},
				{now: min1, before: 2, reset: time.Minute}, // a full counter is not over
			},
		},
		{
			name: "peek beyond the limit", p: Policy{Limit: 2, Window: time.Minute, CountRefused: true},
			steps: []step{
				{now: min1, hits: 3, charged: 3, over: true, reset: time.Minute, retry: Never},
				{now: min1, before: 3, over: true, reset: time.Minute, retry: time.Minute},
			},
		},
		{
			name: "denied hits do not count", p: Policy{Limit: 10, Window: time.Minute},
			steps: []step{
				{now: min1, hits: 8, charged: 8, remaining: 2, reset: time.Minute},
				{now: min1, hits: 5, before: 8, over: true, reset: time.Minute, retry: time.Minute},
				{now: min1, hits: 2, before: 8, charged: 2, reset: time.Minute},
			},
		},
		{
			name: "denied hits count", p: Policy{Limit: 10, Window: time.Minute, CountRefused: true},
			steps: []step{
				{now: min1, hits: 8, charged: 8, remaining: 2, reset: time.Minute},
				{now: min1, hits: 5, before: 8, charged: 5, over: true, reset: time.Minute, retry: time.Minute},
				{now: min1, hits: 1, before: 13, charged: 1, over: true, reset: time.Minute, retry: time.Minute},
			},
		},
		{
			name: "limit 0", p: Policy{Limit: 0, Window: time.Minute},
			steps: []step{
				{now: min1, hits: 1, over: true, reset: time.Minute, retry: Never},
				{now: min1, reset: time.Minute},
			},
		},
		{
			name: "greatest limit", p: Policy{Limit: bigLimit, Window: time.Minute},
			steps: []step{
				{now: min1, hits: bigLimit - 1, charged: bigLimit - 1, remaining: 1, reset: time.Minute},
				{now: min1, hits: 2, before: bigLimit - 1, over: true, reset: time.Minute, retry: time.Minute},
				{now: min1, hits: 1, before: bigLimit - 1, charged: 1, reset: time.Minute},
				{now: min1, hits: math.MaxUint64, before: bigLimit, over: true, reset: time.Minute, retry: Never},
			},
		},
		{
			name: "count saturates", p: Policy{Limit: bigLimit, Window: time.Minute, CountRefused: true},
			steps: []step{
				{now: min1, hits: 5, charged: 5, remaining: bigLimit - 5, reset: time.Minute},
				{now: min1, hits: math.MaxUint64, before: 5, charged: saturated - 5, over: true, reset: time.Minute, retry: Never},
				{now: min1, hits: 1, before: saturated, over: true, reset: time.Minute, retry: time.Minute},
				{now: 2 * min1, hits: 1, charged: 1, remaining: bigLimit - 1, reset: time.Minute},
			},
		},
		{
			name: "refund", p: Policy{Limit: 10, Window: time.Minute},
			steps: []step{
				{now: min1, hits: 3, refund: true, remaining: 10, reset: time.Minute},
				{now: min1, hits: 10, charged: 10, reset: time.Minute},
				{now: min1, hits: 4, refund: true, before: 10, charged: 4, remaining: 4, reset: time.Minute},
				{now: min1, hits: 9, refund: true, before: 6, charged: 6, remaining: 10, reset: time.Minute},
				{now: min1, hits: 1, charged: 1, remaining: 9, reset: time.Minute},
				{now: 2 * min1, hits: 1, refund: true, remaining: 10, reset: time.Minute},
			},
		},
		{
			name: "refund beyond the limit", p: Policy{Limit: 10, Window: time.Minute, CountRefused: true},
			steps: []step{
				{now: min1, hits: 15, charged: 15, over: true, reset: time.Minute, retry: Never},
				{now: min1, hits: 2, refund: true, before: 15, charged: 2, reset: time.Minute},
				{now: min1, hits: math.MaxUint64, refund: true, before: 13, charged: 13, remaining: 10, reset: time.Minute},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.Algorithm = FixedWindow
			playSteps(t, tt.p, tt.steps)
		})
	}
}

// TestAbsurdTimes checks that Decide accepts times of any size.
func TestAbsurdTimes(t *testing.T) {
	times := []Time{0, math.MinInt64, math.MaxInt64, -1, math.MinInt64 + 1, 1, 1_700_000_000 * sec}
	for _, window := range []time.Duration{time.Second, time.Hour, MaxWindow} {
		for a := FixedWindow; a <= LeakyBucket; a++ {
			p := &Policy{Algorithm: a, Limit: 9, Window: window, SubWindows: 10, Burst: 9, Slack: 9}
			tab := newTable(t, MinBytes)
			for i, now := range times {
				for n := range 600 { // more than the table has slots, so slots are reused
					c := Charge{ID: counterID(n), Policy: p, Hits: 1}
					if d := decide(tab, now, c).Decisions[0]; d.Reset <= 0 || d.Over {
						t.Fatalf("algorithm %d, window %v, time %d (%d), counter %d: decision %+v", a, window, i, now, n, d)
					}
				}
			}
		}
	}
}

// TestInvalidPolicy checks that an invalid window or algorithm does not panic.
func TestInvalidPolicy(t *testing.T) {
	for a := range Algorithm(9) {
		for _, p := range []Policy{
			{Limit: math.MaxUint32},
			{Limit: 1, Window: -time.Hour},
			{Limit: 1, Window: time.Millisecond},
			{Limit: math.MaxUint32, Window: math.MaxInt64, SubWindows: 1 << 31, Burst: math.MaxUint32, Slack: math.MaxUint32},
			{Limit: 1, Window: MaxWindow, Burst: math.MaxUint32, Slack: math.MaxUint32, MaxWait: math.MaxInt64, MaxWaiting: math.MaxUint32},
		} {
			p.Algorithm = a
			tab := newTable(t, MinBytes)
			for _, hits := range []uint64{0, 1, 5000, math.MaxUint64} {
				decide(tab, min1, Charge{Policy: &p, Hits: hits})
				decide(tab, min1, Charge{Policy: &p, Hits: hits, Refund: true})
			}
			_ = p.Validate()
			_ = CounterBytes(p)
		}
	}
}

// TestNothingWritten checks that a charge that does not change a counter neither writes nor
// allocates a slot.
func TestNothingWritten(t *testing.T) {
	p := &Policy{Algorithm: FixedWindow, Limit: 2, Window: time.Minute}
	tab := newTable(t, MinBytes)
	decide(tab, min1, Charge{ID: counterID(1), Policy: p, Hits: 0})
	decide(tab, min1, Charge{ID: counterID(1), Policy: p, Hits: 3})
	decide(tab, min1, Charge{ID: counterID(1), Policy: p, Hits: 3, Refund: true})
	for i := range oneWord(tab).blocks {
		for j := range oneWord(tab).blocks[i] {
			if tag := oneWord(tab).blocks[i][j].tag.Load(); tag != 0 {
				t.Fatalf("bucket %d slot %d has tag %#x, want an empty table", i, j, tag)
			}
		}
	}

	decide(tab, min1, Charge{ID: counterID(1), Policy: p, Hits: 2})
	s, _ := oneWord(tab).find(tagOf(counterID(1), FixedWindow), counterID(1))
	word := s.word.Load()
	decide(tab, min1, Charge{ID: counterID(1), Policy: p, Hits: 1})
	decide(tab, 2*min1, Charge{ID: counterID(1), Policy: p, Hits: 0})
	decide(tab, 2*min1, Charge{ID: counterID(1), Policy: p, Hits: 3})
	if got := s.word.Load(); got != word {
		t.Errorf("word = %#x, want %#x", got, word)
	}
}
