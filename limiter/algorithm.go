package limiter

// This file is where the algorithms meet: everything else knows slots and words,
// and fixed_window.go what one word means.

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

// expired reports whether the counter equals an absent one at all times from at.
func expired(tag, word uint64, at instant) bool {
	switch algorithmOf(tag) {
	default: // FixedWindow
		_, live := windowLeft(word, at.sec)
		return !live
	}
}

// weight says what a counter is worth when live ones must be given up: the
// smallest goes first. 0 means that nothing is lost.
func weight(tag, word uint64) uint64 {
	switch algorithmOf(tag) {
	default: // FixedWindow
		return word & countMask
	}
}

// remains says how long, in seconds, the counter will live: of equal weights the
// one with the least goes first.
func remains(tag, word uint64, at instant) int64 {
	switch algorithmOf(tag) {
	default: // FixedWindow
		left, _ := windowLeft(word, at.sec)
		return left
	}
}
