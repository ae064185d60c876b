package limiter

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Time is an instant in nanoseconds since the Unix epoch. A [Table] accepts instants in any order:
// a counter never returns to an older window.
type Time int64

// Never is the [Decision.RetryAfter] of hits that exceed the capacity of their limit and can never
// be admitted.
const Never time.Duration = -1

// Mode selects the effect of an over-limit charge on its group.
type Mode uint8

const (
	// Enforce denies the group.
	Enforce Mode = iota
	// Shadow never denies.
	Shadow
	// Quota denies the group only if every quota charge of the batch is over its limit and
	// [Batch.QuotaPass] is not set.
	Quota
	// Watch counts, but neither denies nor delays the request.
	Watch
)

// Denies reports whether an over-limit charge may deny its group.
func (m Mode) Denies() bool { return m == Enforce || m == Quota }

// Charge is a request to count hits on one counter.
type Charge struct {
	// ID identifies the counter.
	ID identity.ID
	// Policy must not be nil.
	Policy *Policy
	// Hits is the number of hits to charge, or to give back if Refund is set. 0 only peeks.
	Hits uint64
	// Refund gives Hits back. A refund always succeeds, even if its group is denied, and never
	// leaves a counter with more than its full capacity. It is first offset against the charges on
	// the same counter in the same batch. If such a charge turns out not to count, the offset hits
	// are refunded last.
	Refund bool
	// Reserve reserves Hits under a lease instead of charging them; see [Reserve].
	Reserve bool
	// Mode is the effect on the group if the charge is over its limit.
	Mode Mode
	// Choice is set for the charges of a choice; see choice.go.
	Choice Choice
	// Group numbers the charges that are decided together: if one of them denies, only those that
	// count denied hits are charged. Charges of a group are adjacent and group numbers ascend.
	Group int32
}

// Decision is the result of one [Charge].
type Decision struct {
	// Over is true if the hits exceed the limit; for a peek, if the counter already exceeds it. It
	// is false for a refund.
	Over bool
	// Denied is true if the charge's group was denied.
	Denied bool
	// Penalty is the step, from 1, of the penalty that denied this charge or was started by it; 0
	// for none. RetryAfter and Reset then extend at least to the end of the penalty.
	Penalty uint8
	// PenaltyStarted is true if this charge started the penalty.
	PenaltyStarted bool
	// Skipped is true for the charges of a choice except the one that describes it. All other
	// fields but Denied are then 0.
	Skipped bool
	// Before is how much of the [Policy.Capacity] was used before this charge, including earlier
	// charges of the batch on the same counter. It may exceed the capacity if denied hits count. For
	// a refund that is given back in several parts, the earlier parts count as still used.
	Before uint64
	// Charged is the number of hits that were counted, or given back by a refund; a later refund
	// can give back at most this number. It is less than the hits if a count saturates, if debt is
	// at its cap, or if denied hits replace older ones in a full log.
	Charged uint64
	// Remaining is how many single hits would be admitted after this charge, including delayed
	// hits; 0 if Over.
	Remaining uint64
	// Reset is the time until the counter is unused again; if Over, until the same hits would be
	// admitted, or one Window if never. For a fixed window it is always the time until the window
	// ends. It is always positive.
	Reset time.Duration
	// RetryAfter is, if Over, the time until the same hits would be admitted, or [Never]; otherwise
	// 0.
	RetryAfter time.Duration
	// Wait is how long to delay the request for this charge. It is 0 if the charge is Over or its
	// group was denied.
	Wait time.Duration
}

// Batch contains the charges of one request and their decisions. It is reused from request to
// request and must not be used concurrently. The zero value is ready to use.
type Batch struct {
	// Charges is set by the caller.
	Charges []Charge
	// QuotaPass is true if a quota passes that has no charge of mode [Quota] in this batch, such as
	// one in shadow mode. The batch's quota charges then do not deny.
	QuotaPass bool
	// Budget is the maximum delay of the request, from its deadline. A hit that would be delayed
	// longer is denied. 0 allows no delay.
	Budget time.Duration
	// Clock, if set, returns the time at which a denied group undoes its charges on a bucket. If
	// others charged the bucket meanwhile, hits that have drained are not given back. If nil, the time
	// passed to [Table.Decide] is used.
	Clock func() Time
	// Partition contains the counters; nil is the table's common partition.
	Partition *Partition
	// Observer observes the blocks of a store that the batch causes. Optional.
	Observer BlockObserver

	// Decisions has one decision per charge, in the same order. It is set by [Table.Decide].
	Decisions []Decision
	// Denied is set by [Table.Decide] if at least one group was denied.
	Denied bool
	// Wait is set by [Table.Decide] to the longest Wait of the decisions, except those of mode
	// [Watch]; 0 if the request is denied.
	Wait time.Duration

	table *Table // contains the counters; nil if a store reported them
	// Scratch memory of Decide, kept to avoid allocations.
	members    []member        // the charges of a group, or all charges, ordered by counter
	order      []counterKey    // sort keys of members
	view       view            // the counter that is being charged
	scratch    Decision        // decision of a peek, or one that may be discarded
	marks      []int64         // state.mark of the counter after each charge, or the lease
	precharged []uint64        // hits of each charge that were charged in advance; empty without an Observer
	hitsLeft   []uint64        // hits of each charge that remain after offsetRefunds
	offsets    []Offset        // refunds offset against charges
	offsetDone bool            // hitsLeft and offsets are valid
	stored     []storedCounter // the counters, if a store reported them
	special    bool            // usesLeases or usesPenalties is true
	choices    bool            // a charge belongs to a choice
	usesLeases bool            // a policy grants leases
	settled    []bool          // charges decided by settleLeases; valid if usesLeases
	companion  *companion      // batch for reservations and penalties; nil until needed

	usesPenalties bool            // a charge may be denied by a penalty or start one
	penalties     []activePenalty // penalties of the charges; valid if usesPenalties
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.poison()
	clear(b.Charges) // drop the policies of an earlier rule set
	b.Charges = b.Charges[:0]
	b.Decisions = b.Decisions[:0]
	b.QuotaPass = false
	b.Denied = false
	b.offsetDone = false
	b.usesLeases = false
	b.usesPenalties = false
	b.special = false
	b.choices = false
	b.Budget = 0
	b.Partition = nil
	b.Wait = 0
	b.table = nil
	b.Observer = nil
	b.precharged = b.precharged[:0]
	clear(b.stored)
	b.poisonStored()
	b.stored = b.stored[:0]
}

// A member is a charge of a batch, in the order of counters.
type member struct {
	counterKey

	seen          view  // the counter as last read; first member of each counter only
	before, after state // state of the counter before and after the charge
}

// A counterKey is the sort key of a charge.
type counterKey struct {
	// counter is the tag, with the high bit set if hits may be delayed, and lo is ID.Lo.
	counter, lo uint64
	index       int // into Batch.Charges
}

// An Offset is a number of refunded hits that cancel hits of a charge on the same counter.
type Offset struct {
	// Refund and Charge are indices into [Batch.Charges].
	Refund, Charge int
	// Hits is reset to 0 if the charge turns out not to count and the refund has given them back.
	Hits uint64
}

// A storedCounter is a counter reported by a store, while the charges of a batch are decided.
type storedCounter struct {
	reported State // as reported for charge first, with Stamp, RefundStamp, Lease and SettledHits of this charge
	first    int   // first charge on the same counter; only its element uses the fields below

	changed bool // state is valid: a charge has changed the counter
	state   state
	newest  Time // time of the newest remaining hit of a log after its newest hits were refunded; else 0
}
