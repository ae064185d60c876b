package limiter

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// An algorithm says what the word and the cells of a counter mean. The table, the
// groups and the inserts know nothing else of it. Each has a file of its own.
type algorithm interface {
	// validate returns an error if a field that this algorithm alone uses is out of
	// its range.
	validate(p *Policy) error
	// capacity is [Policy.Capacity].
	capacity(p *Policy) uint64
	// cells returns how many cells a counter has.
	cells(p *Policy) int
	// resizes reports whether a counter's cells may become more or fewer while it
	// lives, because its limit changes.
	resizes() bool

	// fresh returns the state of an absent counter. One that was reclaimed may have
	// counted until from, which is at or later.
	fresh(at, from Time, p *Policy) state
	// resetState returns the state of a counter that is reset.
	resetState(at Time, p *Policy, st state) state
	// load makes v's state what its word and its cells say. It reports false if the
	// cells changed meanwhile.
	load(v *view, at Time, p *Policy) bool
	// importState makes v's state what v.found says, and v one whose cells are in v.found.
	importState(v *view, at Time, p *Policy)
	// merge returns the state that v's counter, in a table, gets of there, which a store told of the counter
	// of charge i. It reports false if the counter stays as it is.
	merge(v, there *view, at Time, b *Batch, i int) (after state, ok bool)
	// export makes s, which is as the zero value but for its memory, the state st of v.
	export(v *view, at Time, p *Policy, st state, s *State)

	// decide decides c, of which hits are left, in the state st. It returns the state
	// that follows if c is charged. What the decision says of that state is for finish
	// to fill in. It reports false if v is no longer true.
	decide(v *view, at Time, c *Charge, hits uint64, budget time.Duration, st state, d *Decision) (after state, ok bool)
	// finish fills in what d says of the state st, in which it leaves the counter.
	finish(v *view, at Time, p *Policy, budget time.Duration, st state, d *Decision)
	// undo returns v's state at now without what d charged at the time at, which left
	// the counter in a state numbered mark. It reports whether that cannot be, because
	// the charge or a later one waits and is not the newest.
	undo(v *view, at, now Time, p *Policy, mark int64, d *Decision) (after state, lost bool)
	// store returns the word of after, without its highest bit. For a counter with
	// cells that is the payload, and the cells and the note of after are written to a
	// slot that nobody else reads or writes. The slot may be v's own.
	store(v *view, s *sizeClass, index uint64, p *Policy, after state) uint64

	// expiry returns the time from which on the counter in a slot equals an absent one,
	// and whether that is later than at.
	expiry(s *sizeClass, index, word uint64, at Time) (end Time, live bool)
	// weight returns how many hits the counter in a slot has, if weighs reports true.
	// Else it returns 1. 0 means that nothing is lost with it.
	weight(s *sizeClass, index, word uint64) uint64
	// hasWeight reports whether a word tells how many hits it has.
	hasWeight() bool
}

// algorithmsByNumber has what each algorithm is.
var algorithmsByNumber = [...]algorithm{
	FixedWindow: fixedWindow{}, SlidingWindow: slidingWindow{}, SlidingLog: slidingLog{},
	TokenBucket: gcra{}, LeakyBucket: gcra{}, Concurrency: concurrency{},
}

var _ [Algorithms]algorithm = algorithmsByNumber // each has one

// algorithmsByTag are those of rows by the bits of a tag. Any other number is taken for a fixed window,
// since a policy that was not validated must not end the process.
var algorithmsByTag = func() (all [1 << algorithmBits]algorithm) {
	for a := range all {
		all[a] = algorithmsByNumber[FixedWindow]
	}
	copy(all[1:], algorithmsByNumber[1:])
	all[penaltyKind] = penalty{}
	return all
}()

// algorithm returns what p counts by.
func (p *Policy) algorithm() algorithm { return algorithmsByTag[p.Algorithm&(1<<algorithmBits-1)] }

// A state is one counter at one instant, whatever its word said before time
// passed. What it holds depends on the algorithm:
//
//	                used                   past                       num
//	fixed window    hits                   -                          end, Unix seconds
//	sliding window  hits of the current    hits of the finished       number of the
//	                sub-window             ones that count            current sub-window
//	sliding log     hits not yet in cells  hits in cells that count   time of the newest,
//	                                                                  now if late
//	buckets         -                      -                          TAT and its unit
//	concurrency     places that are taken  places in cells that       lease that was taken or given
//	                                       are held                   back last; 0 if none was
//
// Equal states of one view need no write. num tells the time that a state was charged
// at from later ones.
type state struct {
	used, past uint64
	num        int64
}

// A view is one counter as it was at some moment.
type view struct {
	class     *sizeClass // where the counter is, or would be
	slot      *slot      // nil if the counter is absent
	index     uint64     // of slot
	word      uint64     // what slot held
	head      int64      // of a ring: the number of the sub-window that word counts
	newer     uint64     // of a log: how many hits are newer than those that are undone; of places: how many are held
	misplaced bool       // it is in another size class than where it belongs
	mirror    bool       // its table is a mirror
	reported  *State     // what a store told of the counter; valid if class is outside
	at        Time       // the instant of the view
	salt      uint64     // of the nonces of leases that are taken
	state                // what all that means at the instant of the view
}

// externalClass is the size class of counters that have no slot, because a store has them. It tells
// their views from others.
var externalClass sizeClass

// Bits of a tag. The low ones say how to read the slot's word, so that one table
// can hold all kinds of counters. They are never 0.
const (
	algorithmBits = 3
	kindBits      = algorithmBits + 1
	// secondBit is set in the tag of a slot if it is in the second block of its
	// counter.
	secondBit = 1
)

// tagOf returns the tag of the counter id under the algorithm a, without secondBit.
func tagOf(id identity.ID, a Algorithm) uint64 {
	if a %= 1 << algorithmBits; a == 0 { // of a policy that was not validated
		a = FixedWindow
	}
	return id.Hi&^(1<<kindBits-1) | uint64(a)<<1
}

func (c *Charge) tag() uint64 { return tagOf(c.ID, c.Policy.Algorithm) }

// algorithmOf returns the algorithm of the counter with a tag.
func algorithmOf(tag uint64) algorithm { return algorithmsByTag[tag>>1&(1<<algorithmBits-1)] }
