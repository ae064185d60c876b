package store

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

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

// now returns the time of the store.
func (bl *blocks) now() limiter.Time {
	return bl.store.main.time(limiter.Time(bl.store.options.Clock().UnixNano()))
}

// sweep returns idle blocks, acquires those of windows that are about to begin, and removes
// counters that are no longer hot.
func (bl *blocks) sweep(now limiter.Time, elapsed time.Duration) {
	at, lead := bl.store.main.time(now), max(2*sweepBlocks, 2*time.Duration(bl.trip.Load()))
	ended := false
	for _, h := range bl.counters() {
		h.sample(elapsed)
		h.mu.Lock()
		demand := h.demandLocked(elapsed)
		h.mu.Unlock()
		cold := demand < 1 && !h.touched.Swap(false) && h.acquiring.CompareAndSwap(false, true) // then no block is added
		unused := uint64(0)
		for i := range h.balances {
			unused += h.returnIdle(&h.balances[i], uint64(demand), at, elapsed, lead)
		}
		h.checkDenied(now, at)
		end := periodEnd(&h.policy, at)
		switch {
		case cold && unused > 0:
			h.acquiring.Store(false)
		case cold:
			bl.hot[h.charge.ID.Lo%maxHot].CompareAndSwap(h, nil)
			h.retired, ended = true, true
		case h.policy.Algorithm == limiter.FixedWindow && demand >= minBlock && time.Duration(end-at) <= lead &&
			h.balanceOf(h.policy.WindowEnd(end)) == nil:
			h.acquire(now, h.policy.WindowEnd(end), elapsed, 1)
		}
	}
	if ended {
		bl.mu.Lock()
		bl.all = slices.DeleteFunc(bl.all, func(h *hotCounter) bool { return h.retired })
		bl.mu.Unlock()
	}
}

// returnIdle returns hits of w to the store: all, if none was used for blockIdle, or if w is a
// sub-window and ends within lead; or those beyond twice the demand, if there are more than maxUnused
// times as many. Those of a bucket are lost when they end. It returns the number of unused hits that
// are left.
func (h *hotCounter) returnIdle(w *balance, demand uint64, at limiter.Time, elapsed, lead time.Duration) (unused uint64) {
	word, end, until := w.word.Load(), limiter.Time(w.end.Load()), time.Duration(w.until.Load())
	left, begun, fixed := word&hitsMask, true, h.policy.Algorithm == limiter.FixedWindow
	if state := w.state.Load(); fixed && state != nil {
		begun = h.policy.WindowStart(end-1) <= at
		if begun && w.merged != end { // the block may have been charged before its window began
			w.merged = end
			h.raiseMirror(at, state)
		}
	}
	if left == 0 {
		return 0
	}
	if word != w.seen || !begun || w.bucket {
		w.seen, w.seenAt = word, elapsed
	}
	hits := uint64(0)
	switch {
	case elapsed-w.seenAt >= blockIdle || elapsed >= until || !fixed && !w.bucket && elapsed+lead >= until:
		hits = left
	case left > minBlock && left > maxUnused*demand && begun && !w.bucket:
		hits = left - 2*demand // as many as remain after the next block
	}
	state := w.state.Load()
	if hits == 0 || !w.word.CompareAndSwap(word, word-hits) {
		return left
	}
	h.mu.Lock()
	w.granted -= min(w.granted, hits)
	h.mu.Unlock()
	req := h.returned(hits, end, until, elapsed, state)
	if req == nil || !req.send(h.blocks.store.main.shardOf(0), h.blocks.store.options.Timeout) {
		h.blocks.count(blockLost, hits)
	} else {
		h.blocks.count(blockReturned, hits)
	}
	return left - hits
}

// raiseMirror raises the count of a window in the mirror.
func (h *hotCounter) raiseMirror(at limiter.Time, to *limiter.State) {
	b, found := limiter.Batch{Charges: []limiter.Charge{h.chargeOf(0, false)}, Partition: h.partition}, make([]limiter.State, 1)
	b.Stored().ReadStates(h.blocks.store.options.Table, at, found)
	if found[0].Hits < to.Hits {
		b.Stored().MergeInto(h.blocks.store.options.Table, at, 0, to)
	}
}

// recharge ends all blocks, before the store is used again. The store may be another server, which
// has not received the last block of a counter: hits that were used since are charged again.
func (bl *blocks) recharge() {
	const lately = time.Second // a server may lack what was charged so recently
	at, elapsed := bl.now(), time.Since(bl.base)
	for _, h := range bl.counters() {
		for i := range h.balances {
			w := &h.balances[i]
			h.mu.Lock()
			left := w.clear()
			used := w.granted - min(w.granted, left)
			w.granted = 0
			h.mu.Unlock()
			bl.count(blockLost, left)
			end, until := limiter.Time(w.end.Load()), time.Duration(w.until.Load())
			if h.policy.Algorithm != limiter.FixedWindow {
				until += lately // hits of a period that is over still count
			}
			if used > 0 && elapsed < until {
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
	at = max(at, periodStart(&h.policy, end))
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	if d := &f.ledger.scratch; d.Set(at, b, 0, false) {
		name := script.AppendName(nil, at, &h.policy, h.name)
		f.countDropped(f.ledger.addLocked(name, 0, d, func() func(uint64) { return nil }))
	}
}

// returnAll returns all blocks on a connection, before the shard ends.
func (bl *blocks) returnAll(ctx context.Context, c *redis.Conn, within time.Duration) error {
	const perRun = 100
	elapsed, run := time.Since(bl.base), script.Run{}
	var requests []*request
	var hits uint64
	for _, h := range bl.counters() {
		for i := range h.balances {
			w := &h.balances[i]
			left := w.clear()
			req := h.returned(left, limiter.Time(w.end.Load()), time.Duration(w.until.Load()), elapsed, w.state.Load())
			if req != nil && req.only == c {
				requests = append(requests, req)
				hits += left
			} else {
				bl.count(blockLost, left)
			}
		}
	}
	for some := range slices.Chunk(requests, perRun) {
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
	n, _ := script.CountReplicas(c, bl.store.options.Prefix+"s1{replicas}", bl.replica, bl.now(), replicaExpiry)
	bl.replicas.Store(n)
}

// Block returns the unused hits of this replica's blocks of the counter of c at the time now, and
// their number when the last block was charged; 0 and 0 if it has none. See [Options.Blocks].
func (s *Store) Block(now limiter.Time, c *limiter.Charge) (unused, size uint64) {
	if s.blocks == nil {
		return 0, 0
	}
	h := s.blocks.find(c)
	if h == nil {
		return 0, 0
	}
	at, elapsed := s.main.time(now), time.Since(s.blocks.base)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.balances {
		if w := &h.balances[i]; w.usable(at, periodEnd(&h.policy, at), elapsed) {
			unused, size = unused+w.unused(), size+w.granted
		}
	}
	return unused, size
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
