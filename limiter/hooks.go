package limiter

// A point is a place in the code where a concurrent goroutine is most likely to interfere; see
// pause.
type point uint8

const (
	beforeWordLoad    point = iota // the slot of the counter has been found
	afterWordLoad                  // before the tag is checked again
	beforeCellLoad                 // the word of the counter has been loaded
	beforeWordSwap                 // before the compare-and-swap of a counter
	beforeSlotDead                 // a slot is about to change its owner
	afterSlotDead                  // a slot is changing its owner
	beforeUndo                     // a group is about to undo its charges
	whileCellsHeld                 // a counter's cells are being written
	whileAwaiting                  // another goroutine has locked the cells
	betweenCharges                 // some counters of a group are charged, and others not yet
	beforeSearch                   // the layout of the size class has been loaded
	whileCountersMove              // counters move to another block
	beforeElsewhere                // a counter has not been found in its size class
	whileSaved                     // a counter is about to be copied by Save
)
