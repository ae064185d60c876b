package limiter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// snapshot returns a snapshot of a table.
func snapshot(tb testing.TB, tab *Table, now Time) []byte {
	tb.Helper()
	var buf bytes.Buffer
	saved, err := tab.Save(&buf, now)
	if err != nil || saved.At != now || saved.Bytes != int64(buf.Len()) {
		tb.Fatalf("Save() = %+v, %v, after %d bytes", saved, err, buf.Len())
	}
	return buf.Bytes()
}

// load loads a snapshot of a table with the given bytes.
func load(tb testing.TB, b []byte, size int64) *Table {
	tb.Helper()
	tab, saved, err := Load(bytes.NewReader(b), Options{Bytes: size})
	if err != nil || saved.Bytes != int64(len(b)) {
		tb.Fatalf("Load() = %+v, %v", saved, err)
	}
	checkSlots(tb, tab)
	return tab
}

// checkSlots checks that each counter has one slot, in one of its two blocks, and that used and
// spare memory add up.
func checkSlots(tb testing.TB, tab *Table) {
	tb.Helper()
	used := int64(0)
	for p := range tab.allPartitions() {
		for s := range p.sizeClasses() {
			used += s.bytes()
			seen := map[identity.ID]bool{}
			for index := range s.inUse() * ways {
				tag := s.slotAt(index).tag.Load()
				if tag == 0 {
					continue
				}
				id := s.partialID(index/ways, tag)
				if seen[id] {
					tb.Fatalf("a counter has two slots in a class of %d cells", s.size)
				}
				seen[id] = true
				if found, _ := s.find(tag&^secondBit, id); found != s.slotAt(index) {
					tb.Fatalf("a counter in block %d of %d is not found there", index/ways, s.inUse())
				}
			}
		}
	}
	if used+tab.freeBytes.Load() != tab.bytes {
		tb.Fatalf("%d bytes are used and %d spare, of %d", used, tab.freeBytes.Load(), tab.bytes)
	}
}

// snapshotPolicies returns policies of all algorithms and many sizes. The policies of one row have
// one ID, as if the limit was edited.
func snapshotPolicies() [][]*Policy {
	return [][]*Policy{
		{perMinute(100), perMinute(20)},
		{{Algorithm: TokenBucket, Limit: 100, Window: time.Minute, Burst: 50}},
		{{Algorithm: TokenBucket, Limit: 1e9, Window: time.Second, Burst: 1e6}},
		{{Algorithm: LeakyBucket, Limit: 600, Window: time.Minute, Slack: 5, MaxWait: time.Second, MaxWaiting: 20}},
		{ringOfTen(50), ringOfTen(20)},
		{{Algorithm: SlidingWindow, Limit: 80, Window: time.Hour, SubWindows: 60, CountRefused: true}},
		{&calendarPolicies()[0][0], &calendarPolicies()[0][1]},
		{&calendarPolicies()[2][0], &calendarPolicies()[2][1]},
		{&calendarPolicies()[3][0]},
		{logOf(5), logOf(10), logOf(40)},
		{logOf(100), logOf(8)},
	}
}

// A trial makes the same random charges in two tables, one of which may be loaded from a snapshot
// of the other.
type trial struct {
	r     *rand.Rand
	now   Time
	limit int // index of the current policy in each row
	names []string
}

// charge makes one random charge in the tables, and fails if their decisions differ.
func (tr *trial) charge(t *testing.T, tables ...*Table) {
	t.Helper()
	of := snapshotPolicies()
	kind := tr.r.IntN(len(of))
	policies := of[kind]
	c := Charge{
		ID:     counterID(kind*1000 + tr.r.IntN(200)),
		Policy: policies[tr.limit%len(policies)],
		Hits:   uint64(tr.r.IntN(4)),
		Refund: tr.r.IntN(10) == 0,
	}
	name := tr.names[tr.r.IntN(len(tr.names))]
	c.ID.Hi ^= uint64(len(name)) << 60 // the domain is part of the ID
	tr.now += Time(tr.r.Int64N(int64(50 * time.Millisecond)))
	var first Decision
	for i, tab := range tables {
		b := &Batch{Charges: []Charge{c}, Partition: tab.partitions[name], Budget: time.Minute}
		tab.Decide(tr.now, b)
		if d := b.Decisions[0]; i == 0 {
			first = d
		} else if d != first {
			t.Fatalf("%+v of %q decided %+v, want %+v", *c.Policy, name, d, first)
		}
	}
}

// TestLoadedTableDecidesLikeTheSaved checks that a loaded table decides like the saved table, also
// after any change of rules.
func TestLoadedTableDecidesLikeTheSaved(t *testing.T) {
	const size = 4 << 20
	bounds := []map[string]int64{
		nil,
		{"a": 4000},
		{"a": 8000, "bb": 2000},
		{"bb": 4000},
		{},
	}
	for seed := range uint64(effort.Times(t, 3)) {
		tr := &trial{r: rand.New(rand.NewPCG(seed, 1)), now: benchNow, names: []string{"", "a", "bb"}}
		tab := newTable(t, size)
		reserve := func(n int, tables ...*Table) {
			for _, tab := range tables {
				if _, err := tab.Partitions(tr.now, bounds[n]); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 3 {
			n, tables := tr.r.IntN(len(bounds)), []*Table{tab}
			reserve(n, tab)
			tr.limit = tr.r.IntN(3)
			for range 3000 {
				tr.charge(t, tables...)
			}
			tables = append(tables, load(t, snapshot(t, tab, tr.now), size))
			if tr.r.IntN(2) == 0 { // a downtime
				tr.now += Time(tr.r.Int64N(int64(3 * time.Minute)))
			}
			tr.limit = tr.r.IntN(3)
			reserve(tr.r.IntN(len(bounds)), tables...)
			for range 3000 {
				tr.charge(t, tables...)
			}
			tab = tables[1] // the next round saves this table
		}
		if s := tab.Stats(); s.Evicted > 0 {
			t.Errorf("seed %d: %+v, want none evicted", seed, s)
		}
	}
}

// TestSnapshotOmitsExpiredCounters checks that expired counters are omitted, and that
// their windows do not start again.
func TestSnapshotOmitsExpiredCounters(t *testing.T) {
	tab := newTable(t, 1<<20)
	p := perMinute(2)
	decide(tab, min1, oneHit(counterID(1), p))
	decide(tab, min1, Charge{ID: counterID(2), Policy: p, Hits: 1}, Charge{ID: counterID(2), Policy: p, Hits: 1, Refund: true, Group: 1})
	for _, tt := range []struct {
		now  Time
		want int64
	}{{min1, 1}, {min1 + 59*sec, 1}, {min1 + 60*sec, 0}} {
		b := snapshot(t, tab, tt.now)
		loaded, saved, err := Load(bytes.NewReader(b), Options{Bytes: 1 << 20})
		if err != nil || saved.Counters != tt.want || loaded.Live(min1) != tt.want {
			t.Errorf("at %v: %+v, %v, want %d counters", tt.now, saved, err, tt.want)
		}
		late := decide(loaded, min1+10*sec, oneHit(counterID(1), p)).Decisions[0]
		if reset := 50 * time.Second; tt.want == 0 && late.Reset != reset+time.Minute || tt.want == 1 && (late.Reset != reset || late.Before != 1) {
			t.Errorf("a late call on the snapshot saved at %v: %+v", tt.now, late)
		}
	}
}

// fixSums updates the checksums of a modified snapshot.
func fixSums(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < headerBytes+crcBytes {
		return b
	}
	head := headerBytes - crcBytes
	binary.LittleEndian.PutUint32(b[head:], crc32.Checksum(b[:head], castagnoli))
	end := len(b) - crcBytes
	binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], castagnoli))
	return b
}

// smallSnapshot returns a snapshot of a table of 64 KiB with counters of all kinds.
func smallSnapshot(tb testing.TB) []byte {
	tb.Helper()
	tab := newTable(tb, 64<<10)
	own := reserve(tb, tab, "own", 20)
	for i, of := range snapshotPolicies()[:6] {
		for n := range 5 {
			inPartition(tab, nil, 10*i+n, of[0], 1)
			inPartition(tab, own, 10*i+n, of[0], 2)
		}
	}
	inPartition(tab, nil, 2, atOnce(5), 1)
	inPartition(tab, nil, 1, logOf(5), 3)
	return snapshot(tb, tab, min1)
}

// TestDamagedSnapshotIsRejected checks that Load rejects a snapshot with any flipped bit or
// truncated at any byte.
func TestDamagedSnapshotIsRejected(t *testing.T) {
	b := smallSnapshot(t)
	load(t, b, 64<<10)
	for i := range b {
		if effort.Level(t) < effort.More && i > headerBytes && i < len(b)-16 && i%11 > 0 {
			continue
		}
		for bit := range 8 {
			if i > headerBytes+100 && bit != i%8 {
				continue // to save time
			}
			damaged := bytes.Clone(b)
			damaged[i] ^= 1 << bit
			_, _, err := Load(bytes.NewReader(damaged), Options{Bytes: 64 << 10})
			want := ErrDamaged
			switch {
			case i < len(snapshotMagic):
				want = ErrNotSnapshot
			case i < len(snapshotMagic)+4:
				want = ErrFormat
			}
			if !errors.Is(err, want) {
				t.Fatalf("bit %d of byte %d flipped: %v, want %v", bit, i, err, want)
			}
		}
		if _, _, err := Load(bytes.NewReader(b[:i]), Options{Bytes: 64 << 10}); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, _, err := Load(bytes.NewReader(append(b, 0)), Options{Bytes: 64 << 10}); !errors.Is(err, ErrDamaged) {
		t.Errorf("an additional byte: %v", err)
	}
}

// TestSnapshotOfAnotherTableIsRejected checks that Load rejects intact snapshots of other tables
// with a specific error.
func TestSnapshotOfAnotherTableIsRejected(t *testing.T) {
	b := smallSnapshot(t)
	broken := errors.New("broken")
	format := bytes.Clone(b)
	format[len(snapshotMagic)] = 1
	for name, tt := range map[string]struct {
		r    io.Reader
		opt  Options
		want error
	}{
		"memory":             {bytes.NewReader(b), Options{Bytes: 128 << 10}, ErrBytesMismatch},
		"key":                {bytes.NewReader(b), Options{Bytes: 64 << 10, Key: identity.Key{1}}, ErrKeyMismatch},
		"format":             {bytes.NewReader(fixSums(format)), Options{Bytes: 64 << 10}, ErrFormat},
		"text":               {bytes.NewReader([]byte("domain: x\n")), Options{}, ErrNotSnapshot},
		"a long text":        {bytes.NewReader(bytes.Repeat([]byte("domain: x\n"), 1000)), Options{}, ErrNotSnapshot},
		"empty":              {bytes.NewReader(nil), Options{}, ErrDamaged},
		"an immediate error": {io.MultiReader(failing{broken}), Options{Bytes: 64 << 10}, broken},
		"reader later":       {io.MultiReader(bytes.NewReader(b[:len(b)/2]), failing{broken}), Options{Bytes: 64 << 10}, broken},
		"reader last":        {io.MultiReader(bytes.NewReader(b), failing{broken}), Options{Bytes: 64 << 10}, broken},
	} {
		tab, _, err := Load(tt.r, tt.opt)
		if !errors.Is(err, tt.want) || tab != nil {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestASnapshotHasTheKey checks that a snapshot contains the key.
func TestASnapshotHasTheKey(t *testing.T) {
	tab, err := New(Options{Key: identity.Key{7}})
	if err != nil || tab.Key() != (identity.Key{7}) {
		t.Fatal(tab.Key(), err)
	}
	if got := load(t, snapshot(t, tab, min1), 0).Key(); got != tab.Key() {
		t.Errorf("Key() = %v", got)
	}
	if a, b := newTable(t, 0), newTable(t, 0); a.Key() == b.Key() {
		t.Error("two tables have the same key")
	}
}

// TestSaveFails checks that a writer's error ends a save and does not affect the next one.
func TestSaveFails(t *testing.T) {
	tab := load(t, smallSnapshot(t), 64<<10)
	broken := errors.New("broken")
	if _, err := tab.Save(failing{broken}, min1); !errors.Is(err, broken) {
		t.Errorf("Save() = %v", err)
	}
	for p := range tab.allPartitions() {
		for s := range p.sizeClasses() {
			if s.cursor.Load() != nil {
				t.Error("a size class still has a cursor after the save")
			}
		}
	}
	load(t, snapshot(t, tab, min1), 64<<10)
}

// TestAFullSnapshot checks that a full table is restored without losing a counter.
func TestAFullSnapshot(t *testing.T) {
	for _, p := range growPolicies() {
		tab := newTable(t, 1<<20)
		for n := range 2 << 20 / CounterBytes(*p) {
			decide(tab, min1, oneHit(counterID(n), p))
		}
		loaded := load(t, snapshot(t, tab, min1), 1<<20)
		if got, want := loaded.Live(min1), tab.Live(min1); got != want || loaded.Stats().Evicted > 0 {
			t.Errorf("algorithm %d: %d counters are live, want %d; %+v", p.Algorithm, got, want, loaded.Stats())
		}
		if got, want := loaded.Stats().Used, tab.Stats().Used; got != want {
			t.Errorf("algorithm %d: %d bytes used, want %d", p.Algorithm, got, want)
		}
	}
}

// FuzzLoad loads arbitrary input with correct checksums: it is accepted or rejected, and an
// accepted table works.
func FuzzLoad(f *testing.F) {
	b := smallSnapshot(f)
	f.Add(b)
	f.Add(b[:headerBytes+1])
	f.Add(snapshot(f, newTable(f, 64<<10), min1))
	f.Fuzz(func(t *testing.T, b []byte) {
		tab, _, err := Load(bytes.NewReader(fixSums(b)), Options{Bytes: 64 << 10})
		if err != nil {
			return
		}
		if _, err := tab.Partitions(min1, map[string]int64{"own": 10}); err != nil {
			t.Fatal(err)
		}
		for i, of := range snapshotPolicies() {
			for n := range 5 {
				for _, name := range []string{"", "own"} {
					inPartition(tab, tab.partitions[name], 10*i+n, of[0], 1)
				}
			}
		}
		again := snapshot(t, tab, min1)
		loaded, saved, err := Load(bytes.NewReader(again), Options{Bytes: 64 << 10})
		must.OK(t, err)
		if got, most := loaded.Live(min1), saved.Counters; got > most {
			t.Fatalf("%d counters are live, at most %d fit", got, most)
		}
	})
}

// BenchmarkSnapshot saves and loads n counters.
func BenchmarkSnapshot(b *testing.B) {
	for _, keys := range []int{1_000_000} {
		t := newTable(b, 0)
		batch := &Batch{Charges: []Charge{{Policy: perDay(5), Hits: 1}}}
		for i := range keys {
			batch.Charges[0].ID = counterID(i)
			t.Decide(benchNow, batch)
		}
		saved := snapshot(b, t, benchNow)
		b.Run(fmt.Sprintf("op=save/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				if _, err := t.Save(io.Discard, benchNow); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("op=load/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				if _, got, err := Load(bytes.NewReader(saved), Options{}); err != nil || got.Counters != int64(keys) {
					b.Fatal(got, err)
				}
			}
		})
	}
}

// BenchmarkDecideWhileSaving decides charges on a million counters, without and with concurrent
// saves.
func BenchmarkDecideWhileSaving(b *testing.B) {
	const keys = 1_000_000
	t, ids, next := newTable(b, 0), benchIDs(keys), spread(keys)
	batch := &Batch{Charges: []Charge{{Policy: perDay(1<<32 - 1), Hits: 1}}}
	for _, id := range ids {
		batch.Charges[0].ID = id
		t.Decide(benchNow, batch)
	}
	for _, saving := range []bool{false, true} {
		b.Run(fmt.Sprintf("saving=%v", saving), func(b *testing.B) {
			end, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for saving {
					select {
					case <-end:
						return
					default:
						_, _ = t.Save(io.Discard, benchNow)
					}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				batch.Charges[0].ID = ids[next()]
				t.Decide(benchNow, batch)
			}
			close(end)
			<-ended
		})
	}
}
