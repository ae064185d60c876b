package limiter

import (
	"strings"
	"testing"
	"time"
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

// The memory is divided by the policies that are expected; other sizes have the
// reserve, and room for 16 counters even if nothing is left.
func TestShares(t *testing.T) {
	const size = 16 << 20
	tab, err := New(Options{Bytes: size, Policies: []Policy{*perMinute(1), *ringOfTen(1), *ringOfTen(2), *logOf(100)}})
	if err != nil {
		t.Fatal(err)
	}
	bytes := func(p *Policy) int64 {
		if sc := tab.common.classes[p.class()].Load(); sc != nil {
			return sc.bytes()
		}
		return 0
	}
	near := func(got, want int64) bool { return got < want+want/50 && got > want-want/50 }
	const part = size / 8 * 7 / 4
	if a, b, c := bytes(perMinute(1)), bytes(ringOfTen(1)), bytes(logOf(100)); !near(a, part) || !near(b, 2*part) || !near(c, part) {
		t.Errorf("shares of %d, %d, %d bytes, want %d, %d, %d", a, b, c, part, 2*part, part)
	}
	s := tab.Stats()
	if s.Bytes != size {
		t.Errorf("Stats().Bytes = %d, want %d", s.Bytes, size)
	}
	if mapped := mapMemory(mapFrom) != nil; (s.Mapped > 0) != mapped {
		t.Errorf("Stats().Mapped = %d", s.Mapped)
	}
	for _, limit := range []uint32{16, 2, 8, 32, 64, 256, 512, 1024, 2048, MaxLog} {
		decide(tab, min1, take(counterID(1), logOf(limit)))
	}
	if got := bytes(logOf(16)); !near(got, size/16) {
		t.Errorf("the first late size has %d bytes, want half of the reserve", got)
	}
	if got := tab.Stats().Bytes; got > size+2*16*(32+8*MaxLog) {
		t.Errorf("Stats().Bytes = %d, want little over %d", got, size)
	}

	small := newTable(t, MinBytes)
	for n := range 16 {
		decide(small, min1, Charge{ID: counterID(n), Policy: logOf(MaxLog), Hits: 5})
	}
	if got := small.Live(min1); got < 8 {
		t.Errorf("%d long logs are live, want about 16", got)
	}
}

// A table that learns later what it counts is divided as one that knew at once,
// whatever it was divided for, and one that denies stays as it was.
func TestDivide(t *testing.T) {
	shares := func(tab *Table) (all [len(sizes)]int64) {
		for c := range all {
			if sc := tab.common.classes[c].Load(); sc != nil {
				all[c] = sc.bytes()
			}
		}
		return all
	}
	partitions := []int64{0, 1000}
	late := newTable(t, 16<<20)
	for _, policies := range [][]Policy{
		{*ringOfTen(1), *logOf(100)},
		{*perMinute(1), *ringOfTen(1), *ringOfTen(2), *logOf(5)},
		{*perMinute(1)},
		nil,
	} {
		early, err := New(Options{Bytes: 16 << 20, Policies: policies, Partitions: partitions})
		if err != nil {
			t.Fatal(err)
		}
		if err := late.Divide(policies, partitions); err != nil {
			t.Fatal(err)
		}
		if got, want := shares(late), shares(early); got != want {
			t.Errorf("shares of %v are %v, want %v", policies, got, want)
		}
		if got, want := late.Stats(), early.Stats(); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
		before := shares(late)
		if err := late.Divide(nil, []int64{1 << 20}); err == nil || shares(late) != before {
			t.Errorf("Divide with partitions of half the table = %v, want an error and no change", err)
		}
	}
	if decide(late, min1, take(counterID(1), ringOfTen(1))).Denied {
		t.Error("the first hit is denied")
	}
}

// A ring of ten takes at most 150 bytes, and a counter of one word 36, if none of
// the live ones is to be evicted.
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
		tab, err := New(Options{Bytes: n * tt.bytes, Policies: []Policy{*tt.p}})
		if err != nil {
			t.Fatal(err)
		}
		b := &Batch{Charges: []Charge{{Policy: tt.p, Hits: 1}}}
		for i := range n {
			b.Charges[0].ID = counterID(i)
			tab.Decide(min1, b)
		}
		if s, live := tab.Stats(), tab.Live(min1); s.Evicted > 0 || live != n || s.Bytes > n*tt.bytes {
			t.Errorf("algorithm %d, %d bytes a counter: %d live of %d, %+v", tt.p.Algorithm, tt.bytes, live, n, s)
		}
	}
}

func TestPartitions(t *testing.T) {
	tab := newTable(t, 1<<20)
	partition := func(name string, n int64) *Partition {
		t.Helper()
		s, err := tab.Partition(name, n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := partition("a", 0); s != nil {
		t.Errorf("Partition(0) = %v, want nil", s)
	}
	a, b := partition("a", 100), partition("b", 100)
	if a == b || partition("a", 100) != a {
		t.Error("partitions are mixed up")
	}
	for _, p := range []*Policy{perMinute(5), ringOfTen(5), logOf(2)} {
		hit := func(s *Partition, n int) Decision {
			batch := &Batch{Charges: []Charge{take(counterID(n), p)}, Partition: s}
			tab.Decide(min1, batch)
			return batch.Decisions[0]
		}
		common := decide(tab, min1, take(counterID(1), p)).Decisions[0]
		if inA, inB := hit(a, 1), hit(b, 1); common.Before != 0 || inA.Before != 0 || inB.Before != 0 {
			t.Errorf("algorithm %d: partitions share a counter", p.Algorithm)
		}
		live := func() int64 { return tab.Live(min1) }
		before := live()
		for n := range 1000 { // a flood in a
			hit(a, 10+n)
		}
		if got := live() - before; got > 99 || got < 90 {
			t.Errorf("algorithm %d: %d counters more are live, want as many as the bound", p.Algorithm, got)
		}
		if d := hit(b, 1); d.Before != 1 {
			t.Errorf("algorithm %d: the flood reached another partition: %+v", p.Algorithm, d)
		}
	}
	again := partition("a", 50)
	if again == a {
		t.Error("a partition whose bound changed is the old one")
	}
	batch := &Batch{Charges: []Charge{take(counterID(1), perMinute(5))}, Partition: again}
	if tab.Decide(min1, batch); batch.Decisions[0].Before != 0 {
		t.Errorf("a partition whose bound changed holds counters: %+v", batch.Decisions[0])
	}
	if _, err := tab.Partition("c", 1<<20); err == nil || !strings.Contains(err.Error(), "must be at most") {
		t.Errorf("Partition(%d) gives error %v", 1<<20, err)
	}
	partition("a", 0)
	partition("b", 0)
	if tab.spare != 1<<20-oneWord(tab).bytes()-tab.common.classes[2].Load().bytes()-tab.common.classes[1].Load().bytes() {
		t.Errorf("%d bytes are spare after the partitions are gone", tab.spare)
	}
	for _, n := range []int64{1, 7, 8, 9, 16, 17} { // as few as may be
		s := partition("tiny", n)
		for i := range 100 {
			batch := &Batch{Charges: []Charge{take(counterID(i), perMinute(5))}, Partition: s}
			tab.Decide(min1, batch)
		}
		live := int64(0)
		sc := s.classes[0].Load()
		for i := range uint64(len(sc.blocks)) * ways {
			if tag := sc.at(i).tag.Load(); tag != 0 && tag != closed {
				live++
			}
		}
		if live != n {
			t.Errorf("a partition for %d holds %d", n, live)
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
		"algorithm 0":   {Limit: 1, Window: time.Second},
		"window of 0s":  {Algorithm: FixedWindow},
		"window of 1.5": {Algorithm: FixedWindow, Window: 1500 * time.Millisecond},
		"window of 876": {Algorithm: FixedWindow, Window: MaxWindow + time.Second},
		"0 sub-windows": {Algorithm: SlidingWindow, Window: time.Second},
		"61 sub-window": {Algorithm: SlidingWindow, Window: time.Second, SubWindows: 61},
		"log of 4097":   *logOf(4097),
		"burst of 0":    {Algorithm: TokenBucket, Limit: 1, Window: time.Second},
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
