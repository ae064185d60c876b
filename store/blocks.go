package store

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A block is hits of one counter that a replica has charged to the store in advance. The replica
// admits requests from its blocks without the store. The store admits the charge of a block only if
// there is room for all its hits, and no hit of a block is used before it was charged, so a block
// can exceed a limit only if its hits are used too late. For each algorithm a rule prevents that:
//
//   - Fixed window: hits are used in the window that they were charged to. So the hits that all
//     replicas admit in a window are at most those that the store charged to it.
//   - Sliding window: the same for the sub-window that they were charged to. The store counts hits
//     by sub-window only, so it does not matter when in the sub-window they are used.
//   - Token and leaky bucket: hits that are charged at t are used before t + life. The store
//     advances the TAT to t + life, if it is earlier, and then by T for each hit; it admits them if
//     the TAT is then at most t + full, as for all hits. Proof that no interval [a, b] has more hits
//     than (b - a + full) / T: hits in it that were charged before a belong to a block that lasts
//     until after a. So each hit in the interval advances a TAT of at least a by T. The last one
//     leaves it at b + full at most. Unused hits are not returned: if a later block has advanced the
//     TAT to its own end, the TAT does not include the hits of the first block any more.
//
// So no block, however it is lost, lets a limit be exceeded. Three rules bound the hits that a
// replica has while another one denies:
//
//   - A block has at most the hits that the replica needs in the time hold, or until they can no
//     longer be used, and at most the replica's share of the remaining hits. So blocks become smaller
//     near the limit, until each request asks the store.
//   - Hits of windows are returned if none of them was used for blockIdle. Those beyond the demand are
//     returned, too.
//   - A denial is repeated from memory for denyFor only.
//
// Blocks are used only until the store has recovered from an outage.
const (
	// minHold and four round trips are the time for which a block suffices at most.
	minHold = time.Second
	// smallBlock is the number of hits below which a block of a window suffices for twice that time:
	// small blocks cost many commands, and leave few hits unused.
	smallBlock = 64
	// minBlock is the smallest block: a single hit costs less without one.
	minBlock = 2
	// reserved is the number of largest requests of each replica for which a block leaves room in the
	// store.
	reserved = 2
	// A bucket's block is smaller than the need while it lasts by this number of standard deviations,
	// beyond that of single hits: unused hits are lost.
	deviations = 1
	// Blocks of a counter bring nothing if they decide fewer than minServed requests for each command,
	// judged by judgedCommands. Then they pause, for minPause at first and for up to maxPause.
	minServed      = 2
	judgedCommands = 8
	minPause       = 2 * time.Second
	maxPause       = time.Minute
	// retryBlock is how long no block is requested after one would have been too small or too short.
	retryBlock = time.Millisecond
	// blockIdle is how long hits of a block may be unused before they are returned.
	blockIdle = 200 * time.Millisecond
	// maxUnused is the number of unused hits, relative to the demand, that a replica keeps.
	maxUnused = 4
	// denyFor is how long a denial by the store is repeated.
	denyFor = 50 * time.Millisecond
	// sweepBlocks is the interval at which sweep looks for idle blocks and for ends of windows.
	sweepBlocks = 50 * time.Millisecond
	// unknownReplicas is the assumed number of replicas until the store has reported it.
	unknownReplicas = 4
	// replicaExpiry is how long a replica counts after it was last seen.
	replicaExpiry = 3 * time.Second
	// maxHot bounds the number of counters with blocks.
	maxHot = 1 << 14
	// maxBlockCharges bounds the charges of a request that is decided from blocks.
	maxBlockCharges = 8
)

// blocks are the blocks of a store's hot counters.
type blocks struct {
	store    *Store
	memory   *memory                // memory of the replica; contains these blocks
	elapsed  func() time.Duration   // monotonic time
	cold     [1 << 16]atomic.Uint64 // recent requests by counters that are not hot
	hot      [maxHot / hotSetSize]hotSet
	down     atomic.Bool   // the store is unavailable
	remember time.Duration // how long after its charge another primary may turn out to lack a block
	lost     atomic.Int64  // monotonic time of its last reply before it became unavailable
	replicas atomic.Int64  // number of replicas that have blocks, 0 if it is not known
	trip     atomic.Int64  // smoothed round-trip time in nanoseconds
	dataID   string        // identifies the primary that has charged the blocks; "" if it is not known; used by the prober
	wake     chan struct{} // signals that there are hot counters; holds one element

	mu  sync.Mutex
	all []*hotCounter
}

func newBlocks(s *Store, elapsed func() time.Duration) *blocks {
	return &blocks{store: s, memory: &s.memory, elapsed: elapsed, wake: make(chan struct{}, 1)}
}

// A hotCounter is a counter that may have blocks. Requests use the fields up to acquiring; only the
// owner of acquiring adds hits.
type hotCounter struct {
	callerEnding

	blocks    *blocks
	charge    limiter.Charge // a charge of one hit, with policy
	policy    limiter.Policy // policy of charges of blocks: they do not count if denied
	balances  [2]*balance    // the balances of windows or timed
	windows   []window       // the current window and the next
	timed     []timedBlock   // the last two blocks of a bucket
	demand    atomic.Int64   // hits of all requests
	unwanted  atomic.Int64   // requests that another limit denied, or had a cold counter
	extra     atomic.Int64   // hits without the first hit of each request
	excess    atomic.Int64   // sum of n (n - 1) for requests of n hits
	newer     atomic.Uint64  // hits of the largest request since largestPeriod began
	older     atomic.Uint64  // hits of the largest request in the period before
	paused    atomic.Bool    // no blocks are requested, because they would bring nothing
	tight     atomic.Bool    // the store had little room at its last reply
	served    atomic.Int64   // requests that were admitted from its blocks, since sweep judged them
	commands  atomic.Int64   // commands that its blocks cost since then
	denial    atomic.Pointer[denial]
	edited    atomic.Bool  // its rule has changed
	retryAt   atomic.Int64 // monotonic time before which no block is requested
	acquiring atomic.Bool  // a block is being acquired, or the counter is retired

	partition *limiter.Partition
	name      []byte // without the start of a window

	// Used by the owner of acquiring.
	batch   limiter.Batch
	observe func(now, end limiter.Time, before, after uint64) // called with each block, unless nil
	conn    *redis.Conn                                       // connection on which the charge of the block was sent
	sent    time.Duration                                     // when it was sent
	current period                                            // period of the block
	life    time.Duration                                     // how long a block of a bucket lasts
	left    limiter.State

	mu      sync.Mutex
	known   [2]limiter.State // latest states in the store, of two fixed windows
	peek    limiter.Batch    // to read a state
	samples [demandSamples + 1]demandSample
	sampled int // number of samples

	// Used by sweep.
	retired       bool
	pause         time.Duration // the last pause, because blocks brought nothing; 0 for none
	resumeAt      time.Duration // when blocks are requested again
	largestPeriod time.Duration // when the largest request was forgotten
}

// copyState copies a state, and reuses the memory of to.
func copyState(to, from *limiter.State) {
	counts := slices.Grow(to.Counts[:0], len(from.Counts))[:len(from.Counts)]
	copy(counts, from.Counts)
	*to = *from
	to.Counts = counts
}

// A local is how a charge is decided from memory: by hits of a balance, or by repeating a denial.
type local struct {
	hot     *hotCounter
	balance *balance
	word    uint64 // word of balance after the hits were spent
	denied  bool   // a denial may be repeated
}

// decide decides b at the time now from blocks, and by repeating denials. If done is false, the
// store must decide. hot is true if b has only one charge, and its counter may have blocks now.
func (bl *blocks) decide(now limiter.Time, b *limiter.Batch, names [][]byte) (done, hot bool) {
	var own [maxBlockCharges]local
	if len(b.Charges) > len(own) || !bl.findAll(now, b, names, own[:]) {
		return false, false
	}
	m := bl.moment(now)
	all := own[:len(b.Charges)]
	ready := true
	for i := range all {
		x := &all[i]
		x.balance = x.hot.balanceWith(b.Charges[i].Hits, m)
		x.denied = x.balance == nil && x.hot.isDenied(m)
		ready = ready && (x.balance != nil || x.denied)
	}
	countDemand(b, all)
	if done = ready && bl.decideLocally(m, b, all); done {
		for i := range all {
			if all[i].balance != nil && b.Decisions[i].Charged > 0 {
				all[i].hot.served.Add(1)
				b.Stored().Precharge(i, b.Charges[i].Hits)
			}
		}
	}
	for i := range all {
		x := &all[i]
		// The counter has no block for the request, or one that will soon be used up.
		if x.balance == nil && !done || x.balance != nil && done && x.balance.runsOut(x.word&hitsMask, m.elapsed) {
			x.hot.acquire(m, b, i)
		}
	}
	return done, len(all) == 1 && (all[0].hot.largest() == 0 || all[0].hot.unused() > 0)
}

// countDemand counts the hits of a request, without those that another limit of their group denies.
func countDemand(b *limiter.Batch, all []local) {
	for i := range all {
		wanted := true
		for k := range all {
			wanted = wanted && (k == i || !all[k].denied || b.Charges[k].Group != b.Charges[i].Group)
		}
		if wanted {
			all[i].hot.wants(b.Charges[i].Hits)
		} else {
			all[i].hot.unwanted.Add(1)
		}
	}
}

// isCurrent reports whether the rule of a counter is still the same. Blocks from before a change are
// returned when they are idle. The counter's identity has the other fields of the policy.
func (h *hotCounter) isCurrent(p *limiter.Policy, partition *limiter.Partition, name []byte) bool {
	return h.policy.Limit == p.Limit && h.policy.Burst == p.Burst && h.policy.Slack == p.Slack &&
		h.partition == partition && bytes.Equal(h.name, name)
}

// findAll finds the hot counters of b. It reports false if not all charges can be decided from
// blocks. It counts the hits of the first counter that is not hot; the others may become hot after it.
func (bl *blocks) findAll(now limiter.Time, b *limiter.Batch, names [][]byte, all []local) bool {
	for i := range b.Charges {
		if !usesBlocks(&b.Charges[i]) {
			return false
		}
	}
	found := true
	for i := range b.Charges {
		h := bl.find(&b.Charges[i])
		all[i].hot = h //nolint:gosec // all is not shorter
		if h == nil {
			bl.warm(now, b, i, names[i])
			for k := range i {
				all[k].hot.unwanted.Add(1) //nolint:gosec // all is not shorter
			}
			return false
		}
		if current := h.isCurrent(b.Charges[i].Policy, b.Partition, names[i]); !current {
			found = false
			h.edited.Store(true)
		}
		for k := range i {
			found = found && all[k].hot != h // several charges on one counter
		}
	}
	return found
}

// decideLocally decides b, whose charges all have a balance or a denial. It reports false if the
// store must decide.
func (bl *blocks) decideLocally(m moment, b *limiter.Batch, all []local) (ok bool) {
	found, _ := statePool.Get().(*[]limiter.State)
	defer statePool.Put(found)
	for len(*found) < len(all) {
		*found = append(*found, limiter.State{})
	}
	states := (*found)[:len(all)]
	spent := 0
	for ok = true; ok && spent < len(all); spent++ {
		x := &all[spent]
		c := &b.Charges[spent]
		before := &states[spent]
		if x.balance == nil {
			ok = x.hot.repeatDenial(c.Hits, m, before)
			continue
		}
		if x.word, ok = x.balance.spend(c.Hits, m, before); ok {
			before.TakeOff(c.Policy, x.word&hitsMask+c.Hits)
		} else {
			x.word = 0
		}
	}
	if ok {
		b.Stored().Decide(m.store, states)
		for i := range all {
			c := &b.Charges[i]
			d := &b.Decisions[i]
			// If denied hits count, one of them must be counted, because a request with 0 hits is
			// denied only beyond the limit.
			ok = ok && d.Over == (all[i].balance == nil) &&
				(!d.Over || !c.Policy.CountRefused || d.Before > uint64(c.Policy.Limit))
		}
	}
	for i := range all[:spent] {
		switch x := &all[i]; {
		case x.balance == nil:
			if ok {
				b.Decisions[i].Charged = 0
			}
		case x.word > 0 && (!ok || b.Decisions[i].Charged == 0):
			x.balance.giveBack(x.word, b.Charges[i].Hits)
		}
	}
	return ok
}

// chargeOf returns a charge, or a refund, of hits.
func (h *hotCounter) chargeOf(hits uint64, refund bool) limiter.Charge {
	c := h.charge
	c.Hits = hits
	c.Refund = refund
	return c
}

func (bl *blocks) counters() []*hotCounter {
	bl.mu.Lock()
	defer bl.mu.Unlock()
	return slices.Clone(bl.all)
}

// count counts hits of blocks for metrics.
func (bl *blocks) count(event string, hits uint64) {
	if hits > 0 {
		bl.store.options.observe().Blocks(event, hits)
	}
}

// A denial is a state that leaves no room, or not enough for some hits.
type denial struct {
	limiter.State

	period period        // the window or sub-window whose hits were denied
	until  time.Duration // monotonic time until which it is repeated to all callers
}
