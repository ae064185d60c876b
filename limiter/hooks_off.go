//go:build !limiterhooks

package limiter

// pause does nothing, unless built with the tag limiterhooks: tests then suspend goroutines here;
// see hooks_on.go.
func pause(point) {}

// With the tag limiterhooks these overwrite reused memory with garbage; see poison_on.go.

func (*view) poison()        {}
func (*Batch) poison()       {}
func (*Batch) poisonStored() {}
func (*companion) poison()   {}
