package tables

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// millionInJournal returns a journal of a million rows, and its directory.
func millionInJournal(b *testing.B) (*Journal, string) {
	b.Helper()
	dir := b.TempDir()
	j, _, err := OpenJournal(New("t"), dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	const piece = 50_000
	for from := 0; from < million; from += piece {
		if err := j.Apply([]string{"customer"}, someRows(piece, func(i int) int { return from + i })); err != nil {
			b.Fatal(err)
		}
	}
	return j, dir
}

// someRows returns n changes. customer returns the key of each.
func someRows(n int, customer func(int) int) []Change {
	changes := make([]Change, n)
	for i := range changes {
		changes[i] = Change{Values: []string{fmt.Sprintf("customer-%07d", customer(i))}, Row: Row{RequestsPerUnit: rand.Uint32()}}
	}
	return changes
}

// reportSize reports the size of the files in a directory.
func reportSize(b *testing.B, dir string) {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		b.Fatal(err)
	}
	size := int64(0)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			b.Fatal(err)
		}
		size += info.Size()
	}
	b.ReportMetric(float64(size)/(1<<20), "MB-file")
}

// BenchmarkApply changes random rows of a table with a million rows. Each call changes the given
// number of rows.
func BenchmarkApply(b *testing.B) {
	for _, tt := range []struct{ callers, rows int }{{1, 1}, {64, 1}, {1, 50_000}} {
		b.Run(fmt.Sprintf("callers=%d/rows=%d", tt.callers, tt.rows), func(b *testing.B) {
			j, dir := millionInJournal(b)
			var callers sync.WaitGroup
			var begun atomic.Int64 // number of calls
			b.ResetTimer()
			end := cpu(b)
			for range tt.callers {
				callers.Go(func() {
					for begun.Add(1) <= int64(b.N) {
						if err := j.Apply([]string{"customer"}, someRows(tt.rows, func(int) int { return rand.IntN(million) })); err != nil {
							b.Error(err)
						}
					}
				})
			}
			callers.Wait()
			end()
			b.StopTimer()
			reportSize(b, dir)
		})
	}
}

// BenchmarkOpenJournal opens a journal of a million rows.
func BenchmarkOpenJournal(b *testing.B) {
	j, dir := millionInJournal(b)
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	end := cpu(b)
	for b.Loop() {
		again, _, err := OpenJournal(New("t"), dir, nil)
		if err != nil || again.table.Rows().Len() != million {
			b.Fatal(err)
		}
		if err := again.Close(); err != nil {
			b.Fatal(err)
		}
	}
	end()
	reportSize(b, dir)
}
