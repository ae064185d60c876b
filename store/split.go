package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// A split is a request whose counters are in several slots or in two stores. Each part is decided
// on its own. If a part denies a group that has charges in other parts, those charges are refunded.
type split struct {
	store     *Store
	batch     *limiter.Batch
	waiter    limiter.Waiter
	now       limiter.Time
	parts     []*part             // beyond its length there is memory for reuse
	locations []location          // location of each charge
	lastPart  map[[2]uint64]*part // part of the last charge on each counter
	bulk      bool                // the request is large, and must not delay others
	pending   atomic.Int32
	state     limiter.State
}

// A location is a charge of a part.
type location struct {
	part   *part
	charge int
}

// A part is the charges of a split in one slot.
type part struct {
	callerEnding

	split   *split
	backend *backend
	slot    uint16
	cost    time.Duration
	batch   limiter.Batch
	names   [][]byte
	now     limiter.Time // time of the part's fixed windows, by the store's clock
	err     error

	// The request that the store decided, nil if the fallback did; and the time of the reply.
	request   *request
	repliedAt limiter.Time
	late      *request // the request, if it was in flight when the fallback decided; else nil
}

var splits = sync.Pool{New: func() any { return &split{lastPart: map[[2]uint64]*part{}} }}

// split groups the charges of b by slot.
func (s *Store) split(now limiter.Time, b *limiter.Batch, names [][]byte) *split {
	r, _ := splits.Get().(*split)
	r.store = s
	r.batch = b
	r.now = now
	var quotas *part // the last one with quota charges
	several := false // several parts have quota charges
	for i := range b.Charges {
		f, slot := s.slotOf(now, &b.Charges[i], names[i])
		p := r.partFor(i, f, slot, names[i])
		r.locations = append(r.locations, location{p, len(p.batch.Charges)})
		p.batch.Charges = append(p.batch.Charges, b.Charges[i])
		p.names = append(p.names, names[i])
		if b.Charges[i].Mode == limiter.Quota {
			several = several || quotas != nil && quotas != p
			quotas = p
		}
	}
	for _, p := range r.parts {
		// Whether a quota in another part admits is known when all parts have been decided.
		p.batch.QuotaPass = b.QuotaPass || several
		p.batch.Budget = b.Budget
		p.batch.Clock = b.Clock
		p.batch.Partition = b.Partition
	}
	return r
}

// partFor returns the part for charge i, which is in a slot of f: the part of an earlier charge on
// the same counter if it has room, else the newest of the slot, or a new one. A group is divided
// only if it does not fit into one part.
func (r *split) partFor(i int, f *backend, slot uint16, name []byte) *part {
	all := r.batch.Charges
	c := &all[i]
	id := [2]uint64{c.ID.Hi, c.ID.Lo}
	if p := r.lastPart[id]; c.Choice == limiter.NoChoice && p != nil && p.backend == f && p.slot == slot &&
		p.cost < 2*r.store.partBound {
		p.cost += script.CostOfRepeat + script.CostOfHits(c.Policy, c.Hits)
		return p
	}
	cost := script.CostOf(c.Policy, c.Hits)
	limit := r.store.partBound
	need := cost
	if c.Choice == limiter.NextChoice { // a choice is not divided
		p := r.locations[i-1].part
		p.cost += cost
		return p
	}
	if i > 0 && c.Group != all[i-1].Group {
		for k := i + 1; k < len(all) && all[k].Group == c.Group; k++ {
			need += script.CostOf(all[k].Policy, all[k].Hits)
		}
		if need > limit {
			need = cost
		}
	}
	var p *part
	for n := len(r.parts) - 1; n >= 0 && p == nil; n-- {
		if r.parts[n].backend == f && r.parts[n].slot == slot {
			p = r.parts[n]
		}
	}
	if p == nil || p.cost > 0 && p.cost+need > limit {
		p = r.addPart(f, slot, f.timeOf(slot, r.now, c.Policy, name))
	}
	p.cost += cost
	r.lastPart[id] = p
	return p
}

// addPart appends a part, whose counters use the time now.
func (r *split) addPart(f *backend, slot uint16, now limiter.Time) *part {
	n := len(r.parts)
	if n < cap(r.parts) && r.parts[:n+1][n] != nil {
		r.parts = r.parts[:n+1]
	} else {
		r.parts = append(r.parts, &part{split: r})
	}
	p := r.parts[n]
	p.backend = f
	p.slot = slot
	p.cost = 0
	p.now = now
	return p
}

// release puts r back into the pool.
func (r *split) release() {
	for _, p := range r.parts {
		p.batch.Reset()
		clear(p.names)
		p.names = p.names[:0]
		p.err = nil
		p.late = nil
		if p.request != nil {
			p.request.release()
			p.request = nil
		}
	}
	clear(r.locations)
	clear(r.lastPart)
	r.parts = r.parts[:0]
	r.locations = r.locations[:0]
	r.batch = nil
	r.waiter = nil
	r.bulk = false
	splits.Put(r)
}

// start starts to decide the parts of r, and calls w.Decided at the end.
func (r *split) start(w limiter.Waiter) {
	r.waiter = w
	n := len(r.parts)
	r.pending.Store(int32(n)) //nolint:gosec // charges are few
	for i := range n {        // after the last one r may be in use again
		r.parts[i].start()
	}
}

// start starts to decide p.
func (p *part) start() {
	r := p.split
	wait := r.store.options.maxWait(p.batch.Budget)
	if done, err := r.store.decide(p.backend, p.slot, r.now, &p.batch, p.names, p, wait, r.bulk); done {
		p.Decided(err)
	}
}

// Decided implements [limiter.Waiter] for a part.
func (p *part) Decided(err error) {
	p.err = err
	if p.split.pending.Add(-1) == 0 {
		p.split.finish()
	}
}

// replied implements [ending]: p keeps its request until the split is decided.
func (p *part) replied(_ *Store, req *request, _ *limiter.State) (keeps bool) {
	p.request = req
	p.repliedAt = req.repliedAt
	return true
}

// fellBack implements [ending].
func (p *part) fellBack(req *request) { p.late = req }

// finish decides the request after all of its parts, and releases r.
func (r *split) finish() {
	var err error
	for _, p := range r.parts {
		if p.err != nil {
			err = p.err
		}
	}
	w := r.waiter
	switch {
	case err != nil:
		r.refundParts()
	case !r.store.options.guard(func() {
		r.combine()
		r.updateMirror()
	}):
		r.refundParts()
		err = r.decideByFallback()
	}
	r.release()
	w.Decided(err)
}

// decideByFallback decides the request by the fallback, after a panic.
func (r *split) decideByFallback() error {
	s := r.store
	names := make([][]byte, len(r.locations))
	for i, at := range r.locations {
		names[i] = at.part.names[at.charge]
	}
	now := s.main.time(r.now)
	name := func(i int) string { return script.LeaseName(r.batch.Charges[i].Policy, names[i]) }
	err := s.main.withLocalLeases(now, r.batch, name, func() error { return s.fallBack(now, r.batch) })
	s.recordAllUnsynced(s.options.Fallback, err == nil, r.now, r.batch, names, r.waiter)
	return err
}

// refundParts refunds the charges of the decided parts, after another part has failed.
func (r *split) refundParts() {
	for _, at := range slices.Backward(r.locations) {
		if p := at.part; p.err == nil && !p.batch.Decisions[at.charge].Denied {
			r.store.options.guard(at.deny)
		}
	}
}

// combine makes the decisions of the request from those of the parts, as if they had been decided
// together.
func (r *split) combine() {
	all := r.batch.Stored()
	all.ResetDecisions()
	for i, at := range r.locations {
		all.CopyDecision(i, &at.part.batch, at.charge)
	}
	all.ResolveGroups(func(i int) {
		at := r.locations[i]
		at.deny()
		all.CopyDecision(i, &at.part.batch, at.charge)
	})
	for i, at := range r.locations {
		if r.batch.Denied && r.batch.Charges[i].Refund { // it may have refunded more since charges were denied
			all.CopyDecision(i, &at.part.batch, at.charge)
		}
	}
}

// deny changes the decision of a charge to that of a denied group. In the store it refunds the
// charged hits, and the refunds that were set off against them.
func (at location) deny() {
	p := at.part
	i := at.charge
	d := p.batch.Decisions[i]
	stored := p.batch.Stored()
	lease := p.batch.Lease(i)
	c := p.batch.Charges[i]
	if p.request == nil { // decided by the fallback
		_, refunded := stored.Deny(p.now, i)
		if lease > 0 {
			p.backend.recordRelease(p.now, &p.batch, c, lease, script.LeaseName(c.Policy, p.names[i]), p.slot)
			return
		}
		p.subtractUnsynced(i, d.Charged-p.batch.Decisions[i].Charged+refunded)
		return
	}
	if lease > 0 {
		stored.Deny(p.repliedAt, i)
		p.split.store.releaseLease(p.backend, p.slot, p.split.now, c, p.names[i], lease)
		return
	}
	var cancel *request
	if d.Wait > 0 {
		cancel = newRequest()
		cancel.call.EncodeCancel(p.repliedAt, &p.batch, i, p.names[i])
	}
	refunds, _ := stored.Deny(p.repliedAt, i)
	back := d.Charged - p.batch.Decisions[i].Charged
	if cancel == nil {
		refunds += back
		back = 0
	}
	if back > 0 {
		p.sendRefund(cancel, i, back)
	}
	if refunds == 0 {
		return
	}
	c.Hits = refunds
	c.Refund = true
	c.Mode = limiter.Enforce
	if c.Policy.Reserve != nil { // there a refund would be a lease
		p := *c.Policy
		p.Reserve = nil
		c.Policy = &p
		c.Reserve = false
	}
	refund := newRequest()
	refund.call.Encode(p.now, &limiter.Batch{Charges: []limiter.Charge{c}}, [][]byte{p.names[i]},
		p.split.store.options.Jitter)
	if c.Policy.Algorithm == limiter.SlidingWindow { // a later sub-window may begin before the refund arrives
		refund.call.SetReturn(stored.SubWindow(i))
	}
	p.sendRefund(refund, i, refunds)
}

// sendRefund sends req, which refunds hits of charge i. If the store is unavailable it subtracts
// them from the unsynced hits.
func (p *part) sendRefund(req *request, i int, hits uint64) {
	req.slot = p.slot
	req.bulk = p.split.bulk
	if !req.send(p.backend.shardOf(p.slot), p.split.store.options.Timeout) {
		p.subtractUnsynced(i, hits)
	}
}

// subtractUnsynced subtracts hits of charge i from the unsynced hits. The others stay charged.
func (p *part) subtractUnsynced(i int, hits uint64) {
	if hits > 0 {
		p.backend.subtractUnsynced(p.late, i, script.AppendName(nil, p.now, p.batch.Charges[i].Policy, p.names[i]),
			hits)
	}
}

// updateMirror writes the states in which the store has left the counters to the mirror.
func (r *split) updateMirror() {
	for _, p := range r.parts {
		if p.request != nil {
			r.store.updateMirror(p.repliedAt, &p.batch, &r.state)
		}
	}
}

// chargeIndex returns the index of charge i of p in the split's batch.
func (p *part) chargeIndex(i int) int {
	return slices.Index(p.split.locations, location{p, i})
}

// Exceeded implements [limiter.Waiter] for a part of a request.
func (p *part) Exceeded(charge int) func(hits uint64) {
	return p.split.waiter.Exceeded(p.chargeIndex(charge))
}
