package limiter

// A point is a place where another goroutine may do most harm; see pause.
type point uint8

const (
	afterWordLoad  point = iota // of a counter, before its tag is checked again
	beforeWordSwap              // the compare-and-swap of a counter
	afterSlotDead               // a slot is changing hands
	beforeRelease               // a group is about to give back what it took
	whileCellsHeld              // a counter's cells are being written
	betweenCharges              // of a group, while some counters are reserved
)
