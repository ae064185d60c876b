//go:build !limiterhooks

package limiter

// pause is where tests that are built with the tag limiterhooks stop goroutines;
// see hooks_on.go. Else it is nothing, and costs nothing.
func pause(point) {}

// These make memory that is used again garbage in tests that are built with the tag
// limiterhooks; see poison_on.go.

func (*view) poison()        {}
func (*Batch) poison()       {}
func (*Batch) poisonStored() {}
func (*companion) poison()   {}
