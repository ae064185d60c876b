package must

import (
	"slices"
	"testing"
)

// AllocsPerRun is like testing.AllocsPerRun, but measures pairs of runs one by one and returns the
// value that seven of eight pairs reach or exceed. Their mean is a matter of chance: other goroutines
// may allocate meanwhile, and the race detector empties pools at random.
func AllocsPerRun(runs int, f func()) float64 {
	counts := make([]float64, 0, runs/2)
	for range runs / 2 {
		counts = append(counts, testing.AllocsPerRun(1, f)) // and once before it counts
	}
	slices.Sort(counts)
	return counts[len(counts)/8]
}
