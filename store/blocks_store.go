package store

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// runBlocks sweeps the blocks until ctx ends.
func (s *Store) runBlocks(ctx context.Context) {
	tick := time.NewTicker(sweepBlocks)
	bl := s.blocks
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
		s.options.guard(func() { bl.sweep(bl.moment(s.options.now())) })
	}
}

// chargeBlock sends the charge in h.batch on the current connection, and reports false if it cannot. If
// the store decides the charge, h.charged is called with the time of the decision. After that, and also
// if the store does not decide, h.Decided is called.
func (s *Store) chargeBlock(h *hotCounter, m moment) bool {
	sh := s.main.shardOf(0)
	conn := sh.connection()
	if conn == nil {
		return false
	}
	h.conn = conn
	req := newRequest()
	req.call.Encode(m.store, &h.batch, [][]byte{h.name}, s.options.Jitter)
	if isBucket(&h.policy) {
		req.call.SetBlock(h.life)
	}
	req.decideFor(h, m.local, &h.batch)
	req.only = conn
	return req.send(sh, awaitReply)
}

// awaitReply is the deadline of a block: no caller waits for a late one, and no other is requested
// meanwhile. If the store sends nothing, [Options.Timeout] applies.
const awaitReply = time.Hour

// returnHits returns hits to the period that ends at end. state is that of their balance. It reports
// false if they are lost.
func (s *Store) returnHits(h *hotCounter, hits uint64, end limiter.Time, state *blockState) bool {
	return s.returnRequest(h, hits, end, state).send(s.main.shardOf(0), s.options.Timeout)
}

// returnRequest returns a request that returns hits. It must be sent only once, and only on the
// connection on which the hits were charged: after a failover the store may not have them.
func (s *Store) returnRequest(h *hotCounter, hits uint64, end limiter.Time, state *blockState) *request {
	req := newRequest()
	b := limiter.Batch{Charges: []limiter.Charge{h.chargeOf(hits, true)}, Partition: h.partition}
	req.call.Encode(end-1, &b, [][]byte{h.name}, s.options.Jitter)
	if h.policy.Algorithm != limiter.FixedWindow { // whose name has the window
		req.call.SetReturn(state.SubWindow)
	}
	req.only = state.conn
	return req
}

// recoverBlocks prepares the blocks for a new connection. If the store has the data of the former
// connection, the blocks stay. It may be another server, or not tell: then they end.
func (s *Store) recoverBlocks(ctx context.Context, c *redis.Conn) error {
	bl := s.blocks
	id, err := c.DataID(ctx)
	if err != nil && c.Err() != nil {
		return err
	}
	known := id != "" && id == bl.dataID
	bl.dataID = id
	if !known {
		s.rechargeBlocks()
		return nil
	}
	for _, h := range bl.counters() {
		for _, b := range h.balances {
			if state := b.state.Load(); state != nil {
				b.state.CompareAndSwap(state, &blockState{state.State, c})
			}
		}
	}
	return nil
}

// lately is the time before a server is lost whose charges another one may lack.
const lately = time.Second

// rechargeBlocks ends all blocks, before the store is used again. The store may be another server,
// which has not received the last block of a counter: hits that were used since are charged again.
func (s *Store) rechargeBlocks() {
	bl := s.blocks
	now := bl.moment(s.options.now())
	lost := time.Duration(bl.lost.Load())
	for _, h := range bl.counters() {
		for _, b := range h.balances {
			used := h.drop(b)
			p := b.period()
			until := time.Duration(b.until.Load())
			counts := now.elapsed < until // in its window
			if h.policy.Algorithm != limiter.FixedWindow {
				counts = lost < until+lately
			}
			if used > 0 && counts {
				s.recordUsed(h, used, max(min(now.store, p.end-1), p.start))
			}
		}
	}
}

// recordUsed records hits of a block that were used at the time at as unsynced.
func (s *Store) recordUsed(h *hotCounter, hits uint64, at limiter.Time) {
	f := s.main
	b := &limiter.Batch{
		Charges:   []limiter.Charge{h.chargeOf(hits, false)},
		Decisions: []limiter.Decision{{Charged: hits}}, Partition: h.partition,
	}
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	if d := &f.ledger.scratch; d.Set(at, b, 0, false) {
		name := script.AppendName(nil, at, &h.policy, h.name)
		f.countDropped(f.ledger.addLocked(name, 0, d, func() func(uint64) { return nil }))
	}
}

// returnBlocks returns all blocks on a connection, before the shard ends. Those for which there is no
// time are lost.
func (s *Store) returnBlocks(ctx context.Context, c *redis.Conn, within time.Duration) error {
	const perMessage = 16 // runs
	bl := s.blocks
	elapsed := bl.elapsed()
	var calls []*script.Call
	var returned uint64 // by calls
	send := func() error {
		if len(calls) == 0 {
			return nil
		}
		runs := s.runsOf(calls)
		err := c.Within(ctx, within, func() error {
			script.DecideScript.Run(c, runs...)
			for _, r := range runs {
				if r.Err != nil {
					return r.Err
				}
			}
			return nil
		})
		if err != nil {
			bl.count(blockLost, returned)
		} else {
			bl.count(blockReturned, returned)
		}
		calls = nil
		returned = 0
		return err
	}
	cost := time.Duration(0)
	for _, h := range bl.counters() {
		for i := range h.timed {
			bl.count(blockLost, h.take(&h.timed[i].balance))
		}
		for i := range h.windows {
			w := &h.windows[i]
			left := h.take(&w.balance)
			state := w.state.Load()
			if left == 0 || elapsed >= time.Duration(w.until.Load()) || state.conn != c {
				bl.count(blockLost, left)
				continue
			}
			req := s.returnRequest(h, left, limiter.Time(w.end.Load()), state)
			calls = append(calls, &req.call)
			returned += left
			cost += req.call.Cost
			if cost >= perMessage*script.MaxRun {
				cost = 0
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	return send()
}

// runsOf divides calls among runs that do not take the store too long.
func (s *Store) runsOf(calls []*script.Call) (all []*script.Run) {
	cost := time.Duration(0)
	for _, c := range calls {
		if cost += c.Cost; len(all) == 0 || cost > script.MaxRun {
			r := &script.Run{}
			r.Clear(s.options.storeTime())
			all = append(all, r)
			cost = c.Cost
		}
		all[len(all)-1].Add(c)
	}
	return all
}

// countReplicas registers this replica in the store, and learns the number of replicas. The number is
// not known if the store does not reply, or forbids the command.
func (s *Store) countReplicas(c *redis.Conn) {
	at := s.main.time(s.options.now())
	n, _ := script.CountReplicas(c, s.options.Prefix+"s1{replicas}", s.replica, at, replicaExpiry)
	s.blocks.replicas.Store(max(0, n))
}
