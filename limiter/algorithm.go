package limiter

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// An algorithm interprets the word and the cells of a counter. The table, the groups and the
// inserts use only this interface.
type algorithm interface {
	// validate returns an error if a field that only this algorithm uses is out of range.
	validate(p *Policy) error
	// capacity implements [Policy.Capacity].
	capacity(p *Policy) uint64
	// cells returns the number of cells of a counter.
	cells(p *Policy) int
	// resizes reports whether a change of the limit can change the number of cells of an existing
	// counter.
	resizes() bool

	// fresh returns the state of an absent counter. It may have been reclaimed; from, which is not
	// before at, is the latest time until which it may have counted.
	fresh(at, from Time, p *Policy) state
	// resetState returns the state of a counter after a reset.
	resetState(at Time, p *Policy, st state) state
	// load sets v's state from its word and cells. It returns false if the cells changed meanwhile.
	load(v *view, at Time, p *Policy) bool
	// importState sets v's state from v.reported, so that later methods read cells from there.
	importState(v *view, at Time, p *Policy)
	// merge merges the state that a store reported for the counter of charge i (there) into the
	// local counter v and returns the new local state. ok is false if the local counter keeps its
	// state.
	merge(v, there *view, at Time, b *Batch, i int) (after state, ok bool)
	// export writes the state st of v to s, which must be cleared.
	export(v *view, at Time, p *Policy, st state, s *State)

	// decide decides c with the given remaining hits in the state st. It returns the state after
	// the charge. It does not set those fields of d that describe the counter afterwards; see
	// finish. ok is false if the cells of v have changed.
	decide(v *view, at Time, c *Charge, hits uint64, budget time.Duration, st state, d *Decision) (after state, ok bool)
	// finish completes d with the fields that describe the counter in the state st after the
	// charge.
	finish(v *view, at Time, p *Policy, budget time.Duration, st state, d *Decision)
	// undo returns v's state at now without the hits that d charged at the time at. mark is that
	// of the state after that charge. lost is true if the charge cannot be undone: it or a later
	// charge is delayed, and it is not the newest.
	undo(v *view, at, now Time, p *Policy, mark int64, d *Decision) (after state, lost bool)
	// store returns the word of the state after, without its highest bit. For a counter with cells
	// this is the payload, and store also writes the cells and the note to a slot that no other
	// goroutine accesses. The slot may be v's own.
	store(v *view, s *sizeClass, index uint64, p *Policy, after state) uint64

	// expiry returns the time at which the counter in a slot becomes equal to an absent one, and
	// whether that is later than at.
	expiry(s *sizeClass, index, word uint64, at Time) (end Time, live bool)
	// weight returns the number of hits of the counter in a slot if hasWeight is true, otherwise 1.
	// Evicting a counter of weight 0 loses nothing.
	weight(s *sizeClass, index, word uint64) uint64
	// hasWeight reports whether the number of hits can be read from the counter.
	hasWeight() bool
}

// algorithmsByNumber is indexed by [Algorithm].
var algorithmsByNumber = [...]algorithm{
	FixedWindow: fixedWindow{}, SlidingWindow: slidingWindow{}, SlidingLog: slidingLog{},
	TokenBucket: gcra{}, LeakyBucket: gcra{}, Concurrency: concurrency{},
}

var _ [Algorithms]algorithm = algorithmsByNumber // no entry is missing

// algorithmsByTag is indexed by the algorithm bits of a tag. Unknown numbers map to the fixed
// window, so that an unvalidated policy does not panic.
var algorithmsByTag = func() (all [1 << algorithmBits]algorithm) {
	for a := range all {
		all[a] = algorithmsByNumber[FixedWindow]
	}
	copy(all[1:], algorithmsByNumber[1:])
	all[penaltyKind] = penalty{}
	return all
}()

func (p *Policy) algorithm() algorithm { return algorithmsByTag[p.Algorithm&(1<<algorithmBits-1)] }

// A state is the value of a counter at a given time, after expired hits were removed. The meaning
// of the fields depends on the algorithm:
//
//	                used                   past                       mark
//	fixed window    hits                   -                          end, Unix seconds
//	sliding window  hits of the current    hits of earlier sub-       number of the
//	                sub-window             windows that count         current sub-window
//	sliding log     hits not yet in cells  hits in cells that count   time of the newest hit,
//	                                                                  or now if later
//	buckets         -                      -                          TAT and its unit
//	concurrency     permits to acquire     permits held in cells      lease acquired or
//	                                                                  released last; 0 if none
//
// If two states of one view are equal, no write is needed. mark distinguishes the time of a charge
// from later times.
type state struct {
	used, past uint64
	mark       int64
}

// A view is a counter as it was read at some moment.
type view struct {
	class     *sizeClass // size class of the counter, also if it is absent
	slot      *slot      // nil if the counter is absent
	index     uint64     // number of slot
	word      uint64     // slot.word as loaded
	head      int64      // sliding window: number of the sub-window that word counts; log, concurrency: noHead
	newer     uint64     // log: number of hits newer than those undone
	held      uint64     // concurrency: permits held
	undone    int64      // sliding window: number of the sub-window whose hits are undone
	misplaced bool       // the counter is not in the size class where it belongs
	mirror    bool       // the table mirrors a store, so any valid lease releases a permit
	reported  *State     // counter as reported by a store; valid if class is &externalClass
	at        Time       // time of the read
	salt      uint64     // for nonces of new leases
	state                // value of the counter at the time at
}

// noHead is the head of a counter whose hits are all in cells.
const noHead = math.MinInt64

// externalClass is the size class of views of counters that a store reported. These have no slot.
var externalClass sizeClass

// Bits of a tag. The low bits say how to interpret the slot's word, so that counters of all
// algorithms can share one table. They are never 0.
const (
	algorithmBits = 3
	kindBits      = algorithmBits + 1
	// secondBit is set if the slot is in the second block of its counter.
	secondBit = 1
)

// tagOf returns the tag of counter id under algorithm a, without secondBit.
func tagOf(id identity.ID, a Algorithm) uint64 {
	if a %= 1 << algorithmBits; a == 0 { // the policy was not validated
		a = FixedWindow
	}
	return id.Hi&^(1<<kindBits-1) | uint64(a)<<1
}

func (c *Charge) tag() uint64 { return tagOf(c.ID, c.Policy.Algorithm) }

// kindOf returns the algorithm of a counter with the tag: one of Algorithms, or penaltyKind.
func kindOf(tag uint64) Algorithm { return Algorithm(tag >> 1 & (1<<algorithmBits - 1)) }

func algorithmOf(tag uint64) algorithm { return algorithmsByTag[kindOf(tag)] }
