package store

import (
	"context"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// maxSync is how long a recovering shard stays unavailable to sync hits. The rest is synced
	// while requests are sent.
	maxSync = 2 * time.Second
	// syncRetryDelay is the pause before the hits of a moving slot are synced again.
	syncRetryDelay = 100 * time.Millisecond
)

// sync charges the store with the unsynced hits of the shard's slots, until the ledger is empty or
// until has passed. Hits that it could not charge stay in the ledger. Moving slots are left to
// [shard.syncMoving], and do not delay the others.
func (sh *shard) sync(ctx context.Context, c *redis.Conn, until time.Time) (all Synced, err error) {
	for n := 1; n > 0 && err == nil; {
		n, err = sh.syncSome(ctx, c, until, &all)
	}
	return all, err
}

// syncSome is sync for up to maxRemoved counters. It returns the number of entries that it removed
// from the ledger, or 0 if until has passed.
func (sh *shard) syncSome(ctx context.Context, c *redis.Conn, until time.Time, all *Synced) (removed int, err error) {
	var f script.Run
	unsynced := sh.backend.ledger.removeForSlots(func(slot uint16) bool { return sh.owns(slot) && !sh.movingSlots[slot] })
	removed = len(unsynced)
	for len(unsynced) > 0 {
		if clock().After(until) {
			sh.backend.countDropped(sh.backend.ledger.restore(unsynced))
			sh.requestSync()
			return 0, nil
		}
		n := runLength(unsynced, script.MaxRun)
		left, err := sh.syncRun(ctx, c, &f, unsynced[:n], false, all)
		unsynced = unsynced[n:]
		switch {
		case err == nil:
		case redis.KindOf(err) == redis.Cluster:
			sh.backend.requestRefresh()
			sh.postpone(left)
		default:
			sh.backend.countDropped(sh.backend.ledger.restore(left) + sh.backend.ledger.restore(unsynced))
			return 0, err
		}
	}
	return removed, nil
}

// postpone puts hits of a moving slot back into the ledger. They are synced after a pause, or by
// the shard that has the slot then.
func (sh *shard) postpone(unsynced []*script.Unsynced) {
	sh.backend.countDropped(sh.backend.ledger.restore(unsynced))
	slot := unsynced[0].Slot
	if !sh.owns(slot) {
		sh.backend.requestSync(slot)
		return
	}
	if len(sh.movingSlots) == 0 {
		sh.retrySync.Reset(syncRetryDelay)
	}
	sh.movingSlots[slot] = true
}

// syncMoving syncs the hits of moving slots one by one. If one cannot be charged, the others of its
// slot wait for the next time. It returns an error if the shard becomes unavailable.
func (sh *shard) syncMoving(ctx context.Context, c *redis.Conn) error {
	slots := sh.movingSlots
	until := clock().Add(sh.backend.store.syncBound)
	sh.movingSlots = map[uint16]bool{}
	var f script.Run
	for {
		unsynced := sh.backend.ledger.removeForSlots(func(slot uint16) bool { return slots[slot] && sh.owns(slot) && !sh.movingSlots[slot] })
		if len(unsynced) == 0 {
			return nil
		}
		for i, d := range unsynced {
			charged := false
			err := error(nil)
			if !sh.movingSlots[d.Slot] && !clock().After(until) {
				charged, err = sh.syncFollowing(ctx, c, &f, d)
			}
			if !charged {
				sh.postpone(unsynced[i : i+1])
			}
			if err != nil {
				sh.backend.countDropped(sh.backend.ledger.restore(unsynced[i+1:]))
				return err
			}
		}
	}
}

// syncFollowing charges d here, or at the node to which redirections lead. It reports whether d was
// charged, and returns an error only if the shard's own server failed.
func (sh *shard) syncFollowing(
	ctx context.Context, c *redis.Conn, f *script.Run, d *script.Unsynced,
) (charged bool, err error) {
	at := sh
	asking := false
	for range maxHops {
		left, err := at.syncRun(ctx, c, f, []*script.Unsynced{d}, asking, &Synced{})
		if err == nil {
			return true, nil
		}
		to, _ := at.redirected(err)
		if to.port == "" {
			if at != sh || redis.KindOf(err) == redis.Cluster {
				err = nil // the shard of another server handles its errors
			}
			return len(left) == 0, err
		}
		if at = at.target(to); at == nil {
			return false, nil
		}
		if c, ctx = sh.connectionTo(ctx, at); c == nil {
			return false, nil
		}
		asking = !to.moved
	}
	return false, nil
}

// connectionTo returns a connection to the node of another shard, nil if it is unavailable, and a
// context for calls there. The end of sh must not close the connection of the other shard, so the
// context ignores it. But if sh has ended, the other shard may have ended, too: then sh makes a
// connection of its own.
func (sh *shard) connectionTo(ctx context.Context, other *shard) (*redis.Conn, context.Context) {
	sh.mu.Lock()
	closed := sh.closed
	sh.mu.Unlock()
	if !closed {
		return other.connection(), context.WithoutCancel(ctx)
	}
	if c := sh.otherConns[other]; c != nil {
		select {
		case <-c.Done:
			c.Close()
		default:
			return c, ctx
		}
	}
	c, err := other.dial(ctx)
	if err != nil {
		delete(sh.otherConns, other)
		return nil, ctx
	}
	sh.otherConns[other] = c
	return c, ctx
}

// runLength returns how many of the first unsynced counters one run of the script charges: those of
// one slot, within the given estimate.
func runLength(unsynced []*script.Unsynced, limit time.Duration) int {
	n := 1
	cost := unsynced[0].Cost()
	for n < len(unsynced) && unsynced[n].Slot == unsynced[0].Slot && cost+unsynced[n].Cost() <= limit {
		cost += unsynced[n].Cost()
		n++
	}
	return n
}

// syncRun charges unsynced hits in one run of the script, after ASKING if asking is set. If it
// fails, it returns the hits that, as far as is known, were not charged.
func (sh *shard) syncRun(
	ctx context.Context, c *redis.Conn, f *script.Run, unsynced []*script.Unsynced, asking bool, all *Synced,
) (left []*script.Unsynced, err error) {
	left = unsynced
	err = c.Within(ctx, sh.backend.probeTimeout(), func() (err error) {
		left, err = sh.syncRunNow(c, f, unsynced, asking, all)
		return err
	})
	return left, err
}

// syncRunNow is syncRun without its time limit.
func (sh *shard) syncRunNow(
	c *redis.Conn, f *script.Run, unsynced []*script.Unsynced, asking bool, all *Synced,
) (left []*script.Unsynced, err error) {
	var call script.Call
	now := sh.options.now()
	sent := make([]*script.Unsynced, 0, len(unsynced))
	for _, d := range unsynced {
		at, ahead := sh.timeOf(now, &d.Policy, []byte(d.Name))
		call.ClockAhead = ahead
		if call.AppendUnsynced(at, d, sh.options.Jitter) {
			sent = append(sent, d)
		}
	}
	if len(sent) == 0 {
		return nil, nil
	}
	f.Clear(sh.options.storeTime())
	f.Asking = asking
	f.Add(&call)
	if script.SyncScript.Run(c, f); f.Err != nil {
		for _, d := range sent {
			d.MarkSent() // they may have been charged
		}
		return sent, f.Err
	}
	var state limiter.State
	for i, d := range sent {
		state = limiter.State{Counts: state.Counts[:0]}
		why, excess := f.ReadSynced(i, d, &state)
		switch {
		case f.Reply.Err != nil: // all the following may have been charged
			for _, d := range sent[i:] {
				d.MarkSent()
			}
			return append(left, sent[i:]...), redis.BadReply("%w", f.Reply.Err)
		case why == nil:
			now := sh.counterTime(f.Reply.Now,
				sh.backend.server.Nodes != nil && slotDependsOnStart(&d.Policy, []byte(d.Name)))
			sh.options.guard(func() { sh.noteSynced(now, d, &state, excess, all) })
		case why.Kind != redis.Script: // an error of the server
			left = append(left, d)
			err = why
		default: // another program has written the key
			sh.options.observe().Failed(string(redis.Script))
			sh.backend.countDropped(d.Hits)
		}
	}
	return left, err
}

// syncBeforeUse syncs hits before the shard uses c. The fallback decides requests during the first
// passes, as long as each leaves clearly fewer hits than the one before. Requests that arrive during
// the last pass wait.
func (sh *shard) syncBeforeUse(ctx context.Context, c *redis.Conn) (all Synced, err error) {
	until := clock().Add(sh.backend.store.syncBound)
	for n, last := math.MaxInt, 0; n > 0 && (n >= maxRemoved || n <= last/2); {
		last = n
		if n, err = sh.syncSome(ctx, c, until, &all); err != nil {
			return all, err
		}
	}
	sh.mu.Lock()
	sh.connecting = !sh.closed
	sh.mu.Unlock()
	more, err := sh.sync(ctx, c, until)
	all.Counters += more.Counters
	all.Hits += more.Hits
	all.Exceeded += more.Exceeded
	return all, err
}

// noteSynced records that the store was charged with d. The counter is then in the given state, and
// exceeds its limit by excess more hits than before.
func (sh *shard) noteSynced(now limiter.Time, d *script.Unsynced, state *limiter.State, excess uint64, all *Synced) {
	exceeded := min(excess, d.Admitted)
	all.Counters++
	all.Hits += d.Hits
	all.Exceeded += exceeded
	sh.options.observe().Synced(d.Hits)
	if d.Exceeded != nil && exceeded > 0 {
		d.Exceeded(exceeded)
	}
	b := limiter.Batch{Charges: []limiter.Charge{d.Charge}, Partition: d.Partition}
	b.Charges[0].Policy = &d.Policy
	b.Charges[0].Hits = d.Hits
	b.Stored().ResetDecisions()
	b.Stored().MergeInto(sh.backend.store.mirror, now, 0, state) // so that the next outage continues from here
}
