package limiter

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Time is an instant in nanoseconds since the Unix epoch. Instants may be handed
// to a [Table] in any order: a counter never goes back to an older window.
type Time int64

// Never is the [Decision.RetryAfter] of hits that can never be admitted, because
// they exceed the whole capacity of their limit.
const Never time.Duration = -1

// Mode says what a charge without room does to its group.
type Mode uint8

// The modes.
const (
	// Enforce denies the group.
	Enforce Mode = iota
	// Shadow never denies.
	Shadow
	// Quota denies only when every quota charge of the batch lacks room and
	// [Batch.QuotaPass] is not set.
	Quota
	// Watch never denies, nor does the request wait for it.
	Watch
)

// Denies reports whether a charge without room may deny its group.
func (m Mode) Denies() bool { return m == Enforce || m == Quota }

// Charge is one counter to be hit.
type Charge struct {
	// ID is the counter.
	ID identity.ID
	// Policy must not be nil.
	Policy *Policy
	// Hits to take; 0 only peeks. For a refund the hits to give back.
	Hits uint64
	// Refund gives Hits back: it always passes, is applied even if its group is
	// denied, and never brings a counter above full. It is first set off
	// against the charges on the same counter in the same batch. The part that
	// was set off against hits that do not count after all is given back last.
	Refund bool
	// Reserve holds Hits beside the counter, under a lease, in place of charging them: see [Reserve].
	Reserve bool
	// Mode is what happens to the group when there is no room.
	Mode Mode
	// Group numbers the charges that are decided together: if one of them
	// denies, none that does not count denied hits is charged. Charges of one
	// group are adjacent and numbers ascend.
	Group int32
}

// Decision is the answer to one [Charge].
type Decision struct {
	// Over reports whether the counter had no room for the hits; for a peek,
	// whether it was already beyond its limit. Always false for a refund.
	Over bool
	// Denied reports whether the charge's group was denied.
	Denied bool
	// Penalty is the step of the penalty, from 1, that the charge is under or has begun; 0 for none. RetryAfter and
	// Reset reach to its end then, at least.
	Penalty uint8
	// PenaltyStarted reports whether the charge has begun that penalty.
	PenaltyStarted bool
	// Before is what was used of the [Policy.Capacity] when the charge was
	// decided, earlier charges of the same batch on the same counter included. It
	// may exceed the capacity where denied hits count. For a refund it is what
	// was used when the last part was given back, and the parts before that.
	Before uint64
	// Charged is what the counter took (for a refund: gave back), so what a refund
	// may give back. It is less than the hits where a count saturates, debt is at
	// its cap, or denied hits take the place of older ones in a full log.
	Charged uint64
	// Remaining is how many single hits would still be admitted after this
	// charge, those that would wait included; 0 when Over.
	Remaining uint64
	// Reset is the time until the counter is as new; when Over, until the same
	// hits would pass, one Window if never. For a fixed window it is always the
	// time until the window ends. Positive.
	Reset time.Duration
	// RetryAfter is, when Over, the time until the same hits would pass, or
	// [Never]; else 0.
	RetryAfter time.Duration
	// Wait is how long the hits have to be held, 0 for at once. Always 0 when the
	// charge is Over or its group was denied.
	Wait time.Duration
}

// Batch is the charges of one request and their decisions. It is reused from
// request to request; one goroutine uses it at a time. The zero value is ready.
type Batch struct {
	// Charges is filled by the caller.
	Charges []Charge
	// QuotaPass says that some quota member that is no quota charge passes (one in
	// shadow mode, say), so that no quota charge denies.
	QuotaPass bool
	// Budget is how long the request may be held at most, what is left of its
	// deadline; a hit that would wait longer is denied. 0 means that it must not
	// be held at all.
	Budget time.Duration
	// Clock, if set, tells the time at which a group gives back what it took from
	// a bucket because it is denied after all: what drained meanwhile does not come
	// back. nil means the time that was passed to [Table.Decide].
	Clock func() Time
	// Partition is where the counters are, nil for the table's common partition.
	Partition *Partition

	// Decisions is filled by [Table.Decide], one per charge, in their order.
	Decisions []Decision
	// Denied is set by [Table.Decide]: at least one group was denied.
	Denied bool
	// Wait is set by [Table.Decide]: how long the request has to be held, the
	// longest Wait of its decisions but for those of mode [Watch]; 0 if it is denied.
	Wait time.Duration

	table *Table // that has the counters; nil if a store told of them
	// What Decide needs beside the above, kept so that it need not be allocated.
	members []member // one group, or all charges, ordered by counter
	turns   []turn   // what they are ordered by
	view    view     // the counter that is being charged
	spare   Decision // of peeks, and of what is not certain yet
	marks   []int64  // the number of the state in which a charge left its counter
	left    []uint64 // hits that remain after the set-off; see hits
	setOffs []Offset // what refunds were set off against
	offset  bool     // left and setOffs are valid
	kept    []kept   // the counters, if a store told of them; see Stored
	extra   bool     // leases and penal say something; else both are false
	leases  bool     // a policy gives leases
	settled []bool   // with leases, what settleLeases has decided
	aside   *aside   // what reservations and penalties need; nil until there is one

	penal     bool       // a charge may be denied by a penalty, or begin one
	sentences []sentence // with penal, those that the charges are under
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.poison()
	clear(b.Charges) // drop the policies of an earlier rule set
	b.Charges, b.Decisions = b.Charges[:0], b.Decisions[:0]
	b.QuotaPass, b.Denied, b.offset = false, false, false
	b.leases, b.penal, b.extra = false, false, false
	b.Budget, b.Partition, b.Wait, b.table = 0, nil, 0, nil
	clear(b.kept)
	b.poisonKept()
	b.kept = b.kept[:0]
}

// A member is one charge of a batch, in the order of counters.
type member struct {
	turn

	seen          view  // of the first member on each counter: what was seen of it
	before, after state // what the charge would find there, and leave
}

// A turn is the place of a charge in the order of counters.
type turn struct {
	// counter is the tag with the high bit for what may have to wait, and lo the rest of the ID.
	counter, lo uint64
	index       int // into Batch.Charges
}

// A SetOff is hits of a refund that are set off against hits of a charge on the same counter.
type Offset struct {
	// Refund and Charge are indices into [Batch.Charges].
	Refund, Charge int
	// Hits are 0 once the refund has given them back, because those of the charge do not count.
	Hits uint64
}

// A kept is a counter that a store told of, while the charges of a batch are decided.
type kept struct {
	told  State // what the store told: of the charge its Stamp, of the first on the counter all else
	first int   // the first charge on the counter, whose kept says what follows

	changed bool // a charge has made it state
	state   state
	newest  Time // of a log of which a refund took the newest hits: the newest that stays; else 0
}
