// Plot draws which requests of the same traffic each algorithm admits, as an SVG on
// standard output:
//
//	go run ./docs/plot > docs/algorithms.svg
//
// It draws the decisions of limiter.Table at given times.
package main

import (
	"os"

	"github.com/sluice-ratelimit/sluice/limiter"
)

func main() {
	rows, err := play()
	if err == nil {
		_, err = os.Stdout.WriteString(draw(rows))
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// Times are milliseconds after start, which is a border of windows.
const (
	start  = limiter.Time(1_700_000_000e9)
	second = 1000
	limit  = 10
	// As many at once, each so long, are limit in a second.
	atOnce = 4
	lasts  = 400
)

// offered is when requests come: a burst on either side of a window's border, a
// steady overload, a pause and a burst within a window.
func offered() []int {
	var at []int
	every := func(from, to, step int) {
		for t := from; t < to; t += step {
			at = append(at, t)
		}
	}
	every(760, 1240, 20)
	every(1800, 3300, 50)
	every(4300, 4540, 20)
	return at
}
