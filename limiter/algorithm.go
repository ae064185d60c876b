package limiter

// This file is where algorithms join: state tells insert and Live what a slot of
// any kind holds; Table.read and windowWord are the fixed window's own.

// kindBits are the low bits of a tag. They say how to read the slot's word, so
// that one table can hold all kinds of counters, and are never all 0.
const kindBits = 4

// tagOf returns the tag of the counter id under the algorithm a.
func tagOf(id ID, a Algorithm) uint64 {
	return id.Hi&^(1<<kindBits-1) | uint64(a)<<1&(1<<kindBits-1) | 1
}

// algorithmOf is the inverse of tagOf.
func algorithmOf(tag uint64) Algorithm {
	return Algorithm(tag & (1<<kindBits - 1) >> 1)
}

// state reads a slot: what its counter has used, for how many seconds from at on
// it will live, and whether it lives at all. One that does not equals an absent
// one from at on.
func state(tag, word uint64, at instant) (used uint64, left int64, live bool) {
	if algorithmOf(tag) != FixedWindow {
		return 0, 0, false
	}
	left, live = windowLeft(word, at.sec)
	return word & countMask, left, live
}
