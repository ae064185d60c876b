//go:build limiterhooks

package limiter

import (
	"math"
	"time"
)

// Batches, and the views and members in them, are used again for request after request. A field that keeps a value of
// an earlier one is harmless as long as nothing reads it before it is set. With the tag limiterhooks such fields are
// garbage before each use, so that every test finds the ones that are read: garbage is a value that no counter has.
const (
	garbage    = 0xdbdb_dbdb_dbdb_dbdb
	garbageInt = math.MinInt64 + garbage>>2
)

var (
	garbageSlot  slot
	garbageFound = State{
		Hits: garbage, Time: garbageInt, SubWindow: garbageInt, Counts: []uint32{math.MaxUint32, math.MaxUint32}, Stamp: garbageInt, RefundStamp: garbageInt,
		Lease: LastLease, HeldHits: garbage, Reservations: garbage, SettledHits: garbage, PenaltyExpiry: math.MaxInt64, PenaltyLevel: math.MaxUint8,
	}
	garbageState    = state{used: garbage, past: garbage, num: garbageInt}
	garbageTurn     = turn{counter: garbage, lo: garbage, index: math.MinInt}
	garbageDecision = Decision{
		Over: true, Denied: true, Penalty: math.MaxUint8, PenaltyStarted: true, Before: garbage, Charged: garbage, Remaining: garbage,
		Reset: time.Duration(garbageInt), RetryAfter: time.Duration(garbageInt), Wait: math.MaxInt64,
	}
)

// poison makes v garbage. Its class is nil, so that whoever goes on from there fails at once.
func (v *view) poison() {
	*v = view{
		slot: &garbageSlot, index: garbage, word: garbage, head: garbageInt, newer: garbage, moves: true, mirrors: true,
		found: &garbageFound, at: garbageInt, salt: garbage, state: garbageState,
	}
}

// poison makes the decisions of b garbage, and what a decision needs beside b's exported fields, but for what a store
// told.
func (b *Batch) poison() {
	b.view.poison()
	b.spare = garbageDecision
	b.extra, b.leases, b.penal, b.offset = true, true, true, true
	spoil(b.Decisions, garbageDecision)
	spoil(b.marks, garbageInt)
	spoil(b.turns, garbageTurn)
	spoil(b.left, garbage)
	spoil(b.setOffs, Offset{math.MinInt, math.MinInt, garbage})
	spoil(b.settled, true)
	spoil(b.sentences, sentence{garbage, math.MaxInt64})
	members := b.members[:cap(b.members)]
	for i := range members {
		members[i] = member{turn: garbageTurn, before: garbageState, after: garbageState}
		members[i].seen.poison()
	}
}

// poisonKept makes garbage of what stores told of counters.
func (b *Batch) poisonKept() {
	spoil(b.kept, kept{told: garbageFound, first: math.MinInt, changed: true, state: garbageState, newest: garbageInt})
}

// poison makes a garbage.
func (a *aside) poison() {
	a.Batch.poison()
	a.poisonKept()
	a.forced = Policy{Algorithm: Algorithms, Limit: math.MaxUint32, CountRefused: true, wide: true}
	a.denied = Charge{Policy: &a.forced, Hits: garbage, Refund: true, Reserve: true, Mode: Watch + 1, Group: math.MinInt32}
}

// spoil fills the memory of s, up to its capacity.
func spoil[T any](s []T, with T) {
	s = s[:cap(s)]
	for i := range s {
		s[i] = with
	}
}
