// Package effort scales tests with SLUICE_EFFORT: 1 in `make test`, 10 in `make test-more`, 100 in
// `make test-all`.
package effort

import (
	"os"
	"strconv"
	"testing"
)

// Values of SLUICE_EFFORT.
const (
	Test = 1
	More = 10
	All  = 100
)

// Level returns the value of SLUICE_EFFORT, or [Test] if it is not set.
func Level(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv("SLUICE_EFFORT")
	if text == "" {
		return Test
	}
	level, err := strconv.Atoi(text)
	if err != nil || level < 1 {
		tb.Fatalf("SLUICE_EFFORT is %q; want a whole number from 1: 1, 10 and 100 are those of make", text)
	}
	return level
}

// Times returns n multiplied by the level: the iterations of a loop that has n at level [Test].
func Times(tb testing.TB, n int) int {
	tb.Helper()
	return n * Level(tb)
}

// Require skips the test below the given level.
func Require(tb testing.TB, level int) {
	tb.Helper()
	if Level(tb) < level {
		tb.Skipf("runs with SLUICE_EFFORT=%d or more", level)
	}
}
