// Plot draws the requests that each algorithm admits of the same traffic, as an SVG on standard
// output:
//
//	go run ./docs/plot > docs/algorithms.svg
//
// The decisions are those of limiter.Table at given times.
package main

import (
	"os"

	"github.com/sluice-ratelimit/sluice/limiter"
)

func main() {
	rows, err := decideAll()
	if err == nil {
		_, err = os.Stdout.WriteString(draw(rows))
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// Times are in milliseconds after start, which is the border of a window.
const (
	start  = limiter.Time(1_700_000_000e9)
	second = 1000
	limit  = 10
	// concurrent requests of duration milliseconds each are limit requests per second.
	concurrent = 4
	duration   = 400
)

// offered returns the times of requests: a burst on either side of a window's border, a steady
// overload, a pause and a burst within a window.
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
