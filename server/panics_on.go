//go:build sluicetorture

package server

import (
	"fmt"
	"sync/atomic"
)

// passed counts those who passed each place.
var passed [places]atomic.Uint64

// mayPanic panics for one request in a hundred, at each place for as many.
func mayPanic(at place) {
	const every = 100 * uint64(places)
	if n := passed[at].Add(1); n%every == 100*uint64(at) {
		panic(fmt.Sprintf("panic %d at place %d, as the tag sluicetorture has it", n, at))
	}
}
