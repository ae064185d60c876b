package store

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// acquire requests the next block of the window that ends at end, unless one is being requested,
// none is needed, or it would not have more than the given number of hits.
func (h *hotCounter) acquire(now, end limiter.Time, elapsed time.Duration, hits uint64) {
	if h.acquiring.Load() || !h.acquiring.CompareAndSwap(false, true) {
		return
	}
	if !h.request(now, end, elapsed, max(hits+1, minBlock)) {
		h.acquiring.Store(false)
	}
}

// request requests a block, and reports whether [hotCounter.Decided] will be called.
func (h *hotCounter) request(now, end limiter.Time, elapsed time.Duration, atLeast uint64) bool {
	if w := h.balanceOf(end); w != nil && (w.word.Load()&hitsMask > w.half.Load() || int64(elapsed) >= w.until.Load()) {
		return false
	}
	hits := h.size(now, end, elapsed)
	sh := h.blocks.store.main.shardOf(0)
	conn := sh.connection()
	if hits < atLeast || conn == nil {
		return false
	}
	h.batch.Reset()
	h.batch.Partition, h.end = h.partition, end
	h.batch.Charges = append(h.batch.Charges, h.chargeOf(hits, false))
	h.mu.Lock()
	h.conn = conn
	h.mu.Unlock()
	req := newRequest()
	req.call.Encode(end-1, &h.batch, [][]byte{h.name}, h.blocks.store.options.Jitter)
	req.now, req.batch, req.waiter, req.noFallback, req.only = now, &h.batch, h, true, conn
	return req.send(sh, h.blocks.store.options.Timeout)
}

// chargeOf returns a charge, or a refund, of hits.
func (h *hotCounter) chargeOf(hits uint64, refund bool) limiter.Charge {
	c := h.charge
	c.Hits, c.Refund = hits, refund
	return c
}

// size returns the hits of the next block.
func (h *hotCounter) size(now, end limiter.Time, elapsed time.Duration) uint64 {
	replicas := h.blocks.replicas.Load()
	if replicas <= 0 {
		replicas = unknownReplicas
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := uint64(h.policy.Limit)
	share := (limit - min(limit, h.countLocked(end))) / uint64(3*replicas)
	rest := time.Duration(end - max(h.blocks.store.main.time(now), h.policy.WindowStart(end-1)))
	return min(share, uint64(h.demandLocked(elapsed)*min(1, max(0, float64(rest)/float64(h.blocks.hold())))))
}

// demandLocked returns the hits that requests need during hold.
func (h *hotCounter) demandLocked(elapsed time.Duration) float64 {
	oldest := h.samples[max(0, h.sampled-len(h.samples))%len(h.samples)]
	took := max(elapsed-oldest.at, demandPeriod/demandSamples)
	return float64(h.demand.Load()-oldest.hits) / float64(took) * float64(h.blocks.hold())
}

// sample records the demand, at most demandSamples times in demandPeriod.
func (h *hotCounter) sample(elapsed time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if elapsed-h.samples[(h.sampled-1)%len(h.samples)].at < demandPeriod/demandSamples {
		return
	}
	h.samples[h.sampled%len(h.samples)] = demandSample{elapsed, h.demand.Load()}
	h.sampled++
}

// balanceOf returns the balance of a window, or nil.
func (h *hotCounter) balanceOf(end limiter.Time) *balance {
	for i := range h.balances {
		if h.balances[i].word.Load()>>32 == endOf(end) {
			return &h.balances[i]
		}
	}
	return nil
}

// keepRequest implements [requestOwner]: the store has decided the charge of a block.
func (h *hotCounter) keepRequest(req *request, at limiter.Time) {
	s, d := h.blocks.store, &h.batch.Decisions[0]
	elapsed := time.Since(h.blocks.base)
	count := windowCount{h.end, d.Before + d.Charged}
	if !d.Over {
		h.add(d.Charged, count, elapsed)
		h.blocks.count(blockAcquired, d.Charged)
	}
	h.learn(count, d.Over, elapsed)
	if h.policy.WindowStart(h.end-1) <= at { // the mirror has only the current window
		s.updateCounters(at, &h.batch, &h.state)
	}
	req.release()
}

// add adds the hits of a block, which are in count, to the balance of its window.
func (h *hotCounter) add(hits uint64, count windowCount, elapsed time.Duration) {
	s := h.blocks.store
	left := time.Duration(count.end - s.main.time(limiter.Time(s.options.Clock().UnixNano())))
	w := h.balanceOf(count.end)
	if w == nil {
		w = &h.balances[0]
		if int32(h.balances[1].word.Load()>>32-w.word.Load()>>32) < 0 { // compared modulo 2^32
			w = &h.balances[1]
		}
		h.blocks.count(blockLost, w.clear()) // its window is over, or the clock was set
		w.until.Store(int64(elapsed + left))
		w.count.Store(count.count)
		w.word.Store(endOf(count.end) << 32)
	}
	w.count.Store(count.count)
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		word := w.word.Load()
		w.half.Store((word&hitsMask + hits) / 2)
		w.granted = word&hitsMask + hits
		if w.word.CompareAndSwap(word, word+hits) {
			return
		}
	}
}

// Decided implements [limiter.Waiter]. If the store has not decided, the hits of the block may be
// lost.
func (h *hotCounter) Decided(error) { h.acquiring.Store(false) }

// Exceeded implements [limiter.Waiter].
func (*hotCounter) Exceeded(int) func(hits uint64) { return nil }

// run returns idle blocks and acquires the first block of each window, until ctx ends.
func (bl *blocks) run(ctx context.Context) {
	tick := time.NewTicker(sweepBlocks)
	defer tick.Stop()
	for {
		bl.mu.Lock()
		idle := len(bl.all) == 0
		bl.mu.Unlock()
		if idle {
			select {
			case <-bl.wake:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		bl.store.options.guard(func() { bl.sweep(limiter.Time(bl.store.options.Clock().UnixNano()), time.Since(bl.base)) })
	}
}

// sweep returns idle blocks, acquires those of windows that are about to begin, and removes
// counters that are no longer hot.
func (bl *blocks) sweep(now limiter.Time, elapsed time.Duration) {
	at, lead := bl.store.main.time(now), limiter.Time(max(2*sweepBlocks, 2*time.Duration(bl.trip.Load())))
	ended := false
	for _, h := range bl.counters() {
		h.sample(elapsed)
		h.mu.Lock()
		demand := h.demandLocked(elapsed)
		h.mu.Unlock()
		cold := demand < 1 && h.acquiring.CompareAndSwap(false, true) // then no block is added
		unused := uint64(0)
		for i := range h.balances {
			unused += h.returnIdle(&h.balances[i], uint64(demand), at, elapsed)
		}
		end := h.policy.WindowEnd(at)
		switch {
		case cold && unused > 0:
			h.acquiring.Store(false)
		case cold:
			bl.hot[h.charge.ID.Lo%maxHot].CompareAndSwap(h, nil)
			h.retired, ended = true, true
		case demand >= minBlock && end-at <= lead && h.balanceOf(h.policy.WindowEnd(end)) == nil:
			h.acquire(now, h.policy.WindowEnd(end), elapsed, 1)
		}
	}
	if ended {
		bl.mu.Lock()
		bl.all = slices.DeleteFunc(bl.all, func(h *hotCounter) bool { return h.retired })
		bl.mu.Unlock()
	}
}

// returnIdle returns hits of w to the store: all, if none was used for blockIdle; or those beyond
// twice the demand, if there are more than maxUnused times as many. It returns the number of unused
// hits that are left.
func (h *hotCounter) returnIdle(w *balance, demand uint64, at limiter.Time, elapsed time.Duration) (unused uint64) {
	word := w.word.Load()
	left, end := word&hitsMask, timeOf(word)
	begun := word == 0 || h.policy.WindowStart(end-1) <= at
	if begun && w.merged != end { // the block may have been charged before its window began
		w.merged = end
		h.raiseMirror(at, windowCount{end, w.count.Load()})
	}
	if left == 0 {
		return 0
	}
	if word != w.seen || !begun {
		w.seen, w.seenAt = word, elapsed
	}
	hits := uint64(0)
	switch {
	case elapsed-w.seenAt >= blockIdle || int64(elapsed) >= w.until.Load():
		hits = left
	case left > minBlock && left > maxUnused*demand && begun:
		hits = left - 2*demand // as many as remain after the next block
	}
	if hits == 0 || !w.word.CompareAndSwap(word, word-hits) {
		return left
	}
	h.mu.Lock()
	w.granted -= min(w.granted, hits)
	h.mu.Unlock()
	if req := h.refund(hits, end, elapsed, w); req == nil || !req.send(h.blocks.store.main.shardOf(0), h.blocks.store.options.Timeout) {
		h.blocks.count(blockLost, hits)
	} else {
		h.blocks.count(blockReturned, hits)
	}
	return left - hits
}

// raiseMirror raises the count of a window in the mirror.
func (h *hotCounter) raiseMirror(at limiter.Time, to windowCount) {
	b, found := limiter.Batch{Charges: []limiter.Charge{h.chargeOf(0, false)}, Partition: h.partition}, make([]limiter.State, 1)
	b.Stored().ReadStates(h.blocks.store.options.Table, at, found)
	if found[0].Hits < to.count {
		b.Stored().MergeInto(h.blocks.store.options.Table, at, 0, &limiter.State{Hits: to.count, Time: to.end})
	}
}

// refund returns a request that refunds hits, which were taken off a balance. It must be sent only
// once, and only on the connection on which the hits were charged: after a failover the store may
// not have them. It is nil if the window is over.
func (h *hotCounter) refund(hits uint64, end limiter.Time, elapsed time.Duration, w *balance) *request {
	if hits == 0 || int64(elapsed) >= w.until.Load() {
		return nil
	}
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	req := newRequest()
	b := limiter.Batch{Charges: []limiter.Charge{h.chargeOf(hits, true)}, Partition: h.partition}
	req.call.Encode(end-1, &b, [][]byte{h.name}, h.blocks.store.options.Jitter)
	req.only = conn
	return req
}

// recharge ends all blocks, before the store is used again. The store may be another server, which
// has not received the last block of a counter: hits that were used since are charged again.
func (bl *blocks) recharge() {
	s := bl.store
	at, elapsed := s.main.time(limiter.Time(s.options.Clock().UnixNano())), time.Since(bl.base)
	for _, h := range bl.counters() {
		for i := range h.balances {
			w := &h.balances[i]
			left, end := w.clear(), timeOf(w.word.Load())
			bl.count(blockLost, left)
			h.mu.Lock()
			used := w.granted - min(w.granted, left)
			w.granted = 0
			h.mu.Unlock()
			if used > 0 && int64(elapsed) < w.until.Load() {
				h.recordUsed(used, min(at, end-1), end)
			}
		}
	}
}

// recordUsed records used hits of a block as unsynced.
func (h *hotCounter) recordUsed(hits uint64, at, end limiter.Time) {
	f := h.blocks.store.main
	b := &limiter.Batch{
		Charges:   []limiter.Charge{h.chargeOf(hits, false)},
		Decisions: []limiter.Decision{{Charged: hits}}, Partition: h.partition,
	}
	at = max(at, h.policy.WindowStart(end-1))
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	if d := &f.ledger.scratch; d.Set(at, b, 0, true) {
		name := script.AppendName(nil, at, &h.policy, h.name)
		f.countDropped(f.ledger.addLocked(name, 0, d, func() func(uint64) { return nil }))
	}
}

// returnAll returns all blocks on a connection, before the shard ends.
func (bl *blocks) returnAll(ctx context.Context, c *redis.Conn, within time.Duration) error {
	const perRun = 100
	elapsed, run := time.Since(bl.base), script.Run{}
	var refunds []*request
	var hits uint64
	for _, h := range bl.counters() {
		for i := range h.balances {
			w := &h.balances[i]
			left := w.clear()
			if req := h.refund(left, timeOf(w.word.Load()), elapsed, w); req != nil && req.only == c {
				refunds = append(refunds, req)
				hits += left
			} else {
				bl.count(blockLost, left)
			}
		}
	}
	for some := range slices.Chunk(refunds, perRun) {
		run.Clear(bl.store.options.storeTime())
		for _, req := range some {
			run.Add(&req.call)
		}
		if err := c.Within(ctx, within, func() error {
			script.DecideScript.Run(c, &run)
			return run.Err
		}); err != nil {
			return err
		}
	}
	bl.count(blockReturned, hits)
	return nil
}

// drop ends the blocks of a counter that was reset. Their hits are lost.
func (bl *blocks) drop(c *limiter.Charge) {
	if h := bl.find(c); h != nil {
		h.mu.Lock()
		for i := range h.balances {
			bl.count(blockLost, h.balances[i].clear())
			h.balances[i].granted = 0
		}
		h.mu.Unlock()
		h.denial.Store(nil)
	}
}

// countReplicas registers this replica in the store, and learns the number of replicas. It is not
// known if the store does not reply, or forbids it.
func (bl *blocks) countReplicas(c *redis.Conn) {
	s := bl.store
	now := s.main.time(limiter.Time(s.options.Clock().UnixNano()))
	n, _ := script.CountReplicas(c, s.options.Prefix+"s1{replicas}", bl.replica, now, replicaExpiry)
	bl.replicas.Store(n)
}

// Block returns the unused hits of this replica's block of the counter of c at the time now, and
// their number when the last block was charged; 0 and 0 if it has none. See [Options.Blocks].
func (s *Store) Block(now limiter.Time, c *limiter.Charge) (unused, size uint64) {
	if s.blocks == nil || c.Policy.Algorithm != limiter.FixedWindow {
		return 0, 0
	}
	h := s.blocks.find(c)
	if h == nil {
		return 0, 0
	}
	w := h.balanceOf(c.Policy.WindowEnd(s.main.time(now)))
	if w == nil {
		return 0, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.word.Load() & hitsMask, w.granted
}

// counters returns all hot counters.
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
