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
