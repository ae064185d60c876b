package limiter

// A point is a place where another goroutine may do most harm; see pause.
type point uint8

const (
	beforeWordLoad    point = iota // of a counter whose slot has been found
	afterWordLoad                  // and before its tag is checked again
	beforeCellLoad                 // of a counter whose word has been loaded
	beforeWordSwap                 // the compare-and-swap of a counter
	beforeSlotDead                 // a slot is about to change hands
	afterSlotDead                  // a slot is changing hands
	beforeUndo                     // a group is about to give back what it took
	whileCellsHeld                 // a counter's cells are being written
	whileAwaiting                  // another goroutine holds the cells
	betweenCharges                 // of a group, while some counters are reserved
	beforeSearch                   // of a size class whose layout has been loaded
	whileCountersMove              // from one block to another
	beforeElsewhere                // a log has not been found in the size class of its limit
	whileSaved                     // a counter is about to be copied by Save
)
