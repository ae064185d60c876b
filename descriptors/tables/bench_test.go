package tables

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

const million = 1_000_000

// cpu reports the CPU time of an operation, including garbage collection. It depends less on other
// work of the machine than the elapsed time.
func cpu(b *testing.B) (end func()) {
	b.Helper()
	used := func() float64 {
		var u syscall.Rusage
		must.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return float64(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkRead reads a file of a million rows. It reports the memory of a row without its key of
// 16 bytes and the length of the key.
func BenchmarkRead(b *testing.B) {
	text := lines(million)
	table := New("t")
	before := heap()
	end := cpu(b)
	for b.Loop() {
		rows, found := table.Read("t", strings.NewReader(text))
		must.OK(b, found.Err())
		table.Replace(rows)
	}
	end()
	b.ReportMetric(float64(heap()-before)/million-17, "B/row")
	runtime.KeepAlive(table)
}

// BenchmarkFind looks up rows of a table with a million rows in random order.
func BenchmarkFind(b *testing.B) {
	table := read(b, lines(million))
	keys := make([][]byte, 1<<16)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "customer-%07d", rand.IntN(million))
	}
	b.ReportAllocs()
	i := 0
	defer cpu(b)()
	for b.Loop() {
		rows := table.Rows()
		h := rows.Hasher()
		h.AddBytesAt(0, keys[i&(1<<16-1)])
		if _, ok := rows.Find(h.Sum()); !ok {
			b.Fatal("no row")
		}
		i++
	}
}

// BenchmarkPut changes one of a million rows.
func BenchmarkPut(b *testing.B) {
	table := read(b, lines(million))
	columns := []string{"customer"}
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		key := fmt.Sprintf("customer-%07d", rand.IntN(million))
		must.OK(b, table.Put(columns, []string{key}, Row{RequestsPerUnit: 1}))
	}
}
