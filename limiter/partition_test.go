package limiter

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

func ringOfTen(limit uint32) *Policy {
	return &Policy{Algorithm: SlidingWindow, Limit: limit, Window: time.Minute, SubWindows: 10}
}

func logOf(limit uint32) *Policy {
	return &Policy{Algorithm: SlidingLog, Limit: limit, Window: time.Minute}
}

func TestCounterBytes(t *testing.T) {
	for _, tt := range []struct {
		p    Policy
		want int
	}{
		{Policy{Algorithm: FixedWindow, Limit: 5}, 16},
		{Policy{Algorithm: TokenBucket, Limit: 5}, 16},
		{Policy{Algorithm: LeakyBucket, Limit: 5}, 16},
		{*ringOfTen(5), 72},
		{Policy{Algorithm: SlidingWindow, SubWindows: 1}, 48},
		{Policy{Algorithm: SlidingWindow, SubWindows: 60}, 32 + 30*8},
		{*logOf(0), 48},
		{*logOf(10), 112},
		{*logOf(33), 32 + 60*8},
		{*logOf(MaxLog), 32 + 8*MaxLog},
	} {
		if got := CounterBytes(tt.p); got != tt.want {
			t.Errorf("CounterBytes(%+v) = %d, want %d", tt.p, got, tt.want)
		}
	}
}

// TestBytesPerLiveCounter checks that a sliding window of ten needs at most 150 bytes, and a
// one-word counter 36, without evictions of live counters.
func TestBytesPerLiveCounter(t *testing.T) {
	const n = 200_000
	for _, tt := range []struct {
		p     *Policy
		bytes int64
	}{
		{perMinute(5), 36},
		{&Policy{Algorithm: TokenBucket, Limit: 5, Window: time.Minute, Burst: 5}, 36},
		{ringOfTen(5), 150},
	} {
		tab, err := New(Options{Bytes: n * tt.bytes})
		must.OK(t, err)
		b := &Batch{Charges: []Charge{{Policy: tt.p, Hits: 1}}}
		for i := range n {
			b.Charges[0].ID = counterID(i)
			tab.Decide(min1, b)
		}
		if s, live := tab.Stats(), tab.Live(min1); s.Evicted > 0 || live != n || s.Bytes > n*tt.bytes {
			t.Errorf("algorithm %d, %d bytes per counter: %d of %d counters are live, %+v", tt.p.Algorithm, tt.bytes, live, n, s)
		}
	}
}

func TestValidate(t *testing.T) {
	ok := []Policy{
		*perMinute(0), *ringOfTen(1), *logOf(MaxLog),
		{Algorithm: TokenBucket, Limit: 1, Window: time.Second, Burst: 1152921504},
		{Algorithm: TokenBucket, Limit: 0, Window: time.Second, Burst: 1<<32 - 1},
		{Algorithm: LeakyBucket, Limit: 1, Window: time.Second, Slack: 1152921503, MaxWait: time.Minute},
		{Algorithm: LeakyBucket, Limit: 1<<32 - 1, Window: MaxWindow, Slack: 1<<32 - 1},
	}
	for _, p := range ok {
		if err := p.Validate(); err != nil {
			t.Errorf("Validate(%+v) = %v", p, err)
		}
	}
	bad := map[string]Policy{
		"unknown algorithm 0": {Limit: 1, Window: time.Second},
		"window of 0s":        {Algorithm: FixedWindow},
		"window of 1.5":       {Algorithm: FixedWindow, Window: 1500 * time.Millisecond},
		"window of 876":       {Algorithm: FixedWindow, Window: MaxWindow + time.Second},
		"0 sub-windows":       {Algorithm: SlidingWindow, Window: time.Second},
		"61 sub-window":       {Algorithm: SlidingWindow, Window: time.Second, SubWindows: 61},
		"log of 4097":         *logOf(4097),
		"burst of 0":          {Algorithm: TokenBucket, Limit: 1, Window: time.Second},
		"must be at most 1152921504": {
			Algorithm: TokenBucket, Limit: 1, Window: time.Second, Burst: 1152921505,
		},
		"must be at most 1152921503": {
			Algorithm: LeakyBucket, Limit: 1, Window: time.Second, Slack: 1152921504,
		},
		"longest wait of 1m0.000000001s": {Algorithm: LeakyBucket, Limit: 1, Window: time.Second, MaxWait: time.Minute + 1},
	}
	for want, p := range bad {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate(%+v) = %v, want %q", p, err, want)
		}
	}
}

func TestCapacity(t *testing.T) {
	for _, tt := range []struct {
		p    Policy
		want uint64
	}{
		{*perMinute(7), 7},
		{*ringOfTen(7), 7},
		{Policy{Algorithm: TokenBucket, Limit: 7, Window: time.Second, Burst: 9}, 9},
		{Policy{Algorithm: TokenBucket, Limit: 0, Window: time.Second, Burst: 9}, 0},
		{Policy{Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: 3}, 4},
		{Policy{Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: 3, MaxWait: 50 * time.Millisecond, MaxWaiting: 100}, 9},
		{Policy{Algorithm: LeakyBucket, Limit: 100, Window: time.Second, MaxWait: time.Minute, MaxWaiting: 100}, 101},
	} {
		if got := tt.p.Capacity(); got != tt.want {
			t.Errorf("Capacity(%+v) = %d, want %d", tt.p, got, tt.want)
		}
	}
}

// reserve creates a partition with the given name, the only one of the table.
func reserve(tb testing.TB, tab *Table, name string, n int64) *Partition {
	tb.Helper()
	partitions, err := tab.Partitions(min1, map[string]int64{name: n})
	must.OK(tb, err)
	return partitions[name]
}

// inPartition charges a counter in a partition.
func inPartition(tab *Table, p *Partition, n int, policy *Policy, hits uint64) Decision {
	b := &Batch{Charges: []Charge{{ID: counterID(n), Policy: policy, Hits: hits}}, Partition: p}
	tab.Decide(min1, b)
	return b.Decisions[0]
}

// TestPartitions checks that counters of partitions are separate, and that a flood affects only its
// own.
func TestPartitions(t *testing.T) {
	tab := newTable(t, 1<<20)
	partitions, err := tab.Partitions(min1, map[string]int64{"a": 104, "b": 104, "c": 0})
	must.OK(t, err)
	a, b := partitions["a"], partitions["b"]
	if a == nil || b == nil || a == b || partitions["c"] != nil {
		t.Fatalf("Partitions() = %v", partitions)
	}
	for _, p := range []*Policy{perMinute(5), ringOfTen(5), logOf(2)} {
		if inPartition(tab, nil, 1, p, 1).Before+inPartition(tab, a, 1, p, 1).Before+inPartition(tab, b, 1, p, 1).Before != 0 {
			t.Errorf("algorithm %d: partitions share a counter", p.Algorithm)
		}
		before := tab.Live(min1)
		for n := range 1000 {
			inPartition(tab, a, 10+n, p, 1)
		}
		if got := tab.Live(min1) - before; got > 103 || got < 90 {
			t.Errorf("algorithm %d: %d more counters are live, want as many as the bound", p.Algorithm, got)
		}
		if d := inPartition(tab, b, 1, p, 1); d.Before != 1 {
			t.Errorf("algorithm %d: the flood affected another partition: %+v", p.Algorithm, d)
		}
	}
	if _, err := tab.Partitions(min1, map[string]int64{"a": 1 << 14, "b": 1<<14 + 1}); err == nil || !strings.Contains(err.Error(), "must not exceed 32768") {
		t.Errorf("bounds beyond half of the table: error %v", err)
	}
	if inPartition(tab, a, 1, perMinute(5), 0); a.slots.Load() != 104 {
		t.Error("a failed call changed a bound")
	}
}

// TestCountersDoNotChangePartition adds, changes and removes the bound of a name. A new partition is
// empty, and keeps its counters while its bound changes. Requests in flight during a change, which
// use the partition of the rules before, are decided there and affect no other counter.
func TestCountersDoNotChangePartition(t *testing.T) {
	for _, p := range []*Policy{perMinute(50), ringOfTen(50), logOf(50), {Algorithm: TokenBucket, Limit: 1, Window: time.Minute, Burst: 50}} {
		tab := newTable(t, 1<<20)
		partitions := []*Partition{nil} // nil is the common partition
		used := map[*Partition]uint64{}
		for _, bound := range []int64{0, 100, 1000, 40, 0, 0, 60, 0, 200} {
			partition := reserve(t, tab, "d", bound)
			if !slices.Contains(partitions, partition) {
				partitions = append(partitions, partition)
			}
			for range 2 {
				for _, in := range partitions {
					if got := inPartition(tab, in, 1, p, 1).Before; got != used[in] {
						t.Fatalf("algorithm %d, bound %d: %d used, want %d", p.Algorithm, bound, got, used[in])
					}
					used[in]++
				}
			}
			loaded := load(t, snapshot(t, tab, min1), 1<<20)
			if got := inPartition(loaded, reserve(t, loaded, "d", bound), 1, p, 0).Before; got != used[partition] {
				t.Errorf("algorithm %d, bound %d: a loaded table has used %d, want %d", p.Algorithm, bound, got, used[partition])
			}
		}
		if len(partitions) != 4 {
			t.Errorf("algorithm %d: %d partitions, want the common one and three new ones", p.Algorithm, len(partitions))
		}
		if s := tab.Stats(); s.Evicted > 0 || s.Used+tab.freeBytes.Load() != s.Bytes {
			t.Errorf("algorithm %d: %+v and %d spare, want none evicted", p.Algorithm, s, tab.freeBytes.Load())
		}
	}
}

// TestRemovedPartitionTakesNoMemory floods a partition that was removed: the budget of the table
// does not change.
func TestRemovedPartitionTakesNoMemory(t *testing.T) {
	tab := newTable(t, 1<<20)
	partition := reserve(t, tab, "d", 4000)
	for n := range 4000 {
		inPartition(tab, partition, n, ringOfTen(5), 1)
	}
	reserve(t, tab, "d", 0)
	if used := tab.Stats().Used; used != 0 {
		t.Errorf("%d bytes are used after the removal", used)
	}
	for n := range 20_000 {
		inPartition(tab, partition, n, ringOfTen(5), 1)
		inPartition(tab, partition, n, perMinute(5), 1)
	}
	if used := tab.Stats().Used; used != 0 {
		t.Errorf("%d bytes are used by a removed partition", used)
	}
	if saved := load(t, snapshot(t, tab, min1), 1<<20).Live(min1); saved != 0 {
		t.Errorf("a snapshot has %d counters of a removed partition", saved)
	}
}

// TestALowerBoundHolds checks that a lower bound evicts counters and frees their memory.
func TestALowerBoundHolds(t *testing.T) {
	tab := newTable(t, 1<<20)
	p := perMinute(5)
	partition := reserve(t, tab, "d", 10_000)
	for n := range 9_000 {
		inPartition(tab, partition, n, p, uint64(1+n%2))
	}
	reserve(t, tab, "d", 80)
	if live := tab.Live(min1); live > 80 || live < 60 {
		t.Errorf("%d counters are live, want nearly 80", live)
	}
	if used := tab.Stats().Used; used != 80*16 || tab.freeBytes.Load() != 1<<20-used {
		t.Errorf("%d bytes are used and %d spare", used, tab.freeBytes.Load())
	}
	kept := 0
	for n := range 9_000 {
		if inPartition(tab, partition, n, p, 0).Before == 2 {
			kept++
		}
	}
	if kept < 50 {
		t.Errorf("%d counters with more hits are left, want most", kept)
	}
}

// TestALowerBoundWaitsForWriters lowers a bound while a counter beyond it is being written.
func TestALowerBoundWaitsForWriters(t *testing.T) {
	tab := newTable(t, 1<<20)
	partition := reserve(t, tab, "d", 800)
	for n := range 500 {
		inPartition(tab, partition, n, ringOfTen(5), 1)
	}
	class := partition.class(ringOfTen(5))
	var held *slot
	for index := (class.inUse() - 1) * ways; held == nil; index++ {
		if s := class.slotAt(index); s.tag.Load() != 0 {
			held = s
		}
	}
	word := held.word.Load()
	held.word.Store(word | lockBit)
	done := make(chan struct{})
	go func() {
		reserve(t, tab, "d", 80)
		close(done)
	}()
	for range 100 {
		runtime.Gosched()
	}
	held.word.Store(word)
	<-done
	if n := class.inUse(); n != 10 {
		t.Errorf("%d blocks are in use, want 10", n)
	}
}

// TestReservedMemory checks that reserved memory is available when all memory is in use, and that a
// partition without a bound returns its memory.
func TestReservedMemory(t *testing.T) {
	tab := newTable(t, 1<<20)
	for n := range 100_000 {
		decide(tab, min1, oneHit(counterID(n), perMinute(5)))
	}
	partition := reserve(t, tab, "d", 4000)
	for n := range 3600 {
		inPartition(tab, partition, n, ringOfTen(5), 1)
	}
	lost := 0
	for n := range 3600 {
		if inPartition(tab, partition, n, ringOfTen(5), 0).Before != 1 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of 3600 counters with reserved memory were lost", lost)
	}
	reserve(t, tab, "d", 0)
	if len(tab.partitions) != 0 {
		t.Errorf("%d partitions, want none", len(tab.partitions))
	}
	if s := tab.Stats(); s.Used+tab.freeBytes.Load() != s.Bytes {
		t.Errorf("%+v and %d spare", s, tab.freeBytes.Load())
	}
}

// TestPinnedCountersSurviveAFlood checks that new counters with more hits do not evict pinned ones, with
// and without a partition of the domain, and that a snapshot contains them.
func TestPinnedCountersSurviveAFlood(t *testing.T) {
	tab := newTable(t, MinBytes)
	partitions, err := tab.Partitions(min1, map[string]int64{"d": 16})
	must.OK(t, err)
	window, bucket := *perMinute(5), Policy{Algorithm: TokenBucket, Limit: 60, Window: time.Minute, Burst: 5}
	pinned := []*Policy{&window, &bucket, ringOfTen(5), logOf(5)}
	for n, partition := range []*Partition{nil, partitions["d"]} {
		b := &Batch{Partition: partition, Charges: make([]Charge, 1)}
		charge := func(tab *Table, id int, p *Policy, hits uint64) uint64 {
			b.Charges[0] = Charge{ID: counterID(id), Policy: p, Hits: hits}
			tab.Decide(min1, b)
			return b.Decisions[0].Before
		}
		for i, p := range pinned {
			p.Pinned = true
			charge(tab, 10*n+i, p, 1)
		}
		for i := range 10_000 {
			for _, p := range pinned {
				own := *p
				own.Pinned = false
				charge(tab, 100+i, &own, 5)
			}
		}
		var saved bytes.Buffer
		_, err := tab.Save(&saved, min1)
		must.OK(t, err)
		loaded, _, err := Load(&saved, Options{Bytes: MinBytes})
		must.OK(t, err)
		for i, p := range pinned {
			if was, is := charge(tab, 10*n+i, p, 0), charge(loaded, 10*n+i, p, 0); was != 1 || is != 1 {
				t.Errorf("algorithm %d: %d hits after the flood, %d after a restart, want 1", p.Algorithm, was, is)
			}
		}
	}
}
