package store

import (
	"bytes"
	"crypto/rand"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A block is hits of one fixed window that a replica has charged to the store in advance. The
// replica admits requests from its blocks without the store.
//
// The charge of a block is an ordinary charge: the store admits it only if all its hits fit into
// the window. So the hits that all replicas admit are at most the hits that the store has charged,
// which are at most the limit: no block, however it is lost, lets a window exceed its limit. Three
// rules bound the hits that a replica has while another one denies:
//
//   - A block has at most the replica's demand over hold, or until the window ends, and at most its
//     share of the remaining hits. So blocks become smaller as the limit is approached; then each request asks the store.
//   - Hits that were not used for blockIdle are returned, and those beyond the demand.
//   - A denial is repeated from memory for denyFor only.
//
// A block is used only in its window, by the time of the request and by the monotonic clock, and
// only until the store has recovered from an outage.
const (
	// minHold is the time for whose demand a block suffices at most, in addition to four round trips.
	minHold = time.Second
	// demandPeriod is the time over which demand is measured.
	demandPeriod  = 500 * time.Millisecond
	demandSamples = 10
	// minDemand is the number of hits in demandPeriod that make a counter hot.
	minDemand = 5
	// minBlock is the smallest block: a single hit costs less without one.
	minBlock = 2
	// blockIdle is how long hits of a block may be unused before they are returned.
	blockIdle = 200 * time.Millisecond
	// maxUnused is the number of unused hits, relative to the demand, that a replica keeps.
	maxUnused = 4
	// denyFor is how long a denial by the store is repeated.
	denyFor = 50 * time.Millisecond
	// sweepBlocks is how often idle blocks and the ends of windows are looked for.
	sweepBlocks = 50 * time.Millisecond
	// unknownReplicas is the number of replicas until the store has reported it.
	unknownReplicas = 4
	// replicaExpiry is how long a replica counts after it was last seen.
	replicaExpiry = 3 * time.Second
	// maxHot bounds the number of counters with blocks.
	maxHot = 1 << 14
)

// blocks are the blocks of a store's hot counters.
type blocks struct {
	store    *Store
	base     time.Time              // monotonic times are relative to it
	cold     [1 << 16]atomic.Uint64 // recent hits of other counters: see warm
	hot      [maxHot]atomic.Pointer[hotCounter]
	down     atomic.Bool   // the store is unavailable
	replica  string        // unique name of this replica
	replicas atomic.Int64  // number of replicas that have blocks, 0 if it is not known
	trip     atomic.Int64  // smoothed round trip in nanoseconds
	wake     chan struct{} // signals run that there are hot counters; holds one element

	mu  sync.Mutex
	all []*hotCounter
}

func newBlocks(s *Store) *blocks {
	return &blocks{store: s, base: clock(), replica: rand.Text(), wake: make(chan struct{}, 1)}
}

// A hotCounter is a counter that may have blocks. Requests use the fields up to retired; only the
// owner of acquiring adds hits.
type hotCounter struct {
	blocks    *blocks
	charge    limiter.Charge // of one hit, with policy
	policy    limiter.Policy // that of charges of blocks: they do not count if denied
	balances  [2]balance     // of the current window and of the next
	demand    atomic.Int64   // hits of all requests
	denial    atomic.Pointer[denial]
	acquiring atomic.Bool // a block is being acquired, or the counter is retired

	partition *limiter.Partition
	name      []byte // without the start of a window

	// Used by the owner of acquiring.
	batch limiter.Batch
	end   limiter.Time // end of the window of the block
	state limiter.State

	mu      sync.Mutex
	known   [2]windowCount // latest counts in the store
	conn    *redis.Conn    // on which the last block was acquired
	samples [demandSamples + 1]demandSample
	sampled int // number of samples

	retired bool // used by sweep
}

// A balance is the unused hits of a window.
type balance struct {
	word  atomic.Uint64 // end of the window in seconds, modulo 2^32, and unused hits in the low half
	until atomic.Int64  // end of the window by the monotonic clock
	half  atomic.Uint64 // the next block is acquired at this number of hits
	count atomic.Uint64 // the store's count, which includes the unused hits

	granted uint64 // unused hits after the last block was added, without returned ones; protected by mu

	// Used by sweep.
	seen   uint64
	seenAt time.Duration
	merged limiter.Time // end of the window that was merged into the mirror
}

const hitsMask = math.MaxUint32

// A windowCount is the number of hits of a window in the store.
type windowCount struct {
	end   limiter.Time
	count uint64
}

// A denial is a count that leaves no room, or not enough for some hits.
type denial struct {
	windowCount

	until time.Duration
}

// A demandSample is the demand until a time.
type demandSample struct {
	at   time.Duration
	hits int64
}

// usesBlocks reports whether c may be decided from a block.
func usesBlocks(c *limiter.Charge) bool {
	p := c.Policy
	return p.Algorithm == limiter.FixedWindow && c.Hits > 0 && c.Hits <= hitsMask && !c.Refund && !c.Reserve &&
		p.Reserve == nil && p.Penalty == nil && !p.NoBlocks && p.Limit > 0
}

// decide decides b at the time now from a block, or by repeating a denial. If done is false, the
// store must decide; hot is true if the counter may have blocks.
func (bl *blocks) decide(now limiter.Time, b *limiter.Batch, names [][]byte) (done, hot bool) {
	c := &b.Charges[0]
	if len(b.Charges) != 1 || !usesBlocks(c) {
		return false, false
	}
	h, elapsed := bl.find(c), time.Since(bl.base)
	if h == nil {
		bl.warm(c, b.Partition, names[0], elapsed)
		return false, false
	}
	if h.policy.Limit != c.Policy.Limit || h.partition != b.Partition || !bytes.Equal(h.name, names[0]) {
		// The rule was edited. Blocks from before are returned when they are idle.
		return false, true
	}
	h.demand.Add(int64(c.Hits)) //nolint:gosec // at most hitsMask
	at := bl.store.main.time(now)
	end := c.Policy.WindowEnd(at)
	for i := range h.balances {
		w := &h.balances[i]
		left, ok := w.spend(end, c.Hits, elapsed)
		if !ok {
			continue
		}
		used := min(w.count.Load(), uint64(c.Policy.Limit))
		bl.decideFrom(at, b, limiter.State{Hits: used - min(used, left+c.Hits), Time: end})
		if left <= w.half.Load() {
			h.acquire(now, end, elapsed, c.Hits)
		}
		return true, true
	}
	if d := h.denial.Load(); d != nil && h.repeats(d, end, c, elapsed) {
		bl.decideFrom(at, b, limiter.State{Hits: d.count, Time: end})
		b.Decisions[0].Charged = 0
		return true, true
	}
	h.acquire(now, end, elapsed, c.Hits)
	return false, true
}

// spend takes hits of the window that ends at end, and returns the unused hits after that.
func (w *balance) spend(end limiter.Time, hits uint64, elapsed time.Duration) (left uint64, ok bool) {
	for {
		word := w.word.Load()
		if word>>32 != endOf(end) || word&hitsMask < hits || int64(elapsed) >= w.until.Load() {
			return 0, false
		}
		if w.word.CompareAndSwap(word, word-hits) {
			return word&hitsMask - hits, true
		}
	}
}

// clear takes all hits, and returns their number.
func (w *balance) clear() uint64 {
	for {
		word := w.word.Load()
		if word&hitsMask == 0 || w.word.CompareAndSwap(word, word&^hitsMask) {
			return word & hitsMask
		}
	}
}

// endOf is the end of a window in the word of a balance, and timeOf the reverse.
func endOf(end limiter.Time) uint64 { return uint64(int64(end)/int64(time.Second)) & hitsMask } //nolint:gosec // modulo 2^32

func timeOf(word uint64) limiter.Time { return limiter.Time(word>>32) * limiter.Time(time.Second) }

// decideFrom decides b, which has one charge, by a state of its counter.
func (bl *blocks) decideFrom(at limiter.Time, b *limiter.Batch, found limiter.State) {
	states, _ := statePool.Get().(*[]limiter.State)
	defer statePool.Put(states)
	if len(*states) == 0 {
		*states = append(*states, limiter.State{})
	}
	found.Counts = (*states)[0].Counts[:0] // keeps the memory
	(*states)[0] = found
	b.Stored().Decide(at, (*states)[:1])
	bl.store.options.observe().Decided(byBlock, 1)
}

// repeats reports whether the store would repeat the denial d. If denied hits count, one of them
// must be counted, because a request with 0 hits is denied only beyond the limit. After denyFor it
// reports false to one caller, and to the others after another denyFor.
func (h *hotCounter) repeats(d *denial, end limiter.Time, c *limiter.Charge, elapsed time.Duration) bool {
	limit := uint64(c.Policy.Limit)
	if d.end != end || d.count+c.Hits <= limit || c.Policy.CountRefused && d.count <= limit || h.blocks.down.Load() {
		return false
	}
	return elapsed < d.until || !h.denial.CompareAndSwap(d, &denial{d.windowCount, elapsed + denyFor})
}

// find returns the hot counter of a charge, or nil.
func (bl *blocks) find(c *limiter.Charge) *hotCounter {
	if h := bl.hot[c.ID.Lo%maxHot].Load(); h != nil && h.charge.ID == c.ID {
		return h
	}
	return nil
}

// warm counts the hits of a counter that is not hot. Counters share cells, each for a demandPeriod.
// A cell has 28 bits of the identity, 16 bits of the number of the period, and the hits.
func (bl *blocks) warm(c *limiter.Charge, partition *limiter.Partition, name []byte, elapsed time.Duration) {
	const periodBits, hitBits = 16, 20
	cell, tag := &bl.cold[c.ID.Lo%uint64(len(bl.cold))], c.ID.Lo>>16<<(periodBits+hitBits)
	tag |= uint64(elapsed/demandPeriod) & (1<<periodBits - 1) << hitBits //nolint:gosec // not negative
	old, hits := cell.Load(), min(c.Hits, 1<<(hitBits-1))
	switch {
	case old>>hitBits == tag>>hitBits:
		hits = min(hits+old&(1<<hitBits-1), 1<<hitBits-1)
	case old>>hitBits&(1<<periodBits-1) == tag>>hitBits&(1<<periodBits-1):
		return // used by another counter
	}
	cell.Store(tag | hits) // a concurrent hit may be lost
	if hits >= minDemand {
		bl.promote(c, partition, name, hits, elapsed)
	}
}

// promote makes a counter hot.
func (bl *blocks) promote(c *limiter.Charge, partition *limiter.Partition, name []byte, hits uint64, elapsed time.Duration) {
	if bl.hot[c.ID.Lo%maxHot].Load() != nil { // another counter has the place
		return
	}
	h := &hotCounter{blocks: bl, policy: c.Policy.Clone(nil), partition: partition, name: append([]byte(nil), name...)}
	h.policy.CountRefused = false
	h.policy.Prepare()
	h.charge = limiter.Charge{ID: c.ID, Policy: &h.policy, Hits: 1}
	h.samples[0], h.sampled = demandSample{elapsed - demandPeriod, -int64(hits)}, 1 //nolint:gosec // 20 bits
	if !bl.hot[c.ID.Lo%maxHot].CompareAndSwap(nil, h) {
		return
	}
	bl.mu.Lock()
	bl.all = append(bl.all, h)
	bl.mu.Unlock()
	select {
	case bl.wake <- struct{}{}:
	default:
	}
}

// hold is the time for whose demand a block suffices.
func (bl *blocks) hold() time.Duration { return minHold + 4*time.Duration(bl.trip.Load()) }

// learnTrip records a round trip.
func (bl *blocks) learnTrip(trip time.Duration) {
	old := bl.trip.Load()
	if trip = min(trip, time.Second); old == 0 {
		bl.trip.Store(int64(trip))
		return
	}
	bl.trip.Store(old + (int64(trip)-old)/8)
}

// learn records the count of a counter that a reply of the store has left. over is true if the reply
// was a denial.
func (bl *blocks) learn(c *limiter.Charge, left *limiter.State, over bool) {
	if c.Policy.Algorithm != limiter.FixedWindow {
		return
	}
	if h := bl.find(c); h != nil {
		h.learn(windowCount{left.Time, left.Hits}, over, time.Since(bl.base))
	}
}

func (h *hotCounter) learn(now windowCount, over bool, elapsed time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := 0
	if h.known[1].end == now.end || h.known[0].end != now.end && h.known[1].end < h.known[0].end {
		i = 1
	}
	h.known[i] = now
	if over || now.count >= uint64(h.policy.Limit) {
		h.denial.Store(&denial{now, elapsed + denyFor})
	} else if d := h.denial.Load(); d != nil && d.end == now.end {
		h.denial.Store(nil)
	}
}

// countLocked returns the latest count of a window in the store.
func (h *hotCounter) countLocked(end limiter.Time) uint64 {
	for _, k := range h.known {
		if k.end == end {
			return k.count
		}
	}
	return 0
}
