package store

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// These constants determine the number of batches in flight of a [Store]. Package simulate repeats the
// rules that use them.
const (
	MinInFlight = minInFlight
	MaxInFlight = maxInFlight
	TripPart    = tripPart
)

// UsesBlocks reports whether blocks of a charge are simulated. Those of a log are not: the table has
// no hits of a later time.
func UsesBlocks(c *limiter.Charge) bool {
	return usesBlocks(c) && c.Policy.Algorithm != limiter.SlidingLog
}

// A SimulatedStore is the store of a [SimulatedReplica].
type SimulatedStore struct {
	// Table has the counters of the store.
	Table *limiter.Table
	// Trip is the round trip.
	Trip time.Duration
	// Replicas is the number of replicas.
	Replicas int
	// Blocks is set if the replicas have blocks.
	Blocks bool
	// Send is called for each command about blocks of a counter, with its description by
	// [limiter.Batch.Describer], or nil. It returns the time at which the reply arrives.
	Send func(now limiter.Time, description any) (reply limiter.Time)
	// Schedule must call f later, at a time that is at least at.
	Schedule func(at limiter.Time, f func(now limiter.Time))
}

// A SimulatedReplica decides requests without the store as a [Store] does: from blocks, and by
// repeating denials. Time is simulated, and must not go back. It is not safe for concurrent use.
type SimulatedReplica struct {
	memory

	store    SimulatedStore
	start    limiter.Time // monotonic times are relative to it
	now      limiter.Time
	sweeping bool // a sweep is scheduled
	names    [maxBlockCharges][]byte
}

// NewSimulatedReplica returns a replica. mirror is its own table, with the counters that it knows.
func NewSimulatedReplica(s SimulatedStore, mirror *limiter.Table) *SimulatedReplica {
	r := &SimulatedReplica{store: s}
	r.mirror = mirror
	r.mirror.SetMirror()
	if s.Blocks {
		r.blocks = newBlocks(r, &r.memory, func() time.Duration { return time.Duration(r.now - r.start) })
		r.blocks.trip.Store(int64(s.Trip))
		r.blocks.replicas.Store(int64(s.Replicas))
	}
	return r
}

// Decide decides b without the store, or reports false: then the store must decide.
func (r *SimulatedReplica) Decide(now limiter.Time, b *limiter.Batch) bool {
	r.setTime(now)
	hot := false
	withoutBlocks := func(c limiter.Charge) bool { return !UsesBlocks(&c) }
	if r.blocks != nil && len(b.Charges) <= len(r.names) && !slices.ContainsFunc(b.Charges, withoutBlocks) {
		var done bool
		done, hot = r.blocks.decide(now, b, r.names[:len(b.Charges)])
		if r.scheduleSweep(); done {
			return true
		}
	}
	return !hot && r.mayDeny(b) && r.deny(now, b)
}

func (r *SimulatedReplica) setTime(now limiter.Time) {
	if r.start == 0 {
		r.start = now
	}
	r.now = now
}

// Decided must be called after the store's table has decided b at the time at. The replica learns the
// result when the reply arrives.
func (r *SimulatedReplica) Decided(at, reply limiter.Time, b *limiter.Batch) {
	c, left := b.Stored().Clone(), make([]limiter.State, len(b.Charges))
	c.Stored().ResetDecisions()
	copy(c.Decisions, b.Decisions)
	c.Stored().ReadStates(r.store.Table, at, left)
	r.store.Schedule(reply, func(now limiter.Time) {
		r.setTime(now)
		for i := range c.Charges {
			if !c.Charges[i].Policy.UsesLeases() {
				r.update(at, c, i, &left[i])
			}
		}
	})
}

// Hot returns the number of hot counters.
func (r *SimulatedReplica) Hot() int {
	if r.blocks == nil {
		return 0
	}
	return len(r.blocks.all)
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
// window is charged when that window begins, before other hits.
func (r *SimulatedReplica) chargeBlock(h *hotCounter, now, at limiter.Time) bool {
	reply, b, life := r.store.Send(now, h.description), h.batch.Stored(), limiter.Time(h.life)
	found := make([]limiter.State, 1) // the batch refers to it until the reply
	if at > now {
		found[0].Time = h.end
	} else {
		b.ReadStates(r.store.Table, at, found)
	}
	if isBucket(&h.policy) {
		found[0].AdvanceTAT(at + life) // as the script does
	}
	b.Decide(at, found)
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
func (r *SimulatedReplica) returnHits(h *hotCounter, hits uint64, at, _ limiter.Time, _ *blockState) bool {
	r.store.Send(r.now, h.description)
	r.decideInTable(at, h.chargeOf(hits, true), h.partition)
	return true
}

// readEnded implements [blockServer]. The table does not have that window any more.
func (r *SimulatedReplica) readEnded(c *deniedCheck, now, _ limiter.Time) {
	r.store.Send(now, c.hot.description)
}

// countBlockHits implements [blockServer].
func (*SimulatedReplica) countBlockHits(string, uint64) {}
