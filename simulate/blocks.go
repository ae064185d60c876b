package simulate

import (
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/simulate/report"
	"github.com/sluice-ratelimit/sluice/store"
)

// A blockModel is a model of the blocks of package store, whose code needs connections and real
// time. It follows the rules of docs/store.md, for fixed windows: when a counter is hot, the size of
// a block, when it is charged and returned, and how long a denial is repeated. TestBlocksAsInStore
// compares it with that code.
//
// Nothing happens between requests: a counter is brought up to date when it is used again.
type blockModel struct {
	*storeModel

	hold     limiter.Time
	counters map[identity.ID]*blockCounter
	hot      int // number of replicaBlocks
	// cold are the hits of other counters in the period, by [replicaID].
	cold   map[identity.ID]uint64
	period limiter.Time
	batch  limiter.Batch
	found  [1]limiter.State // scratch
}

// A blockCounter is a counter that is hot on some replicas.
type blockCounter struct {
	id     identity.ID
	policy limiter.Policy // denied blocks do not count
	use    *report.StoreUse
	hot    []*replicaBlocks
	next   limiter.Time // time of the next sweep
	end    limiter.Time // end of the window
}

// replicaBlocks are the blocks of a counter on one replica.
type replicaBlocks struct {
	counter *blockCounter
	replica int
	demand  uint64
	samples [store.DemandSamples + 1]struct {
		at   limiter.Time
		hits uint64
	}
	sampled int
	blockWindow
}

// A blockWindow is the state of the current window.
type blockWindow struct {
	unused uint64 // hits of the block
	half   uint64 // the next block is charged at this number
	count  uint64 // the last known one of the store
	seen   uint64 // unused hits at the last change
	seenAt limiter.Time

	denied      uint64       // a count that was denied, or 0
	deniedUntil limiter.Time // it is repeated until then
	replies     []blockReply // those that have not arrived
	acquiring   limiter.Time // when the reply to the last charge of a block arrives
}

// A blockReply is the store's count, and the block that was charged.
type blockReply struct {
	at             limiter.Time
	count, granted uint64
	over           bool
}

func newBlockModel(m *storeModel) *blockModel {
	return &blockModel{
		storeModel: m, hold: limiter.Time(store.MinHold) + 4*m.trip,
		counters: map[identity.ID]*blockCounter{}, cold: map[identity.ID]uint64{},
	}
}

// usesBlocks is [store.UsesBlocks] for the algorithm of this model.
func usesBlocks(c *limiter.Charge) bool {
	return c.Policy.Algorithm == limiter.FixedWindow && store.UsesBlocks(c)
}

// find brings the counters of b up to date. If b can be decided from a block, and its counter is hot
// on this replica, it returns the replica's blocks.
func (m *blockModel) find(at limiter.Time, plan *descriptors.Plan) *replicaBlocks {
	b := &plan.Batch
	for i := range b.Charges {
		m.advance(m.counters[b.Charges[i].ID], at)
	}
	if len(b.Charges) != 1 || !usesBlocks(&b.Charges[0]) {
		return nil
	}
	charge := &b.Charges[0]
	c := m.counters[charge.ID]
	if c != nil {
		for _, r := range c.hot {
			if r.replica == m.replica {
				return r
			}
		}
	}
	if period := at / limiter.Time(store.DemandPeriod); period != m.period {
		clear(m.cold)
		m.period = period
	}
	id := replicaID(charge.ID, m.replica)
	if m.cold[id] += charge.Hits; m.cold[id] < store.MinDemand {
		return nil
	}
	if c == nil {
		c = &blockCounter{id: charge.ID, policy: charge.Policy.Clone(nil), use: m.use(plan.Limits[0]), next: at, end: charge.Policy.WindowEnd(at)}
		c.policy.CountRefused = false
		m.counters[charge.ID] = c
	}
	r := &replicaBlocks{counter: c, replica: m.replica, demand: m.cold[id], sampled: 1}
	r.samples[0].at = at - limiter.Time(store.DemandPeriod)
	c.hot = append(c.hot, r)
	m.hot++
	return nil
}

// decide decides b from a block, or by repeating a denial. It may charge the next block.
func (m *blockModel) decide(at limiter.Time, r *replicaBlocks, b *limiter.Batch) bool {
	c := &b.Charges[0]
	if c.Policy.Limit != r.counter.policy.Limit { // of another row of a table
		return false
	}
	r.demand += c.Hits
	limit := uint64(c.Policy.Limit)
	switch {
	case r.unused >= c.Hits:
		used := min(r.count, limit)
		m.decideFrom(at, b, used-min(used, r.unused))
		r.unused -= c.Hits
		m.acquire(at, r, c.Hits)
		return true
	case r.denied+c.Hits > limit && r.denied > 0 && (!c.Policy.CountRefused || r.denied > limit):
		if at < r.deniedUntil {
			m.decideFrom(at, b, r.denied)
			return true
		}
		r.deniedUntil = at + limiter.Time(store.DenyFor)
	}
	m.acquire(at, r, c.Hits)
	return false
}

// decideFrom decides b by the number of hits before it.
func (m *blockModel) decideFrom(at limiter.Time, b *limiter.Batch, hits uint64) {
	m.found[0] = limiter.State{Hits: hits, Time: b.Charges[0].Policy.WindowEnd(at), Counts: m.found[0].Counts[:0]}
	b.Stored().Decide(at, m.found[:])
}

// acquire charges the next block, unless the replica has enough hits, or the block would not have
// more than the given number of hits. Before the first request of a window, it has been charged.
func (m *blockModel) acquire(at limiter.Time, r *replicaBlocks, hits uint64) {
	c := r.counter
	limit := uint64(c.policy.Limit)
	if at < r.acquiring || r.unused > r.half {
		return
	}
	size := (limit - min(limit, r.count)) / uint64(3*len(m.replicas))
	need := r.rate(at, m.hold)
	if rest := c.end - at; rest < m.hold {
		need = need*float64(rest)/float64(m.hold) - float64(r.unused)
	}
	size = min(size, uint64(max(0, need)))
	if size < max(hits+1, store.MinBlock) {
		return
	}
	count, over := m.charge(at, c, size, false)
	reply, commands := at, 1
	if hits > 0 {
		reply, commands = m.replicas[r.replica].send(at, m.trip, 0)
	}
	m.addCommands(c, commands)
	if over {
		size = 0
	}
	r.acquiring = reply
	r.replies = append(r.replies, blockReply{reply, count, size, over})
}

func (m *blockModel) addCommands(c *blockCounter, n int) {
	c.use.Commands += float64(n)
	m.total.Commands += float64(n)
}

// charge charges hits to the store, or refunds them, and returns the count after that.
func (m *blockModel) charge(at limiter.Time, c *blockCounter, hits uint64, refund bool) (count uint64, over bool) {
	m.batch.Reset()
	m.batch.Charges = append(m.batch.Charges, limiter.Charge{ID: c.id, Policy: &c.policy, Hits: hits, Refund: refund})
	m.table.Decide(at, &m.batch)
	d := &m.batch.Decisions[0]
	return d.Before + d.Charged, d.Over
}

// learn records the count that a request has left on a hot counter.
func (m *blockModel) learn(reply limiter.Time, c *limiter.Charge, d *limiter.Decision) {
	counter := m.counters[c.ID]
	if counter == nil || c.Policy.Algorithm != limiter.FixedWindow {
		return
	}
	for _, r := range counter.hot {
		if r.replica == m.replica {
			r.replies = append(r.replies, blockReply{reply, d.Before + d.Charged, 0, d.Over})
		}
	}
}

// receive processes the replies that have arrived.
func (r *replicaBlocks) receive(now limiter.Time) {
	r.replies = slices.DeleteFunc(r.replies, func(reply blockReply) bool {
		if reply.at > now {
			return false
		}
		r.count, r.denied = reply.count, 0
		if reply.granted > 0 {
			r.unused += reply.granted
			r.half = r.unused / 2
		}
		if reply.over || reply.count >= uint64(r.counter.policy.Limit) {
			r.denied, r.deniedUntil = reply.count, reply.at+limiter.Time(store.DenyFor)
		}
		return true
	})
}

// rate returns the hits that requests need in a duration.
func (r *replicaBlocks) rate(at, during limiter.Time) float64 {
	oldest := r.samples[max(0, r.sampled-len(r.samples))%len(r.samples)]
	took := max(at-oldest.at, limiter.Time(store.DemandPeriod/store.DemandSamples))
	return float64(r.demand-oldest.hits) / float64(took) * float64(during)
}

// advance brings a counter up to date, if it is hot.
func (m *blockModel) advance(c *blockCounter, at limiter.Time) {
	if c == nil {
		return
	}
	for ; c.next <= at && len(c.hot) > 0; c.next += limiter.Time(store.SweepBlocks) {
		m.begin(c, c.next)
		c.hot = slices.DeleteFunc(c.hot, func(r *replicaBlocks) bool { return m.sweep(c, c.next, r) })
	}
	m.begin(c, at)
	for _, r := range c.hot {
		r.receive(at)
	}
	if len(c.hot) == 0 {
		delete(m.counters, c.id)
	}
}

// begin charges the first blocks of a window. Package store charges them before the window begins.
func (m *blockModel) begin(c *blockCounter, at limiter.Time) {
	start := c.end
	if at < start {
		return
	}
	c.end = c.policy.WindowEnd(at)
	for _, r := range c.hot {
		r.blockWindow = blockWindow{replies: r.replies[:0]}
		if r.rate(at, m.hold) >= store.MinBlock {
			m.acquire(max(start, c.policy.WindowStart(at)), r, 0)
		}
	}
}

// sweep measures the demand of a replica, and returns hits that it does not need. It reports whether
// the counter is no longer hot.
func (m *blockModel) sweep(c *blockCounter, at limiter.Time, r *replicaBlocks) (cold bool) {
	r.receive(at)
	sample := &r.samples[r.sampled%len(r.samples)]
	sample.at, sample.hits = at, r.demand
	r.sampled++
	demand := uint64(r.rate(at, m.hold))
	if r.unused != r.seen {
		r.seen, r.seenAt = r.unused, at
	}
	idle := uint64(0)
	switch {
	case at-r.seenAt >= limiter.Time(store.BlockIdle):
		idle = r.unused
	case r.unused > max(store.MinBlock, store.MaxUnused*demand):
		idle = r.unused - 2*demand
	}
	if idle > 0 {
		m.charge(at, c, idle, true)
		m.addCommands(c, 1)
		r.unused -= idle
	}
	if cold = demand < 1 && r.unused == 0 && at >= r.acquiring; cold {
		m.hot--
	}
	return cold
}

// finish returns all hits.
func (m *blockModel) finish(at limiter.Time) {
	for _, c := range m.counters {
		m.advance(c, at+limiter.Time(time.Minute))
	}
}
