package limiter

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Worked examples that are not part of other tests. Times are relative to a full hour.
const hour0 = 472_222 * 3600 * sec

// decideOne decides one charge and returns the decision.
func decideOne(t *Table, now Time, p *Policy, hits uint64) Decision {
	return decide(t, now, Charge{ID: counterID(1), Policy: p, Hits: hits}).Decisions[0]
}

// admit charges n single hits, and returns how many were admitted.
func admit(t *Table, now Time, p *Policy, n int) int {
	admitted := 0
	for range n {
		if !decideOne(t, now, p, 1).Over {
			admitted++
		}
	}
	return admitted
}

// TestExampleEdge charges 150 hits at 1:50 and 150 at 2:10 with 200 a minute: a fixed window admits
// all hits; a sliding window denies the last 100 and admits again at 2:54.
func TestExampleEdge(t *testing.T) {
	fixed := Policy{Algorithm: FixedWindow, Limit: 200, Window: time.Minute}
	sliding := Policy{Algorithm: SlidingWindow, Limit: 200, Window: time.Minute, SubWindows: 10}
	for _, tt := range []struct {
		policy *Policy
		want   [4]int // at 1:50, 2:10, just before 2:54, 2:54
	}{
		{&fixed, [4]int{150, 150, 50, 0}},
		{&sliding, [4]int{150, 50, 0, 150}},
	} {
		tab := newTable(t, MinBytes)
		got := [4]int{
			admit(tab, hour0+110*sec, tt.policy, 150), admit(tab, hour0+130*sec, tt.policy, 150),
			admit(tab, hour0+174*sec-1, tt.policy, 150), admit(tab, hour0+174*sec, tt.policy, 150),
		}
		if got != tt.want {
			t.Errorf("algorithm %d admits %v, want %v", tt.policy.Algorithm, got, tt.want)
		}
	}
}

// TestExampleGreedy checks that a client that sends as many hits as possible gets N hits per
// window W plus a sub-window.
func TestExampleGreedy(t *testing.T) {
	for _, k := range []uint32{10, 60} {
		p := Policy{Algorithm: SlidingWindow, Limit: 100, Window: time.Minute, SubWindows: k}
		tab := newTable(t, MinBytes)
		part := 60 * sec / Time(k)
		var rounds []Time
		for now := hour0; now < hour0+Time(time.Hour); now += part {
			if admit(tab, now, &p, 101) == 100 {
				rounds = append(rounds, now)
			}
		}
		for i := range rounds[1:] {
			if got := rounds[i+1] - rounds[i]; got != 60*sec+part {
				t.Fatalf("%d sub-windows: %v between rounds, want %v", k, time.Duration(got), time.Duration(60*sec+part))
			}
		}
		if got, want := len(rounds), int(60*k/(k+1))+1; got != want {
			t.Errorf("%d sub-windows: %d rounds an hour, want %d", k, got, want)
		}
	}
}

// TestExampleCallers has a limit of 2 in 2 seconds and 100 callers at the same instant.
func TestExampleCallers(t *testing.T) {
	p := Policy{Algorithm: SlidingLog, Limit: 2, Window: 2 * time.Second}
	tab := newTable(t, MinBytes)
	for _, now := range []Time{hour0, hour0 + 2*sec} {
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { admitted.Add(int64(admit(tab, now, &p, 1))) })
		}
		callers.Wait()
		if got := admitted.Load(); got != 2 {
			t.Errorf("at %d: %d admitted, want 2", now-hour0, got)
		}
	}
}

// TestExampleMinuteAndDay has limits of 60 a minute and 10000 a day: the 61st call of a minute is
// not charged to the day.
func TestExampleMinuteAndDay(t *testing.T) {
	minute := Policy{Algorithm: TokenBucket, Limit: 60, Window: time.Minute, Burst: 60}
	day := Policy{Algorithm: FixedWindow, Limit: 10000, Window: 24 * time.Hour}
	tab := newTable(t, MinBytes)
	for i, n := range []uint64{60, 1, 1} {
		b := decide(tab, hour0, Charge{ID: counterID(1), Policy: &minute, Hits: n}, Charge{ID: counterID(2), Policy: &day, Hits: n})
		if b.Denied != (i > 0) || b.Decisions[1].Remaining != 9940 {
			t.Errorf("call %d: denied %v, %d left for the day, want %v and 9940", i, b.Denied, b.Decisions[1].Remaining, i > 0)
		}
	}
}

// TestExampleDebt has 10000 an hour with debt: with 1000 left, a response of 4000 leaves a debt of
// 3000, which takes 18 minutes.
func TestExampleDebt(t *testing.T) {
	p := Policy{Algorithm: TokenBucket, Limit: 10000, Window: time.Hour, Burst: 10000, CountRefused: true}
	tab := newTable(t, MinBytes)
	if d := decideOne(tab, hour0, &p, 9000); d.Remaining != 1000 {
		t.Errorf("first charge: %d left, want 1000", d.Remaining)
	}
	if d := decideOne(tab, hour0, &p, 4000); !d.Over || d.Charged != 4000 {
		t.Errorf("response: %+v, want Over and charged", d)
	}
	if d := decideOne(tab, hour0, &p, 0); !d.Over || d.RetryAfter != 18*time.Minute || d.Before != 13000 {
		t.Errorf("peek: %+v, want Over for 18m", d)
	}
	if d := decideOne(tab, hour0+Time(18*time.Minute), &p, 0); d.Over {
		t.Errorf("18 minutes later: %+v, want an admitted hit", d)
	}
}

// TestExampleBucketWindow checks that a bucket admits within a window one hit less than its
// capacity plus its limit: hits at the end belong to the next window.
func TestExampleBucketWindow(t *testing.T) {
	for _, tt := range []struct {
		policy Policy
		want   int
	}{
		{Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 10}, 19},
		{Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 1}, 10},
		{Policy{Algorithm: LeakyBucket, Limit: 10, Window: time.Second, Slack: 10}, 20},
		{Policy{Algorithm: LeakyBucket, Limit: 10, Window: time.Second}, 10},
	} {
		tab := newTable(t, MinBytes)
		got := 0
		for now := hour0; now < hour0+sec; now += ms {
			got += admit(tab, now, &tt.policy, 30)
		}
		if got != tt.want {
			t.Errorf("%+v: %d hits in a window, want %d", tt.policy, got, tt.want)
		}
	}
}

// TestExampleWaiting has a maximum delay of 50 ms at 10 ms each: at most 5 hits wait.
func TestExampleWaiting(t *testing.T) {
	p := Policy{
		Algorithm: LeakyBucket, Limit: 100, Window: time.Second,
		MaxWait: 50 * time.Millisecond, MaxWaiting: 100,
	}
	tab := newTable(t, MinBytes)
	var waits []time.Duration
	for range 10 {
		b := &Batch{Charges: []Charge{oneHit(counterID(1), &p)}, Budget: time.Minute}
		if tab.Decide(hour0, b); !b.Denied {
			waits = append(waits, b.Wait/time.Millisecond)
		}
	}
	if want := []time.Duration{0, 10, 20, 30, 40, 50}; !slices.Equal(waits, want) {
		t.Errorf("waits of %v ms, want %v", waits, want)
	}
}
