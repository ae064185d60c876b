//go:build limiterhooks

package limiter

import (
	"math"
	"time"
)

// Batches and their views and members are reused for many requests. A field with a value of an
// earlier request is harmless as long as it is set before it is read. With the tag limiterhooks
// such fields are overwritten with garbage before each use, so that tests detect reads of stale
// fields. No counter has these values.
const (
	garbage    = 0xdbdb_dbdb_dbdb_dbdb
	garbageInt = math.MinInt64 + garbage>>2
)

var (
	garbageSlot     slot
	garbageReported = State{
		Hits: garbage, Time: garbageInt, SubWindow: garbageInt, Counts: []uint32{math.MaxUint32, math.MaxUint32}, Stamp: garbageInt, RefundStamp: garbageInt,
		Lease: LastLease, HeldHits: garbage, Reservations: garbage, SettledHits: garbage, PenaltyExpiry: math.MaxInt64, PenaltyLevel: math.MaxUint8,
	}
	garbageState    = state{used: garbage, past: garbage, mark: garbageInt}
	garbageKey      = counterKey{counter: garbage, lo: garbage, index: math.MinInt}
	garbageDecision = Decision{
		Over: true, Denied: true, Penalty: math.MaxUint8, PenaltyStarted: true, Skipped: true, Before: garbage, Charged: garbage, Remaining: garbage,
		Reset: time.Duration(garbageInt), RetryAfter: time.Duration(garbageInt), Wait: math.MaxInt64,
	}
)

// poison overwrites v. Its class is nil, so that a use of it panics.
func (v *view) poison() {
	*v = view{
		slot: &garbageSlot, index: garbage, word: garbage, head: garbageInt, newer: garbage, held: garbage, undone: garbageInt, misplaced: true, mirror: true,
		reported: &garbageReported, at: garbageInt, salt: garbage, state: garbageState,
	}
}

// poison overwrites the decisions and the unexported fields of b, except the states that a store
// reported.
func (b *Batch) poison() {
	b.view.poison()
	b.scratch = garbageDecision
	b.special, b.usesLeases, b.usesPenalties, b.offsetDone, b.choices = true, true, true, true, true
	spoil(b.Decisions, garbageDecision)
	spoil(b.marks, garbageInt)
	spoil(b.order, garbageKey)
	spoil(b.hitsLeft, garbage)
	spoil(b.offsets, Offset{math.MinInt, math.MinInt, garbage})
	spoil(b.settled, true)
	spoil(b.penalties, activePenalty{garbage, math.MaxInt64})
	members := b.members[:cap(b.members)]
	for i := range members {
		members[i] = member{counterKey: garbageKey, before: garbageState, after: garbageState}
		members[i].seen.poison()
	}
}

// poisonStored overwrites the states that a store reported.
func (b *Batch) poisonStored() {
	spoil(b.stored, storedCounter{
		reported: garbageReported, first: math.MinInt, changed: true, state: garbageState, newest: garbageInt,
	})
}

// poison overwrites a.
func (a *companion) poison() {
	a.Batch.poison()
	a.poisonStored()
	a.forcedPolicy = Policy{Algorithm: Algorithms, Limit: math.MaxUint32, CountRefused: true, weighted: true}
	a.deniedCharge = Charge{
		Policy: &a.forcedPolicy, Hits: garbage, Refund: true, Reserve: true, Mode: Watch + 1, Group: math.MinInt32,
	}
}

// spoil overwrites s up to its capacity.
func spoil[T any](s []T, with T) {
	s = s[:cap(s)]
	for i := range s {
		s[i] = with
	}
}
