package tables

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// read returns a table with the rows of a text.
func read(tb testing.TB, text string) *Table {
	tb.Helper()
	table := New("t")
	rows, found := table.Read("t.csv", strings.NewReader(text))
	must.OK(tb, found.Err())
	table.Replace(rows)
	return table
}

// lines returns a file of n rows; row i has the number i.
func lines(n int) string {
	var b strings.Builder
	b.WriteString("customer,requests_per_unit\n")
	for i := range n {
		fmt.Fprintf(&b, "customer-%07d,%d\n", i, i)
	}
	return b.String()
}

// TestTableAgainstMap makes the same random changes to a table and a map, and then compares them.
func TestTableAgainstMap(t *testing.T) {
	for _, begin := range []int{0, 1, 3000} {
		random := rand.New(rand.NewPCG(1, uint64(begin)))
		table := read(t, lines(begin))
		want := map[string]Row{}
		for i := range begin {
			want[fmt.Sprintf("customer-%07d", i)] = Row{RequestsPerUnit: uint32(i)}
		}
		for range 6000 {
			key := fmt.Sprintf("customer-%07d", random.IntN(4000))
			if _, there := want[key]; random.IntN(4) == 0 {
				if table.Delete([]string{key}) != there {
					t.Fatalf("Delete(%s) = %t", key, !there)
				}
				delete(want, key)
				continue
			}
			row := Row{
				RequestsPerUnit: random.Uint32(), Burst: random.Uint32N(3), Unit: rules.Unit(random.IntN(8)),
				Name: []string{"", "gold", "silver"}[random.IntN(3)],
			}
			if random.IntN(5) == 0 {
				row = Row{Unlimited: true}
			}
			must.OK(t, table.Put([]string{"customer"}, []string{key}, row))
			want[key] = row
		}
		rows := table.Rows()
		got := map[string]Row{}
		for values, row := range rows.All() {
			got[values[0]] = row
		}
		if !maps.Equal(got, want) || rows.Len() != len(want) {
			t.Errorf("from %d rows: %d rows differ from the map's %d", begin, rows.Len(), len(want))
		}
		for i := range 4000 {
			key := fmt.Sprintf("customer-%07d", i)
			row, ok := rows.Get([]string{key})
			if wantRow, wantOK := want[key]; row != wantRow || ok != wantOK {
				t.Fatalf("Get(%s) = %+v, %t, want %+v, %t", key, row, ok, wantRow, wantOK)
			}
		}
	}
}

// TestRowsGrow checks that a table that grows row by row keeps its shards small.
func TestRowsGrow(t *testing.T) {
	table := New("t")
	const n = 30_000
	for i := range n {
		must.OK(t, table.Put([]string{"k"}, []string{strconv.Itoa(i)}, Row{RequestsPerUnit: uint32(i)}))
	}
	rows := table.Rows()
	if rows.Len() != n {
		t.Errorf("%d rows", rows.Len())
	}
	for i := range rows.shards {
		if s := rows.shards[i].Load(); s.n > maxShardRows {
			t.Fatalf("a shard of %d has %d rows", len(rows.shards), s.n)
		}
	}
	for i := range n {
		if row, ok := rows.Get([]string{strconv.Itoa(i)}); !ok || row.RequestsPerUnit != uint32(i) {
			t.Fatalf("Get(%d) = %v, %t", i, row, ok)
		}
	}
}

// TestPutMemory checks that rows that are put one by one need no more memory than rows of a file:
// 64 bytes without the key, even directly after the table has grown.
func TestPutMemory(t *testing.T) {
	columns, before := []string{"k"}, heap()
	table := New("t")
	grown, shards := 0, 1
	for i := range 60_000 {
		must.OK(t, table.Put(columns, []string{fmt.Sprintf("%08d", i)}, Row{RequestsPerUnit: 1}))
		if n := len(table.Rows().shards); n != shards {
			grown, shards = i, n
		}
		if i != grown && i != grown+grown/10 || i < 20_000 {
			continue
		}
		const key = 1 + 1 + 8 // the value and the lengths of value and key
		if perRow := (float64(heap())-float64(before))/float64(i+1) - key; perRow > 64 {
			t.Errorf("%d rows in %d shards need %.1f bytes each without their keys", i+1, shards, perRow)
		}
	}
	runtime.KeepAlive(table)
}

// TestShardsFitTheAllocator checks that a shard fills a size class of Go's allocator, and that no slot crosses a
// cache line, which would make look-ups a fifth slower.
func TestShardsFitTheAllocator(t *testing.T) {
	const header, class, line = 8, 12 << 10, 64
	if strconv.IntSize < 64 {
		t.Skip("32-bit programs have smaller pointers")
	}
	if size := unsafe.Sizeof(shard{}); size != class-header {
		t.Errorf("a shard is %d bytes, want %d", size, class-header)
	}
	table := read(t, lines(10*meanRows))
	for i := range table.Rows().shards {
		s := table.Rows().shards[i].Load()
		if at := uintptr(unsafe.Pointer(&s.slots)) % line; at != 0 {
			t.Errorf("the slots of shard %d begin %d bytes into a line", i, at)
		}
	}
}

// TestConcurrentReaders has goroutines that read rows while they change. The number of each row is
// a multiple of its key, and only grows.
func TestConcurrentReaders(t *testing.T) {
	const keys, rounds = 3000, 5
	table := New("t")
	put := func(i, round int) {
		if err := table.Put([]string{"a", "b"}, []string{"x", strconv.Itoa(i)}, Row{RequestsPerUnit: uint32(i * round), Name: "n" + strconv.Itoa(round)}); err != nil {
			t.Error(err)
		}
	}
	put(0, 1)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			last := make([]uint32, keys)
			for {
				for i := 1; i < keys; i++ {
					rows := table.Rows()
					row, ok := rows.Get([]string{"x", strconv.Itoa(i)})
					if !ok && last[i] == 0 {
						continue
					}
					round := row.RequestsPerUnit / uint32(i)
					if !ok || row.RequestsPerUnit%uint32(i) != 0 || round < last[i] || row.Name != "n"+strconv.Itoa(int(round)) {
						t.Errorf("Get(%d) = %+v, %t after round %d", i, row, ok, last[i])
						return
					}
					last[i] = round
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for round := 1; round <= rounds; round++ {
		for i := range keys {
			put(i, round)
		}
	}
	close(done)
	readers.Wait()
}

func TestFindAllocatesNothing(t *testing.T) {
	rows := read(t, lines(10_000)).Rows()
	key := []byte("customer-0000007")
	if n := must.AllocsPerRun(100, func() {
		h := rows.Hasher()
		h.AddBytesAt(0, key)
		if hit, ok := rows.Find(h.Sum()); !ok || hit.RequestsPerUnit != 7 {
			t.Error("no row")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
