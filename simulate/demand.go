package simulate

import (
	"maps"
	"slices"
)

// demand is a distribution of the hits that keys of a limit request per window. It is exact: n hits
// make at most about sqrt(2n) different numbers.
type demand struct {
	windows map[uint64]uint64 // by number of hits
	n       uint64
	max     uint64
}

func (d *demand) add(hits uint64) {
	if d.windows == nil {
		d.windows = map[uint64]uint64{}
	}
	d.windows[hits]++
	d.n++
	d.max = max(d.max, hits)
}

// each calls use with each number of hits in increasing order and the number of windows with that
// demand.
func (d *demand) each(use func(hits, windows uint64) bool) {
	for _, hits := range slices.Sorted(maps.Keys(d.windows)) {
		if !use(hits, d.windows[hits]) {
			return
		}
	}
}

// quantile returns the smallest demand that at least the given share of windows does not exceed.
func (d *demand) quantile(share float64) uint64 {
	before := uint64(0)
	found := uint64(0)
	for hits, windows := range d.each {
		before += windows
		found = hits
		if float64(before) >= share*float64(d.n) {
			break
		}
	}
	return found
}
