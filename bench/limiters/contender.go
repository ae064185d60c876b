package main

// A worker decides one hit on the counter of that key and reports whether it was
// admitted. It belongs to one thread. The key is the caller's again afterwards
// unless the contender keeps keys and the counter is new.
type worker func(key []byte) bool

// A purpose is what counters are made for.
type purpose int

const (
	admitting purpose = iota // there is always room
	denying                  // one hit, then no room for weeks
	lasting                  // a hit is remembered for hours
)

// setting says what a contender is opened for.
type setting struct {
	counters int
	purpose  purpose
}

// A store holds the counters of one contender.
type store struct {
	worker func() worker
	// evicted is how many counters were forgotten for want of room, nil for
	// those that grow.
	evicted func() uint64
	close   func() error // may be nil
}

// A contender is one way to limit.
type contender struct {
	name string
	// keys is how its documentation has it tell counters apart.
	keys string
	// ours is set for sluice, baseline for what all do before they decide.
	ours, baseline bool
	// oneWord says that a counter takes one word beside its tag.
	oneWord bool
	// keepsKeys says that a new counter refers to the key that made it.
	keepsKeys bool
	// neverDenies says that it can only wait.
	neverDenies bool
	open        func(setting) (*store, error)
}

// fill hits counters 0 to n-1 once each.
func (c *contender) fill(s *store, n int) {
	fresh(s.worker(), c.keepsKeys)(n)
}
