package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// These are the rules of a [Store] that package simulate has in its own code.
const (
	CacheFor     = cacheFor
	RecheckAfter = recheckAfter
	MinInFlight  = minInFlight
	MaxInFlight  = maxInFlight
	TripPart     = tripPart
)

// UsesBlocks reports whether a charge may be decided from a block if each other one of its request may.
func UsesBlocks(c *limiter.Charge) bool { return usesBlocks(c) }

// A SimulatedStore is the store of a [SimulatedReplica].
type SimulatedStore struct {
	// Table has the counters of the store.
	Table *limiter.Table
	// Trip is the round trip.
	Trip time.Duration
	// Replicas is the number of replicas.
	Replicas int
	// Send is called for each command about blocks of a counter. It returns when the reply arrives.
	Send func(now limiter.Time, id identity.ID) (reply limiter.Time)
	// Schedule must call f later, at a time that is at least at.
	Schedule func(at limiter.Time, f func(now limiter.Time))
}

// A SimulatedReplica decides requests from blocks as a [Store] does, in simulated time. Time must not
// go back. It is not safe for concurrent use.
type SimulatedReplica struct {
	store    SimulatedStore
	blocks   *blocks
	start    limiter.Time // monotonic times are relative to it
	now      limiter.Time
	sweeping bool // a sweep is scheduled
	names    [maxBlockCharges][]byte
	found    [1]limiter.State // scratch
}

// NewSimulatedReplica returns a replica without blocks.
func NewSimulatedReplica(s SimulatedStore) *SimulatedReplica {
	r := &SimulatedReplica{store: s}
	r.blocks = newBlocks(r, func() time.Duration { return time.Duration(r.now - r.start) })
	r.blocks.trip.Store(int64(s.Trip))
	r.blocks.replicas.Store(int64(s.Replicas))
	return r
}

// Decide decides b from blocks, or by repeating denials. If done is false, the store must decide.
// hot is true if the only counter may have blocks: then no denial is known for longer.
func (r *SimulatedReplica) Decide(now limiter.Time, b *limiter.Batch) (done, hot bool) {
	if r.setTime(now); len(b.Charges) > len(r.names) {
		return false, false
	}
	done, hot = r.blocks.decide(now, b, r.names[:len(b.Charges)])
	r.scheduleSweep()
	return done, hot
}

func (r *SimulatedReplica) setTime(now limiter.Time) {
	if r.start == 0 {
		r.start = now - limiter.Time(demandPeriod) // see warm: period 0 is that of empty cells
	}
	r.now = now
}

// Learn records a reply: a charge was decided at the time at, and left is the state of its counter
// after that.
func (r *SimulatedReplica) Learn(now, at limiter.Time, c *limiter.Charge, left *limiter.State, d *limiter.Decision) {
	r.setTime(now)
	r.blocks.learn(at, c, left, d)
}

// Uses reports whether the counter of a charge is hot.
func (r *SimulatedReplica) Uses(c *limiter.Charge) bool { return r.blocks.find(c) != nil }

// Hot returns the number of hot counters.
func (r *SimulatedReplica) Hot() int { return len(r.blocks.all) }

// Unused returns the number of unused hits of all blocks.
func (r *SimulatedReplica) Unused() (n uint64) {
	for _, h := range r.blocks.all {
		n += h.balances[0].unused() + h.balances[1].unused()
	}
	return n
}

func (r *SimulatedReplica) scheduleSweep() {
	if r.sweeping || r.Hot() == 0 {
		return
	}
	r.sweeping = true
	r.store.Schedule(r.now+limiter.Time(sweepBlocks), func(now limiter.Time) {
		r.setTime(now)
		r.blocks.sweep(now, r.blocks.elapsed())
		r.sweeping = false
		r.scheduleSweep()
	})
}

// storeTime implements [blockServer].
func (r *SimulatedReplica) storeTime(now limiter.Time) limiter.Time { return now }

// chargeBlock implements [blockServer]. The table has only the current window, so a block of the next
// one is charged as the first, when that begins.
func (r *SimulatedReplica) chargeBlock(h *hotCounter, now, at limiter.Time) bool {
	reply, b, life := r.store.Send(now, h.charge.ID), h.batch.Stored(), limiter.Time(h.life)
	if at > now {
		r.found[0] = limiter.State{Time: h.end, Counts: r.found[0].Counts[:0]}
	} else {
		b.ReadStates(r.store.Table, at, r.found[:])
	}
	if isBucket(&h.policy) && r.found[0].Time < at+life { // as the script does
		r.found[0].Time, r.found[0].Sixteenths = at+life, 0
	}
	b.Decide(at, r.found[:])
	switch charged := h.batch.Decisions[0].Charged; {
	case charged == 0:
	case at > now:
		r.store.Schedule(at, func(limiter.Time) { r.decideInTable(at, h.chargeOf(charged, false), h.partition) })
	default:
		b.StateAfter(at, 0, &h.left)
		b.MergeInto(r.store.Table, at, 0, &h.left)
	}
	r.store.Schedule(reply, func(arrived limiter.Time) {
		r.setTime(arrived)
		h.charged(now)
		h.Decided(nil)
	})
	return true
}

func (r *SimulatedReplica) decideInTable(at limiter.Time, c limiter.Charge, partition *limiter.Partition) {
	r.store.Table.Decide(at, &limiter.Batch{Charges: []limiter.Charge{c}, Partition: partition})
}

// returnHits implements [blockServer].
func (r *SimulatedReplica) returnHits(h *hotCounter, hits uint64, at, _ limiter.Time, _ *limiter.State) bool {
	r.store.Send(r.now, h.charge.ID)
	r.decideInTable(at, h.chargeOf(hits, true), h.partition)
	return true
}

// readEnded implements [blockServer]. The table does not have that window any more.
func (r *SimulatedReplica) readEnded(c *deniedCheck, now, _ limiter.Time) {
	r.store.Send(now, c.hot.charge.ID)
}

// mirrorBlock implements [blockServer].
func (r *SimulatedReplica) mirrorBlock(h *hotCounter, at limiter.Time) {
	r.blocks.learn(at, &h.batch.Charges[0], &h.left, &h.batch.Decisions[0])
}

// raiseMirror implements [blockServer]: there is no mirror.
func (*SimulatedReplica) raiseMirror(*hotCounter, limiter.Time, *limiter.State) {}

// countBlockHits implements [blockServer].
func (*SimulatedReplica) countBlockHits(string, uint64) {}
