package store

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// mostRepaying is how long a lane stays away to charge what is owed. The rest is charged while
	// requests are sent again.
	mostRepaying = 2 * time.Second
	// repayAgain is the pause before the debts of a slot that moves are charged once more.
	repayAgain = 100 * time.Millisecond
)

// repay charges the store with what is owed to the lane's slots, until the ledger is empty or the time has
// come. What it could not charge stays owed. Slots that move are left to [lane.follow], and keep none of the others waiting.
func (l *lane) repay(ctx context.Context, c *redis.Conn, until time.Time) (all Repaid, err error) {
	var f script.Run
	for {
		owed := l.fleet.owed.take(func(slot uint16) bool { return l.has(slot) && !l.moving[slot] })
		if len(owed) == 0 {
			return all, nil
		}
		for len(owed) > 0 {
			if clock().After(until) {
				l.fleet.forgot(l.fleet.owed.putBack(owed))
				l.nudge()
				return all, nil
			}
			n := piece(owed, l.slowness.bound(script.MostRun))
			left, err := l.charge(ctx, c, &f, owed[:n], false, &all)
			owed = owed[n:]
			switch {
			case err == nil:
			case redis.KindOf(err) == redis.Cluster:
				l.fleet.ask()
				l.later(left)
			default:
				l.fleet.forgot(l.fleet.owed.putBack(left) + l.fleet.owed.putBack(owed))
				return all, err
			}
		}
	}
}

// later puts debts of a slot that moves back into the ledger. They are charged after a pause, or by the lane that has the
// slot by then.
func (l *lane) later(owed []*script.Debt) {
	l.fleet.forgot(l.fleet.owed.putBack(owed))
	slot := owed[0].Slot
	if !l.has(slot) {
		l.fleet.nudge(slot)
		return
	}
	if len(l.moving) == 0 {
		l.again.Reset(repayAgain)
	}
	l.moving[slot] = true
}

// follow charges the debts of slots that moved, one after another. If one cannot be charged, all others of its slot wait for the
// next time. It returns an error if the lane is to go away.
func (l *lane) follow(ctx context.Context, c *redis.Conn) error {
	slots, until := l.moving, clock().Add(mostRepaying)
	l.moving = map[uint16]bool{}
	var f script.Run
	for {
		owed := l.fleet.owed.take(func(slot uint16) bool { return slots[slot] && l.has(slot) && !l.moving[slot] })
		if len(owed) == 0 {
			return nil
		}
		for i, d := range owed {
			charged, err := false, error(nil)
			if !l.moving[d.Slot] && !clock().After(until) {
				charged, err = l.chargeFollowing(ctx, c, &f, d)
			}
			if !charged {
				l.later(owed[i : i+1])
			}
			if err != nil {
				l.fleet.forgot(l.fleet.owed.putBack(owed[i+1:]))
				return err
			}
		}
	}
}

// chargeFollowing charges d here, or where the nodes say that its slot is, or is about to be. It reports whether it did. An error
// is one of the lane's own server.
func (l *lane) chargeFollowing(ctx context.Context, c *redis.Conn, f *script.Run, d *script.Debt) (charged bool, err error) {
	at, asking := l, false
	for range mostHops {
		left, err := at.charge(ctx, c, f, []*script.Debt{d}, asking, &Repaid{})
		if err == nil {
			return true, nil
		}
		to, _ := at.redirected(err)
		if to.port == "" {
			if at != l || redis.KindOf(err) == redis.Cluster {
				err = nil // its own lane sees to another server
			}
			return len(left) == 0, err
		}
		if at = at.target(to); at == nil {
			return false, nil
		}
		if c, ctx = l.connectionTo(ctx, at); c == nil {
			return false, nil
		}
		asking = !to.moved
	}
	return false, nil
}

// connectionTo returns a connection to the node of another lane, nil if that is away, and the context of calls there: the end of l
// does not end the connection of the other lane. If l has ended, the other lane may have, too, so the connection is one of l's
// own.
func (l *lane) connectionTo(ctx context.Context, other *lane) (*redis.Conn, context.Context) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if !closed {
		return other.connection(), context.WithoutCancel(ctx)
	}
	if c := l.others[other]; c != nil {
		select {
		case <-c.Over:
			c.Close()
		default:
			return c, ctx
		}
	}
	c, err := other.dial(ctx)
	if err != nil {
		delete(l.others, other)
		return nil, ctx
	}
	l.others[other] = c
	return c, ctx
}

// piece returns how many debts one run of the script charges: those of one slot, which are estimated at most.
func piece(owed []*script.Debt, most time.Duration) int {
	n, cost := 1, owed[0].Cost()
	for n < len(owed) && owed[n].Slot == owed[0].Slot && cost+owed[n].Cost() <= most {
		cost += owed[n].Cost()
		n++
	}
	return n
}

// charge charges debts in one run of the script, of a node that is only about to get their slot if asking is set. With an error it
// returns those that were not charged, as far as is known.
func (l *lane) charge(ctx context.Context, c *redis.Conn, f *script.Run, owed []*script.Debt, asking bool, all *Repaid) (left []*script.Debt, err error) {
	left = owed
	err = c.Within(ctx, l.fleet.patience(), func() (err error) {
		left, err = l.chargeNow(c, f, owed, asking, all)
		return err
	})
	return left, err
}

// chargeNow is charge, which bounds its time.
func (l *lane) chargeNow(c *redis.Conn, f *script.Run, owed []*script.Debt, asking bool, all *Repaid) (left []*script.Debt, err error) {
	var call script.Call
	now := limiter.Time(l.options.Clock().UnixNano())
	sent := make([]*script.Debt, 0, len(owed))
	for _, d := range owed {
		at, ahead := l.timeOf(now, &d.Policy, []byte(d.Name))
		call.Ahead = ahead
		if call.Owed(at, d, l.options.Jitter) {
			sent = append(sent, d)
		}
	}
	if len(sent) == 0 {
		return nil, nil
	}
	f.Clear(l.options.storeTime())
	f.Asking = asking
	f.Add(&call)
	if script.Repays.Run(c, f); f.Err != nil {
		for _, d := range sent {
			d.Sent() // it may have been charged
		}
		return sent, f.Err
	}
	var state limiter.State
	for i, d := range sent {
		state = limiter.State{Counts: state.Counts[:0]}
		why, excess := f.Charged(i, d, &state)
		switch {
		case f.Reply.Err != nil: // all that follow may have been charged
			for _, d := range sent[i:] {
				d.Sent()
			}
			return append(left, sent[i:]...), redis.BadReply("%w", f.Reply.Err)
		case why == nil:
			now := l.convert(f.Reply.Now, l.fleet.server.Nodes != nil && startSaysSlot(&d.Policy, []byte(d.Name)))
			l.options.guard(func() { l.charged(now, d, &state, excess, all) })
		case why.Kind != redis.Script: // of the server
			left, err = append(left, d), why
		default: // of the key, which another program has written
			l.options.observe().Failed(string(redis.Script))
			l.fleet.forgot(d.Hits)
		}
	}
	return left, err
}

// catchUp charges what is owed before the lane has c. Who comes while the last of it is charged waits.
func (l *lane) catchUp(ctx context.Context, c *redis.Conn) (all Repaid, err error) {
	until := clock().Add(mostRepaying)
	if all, err = l.repay(ctx, c, until); err != nil {
		return all, err
	}
	l.mu.Lock()
	l.fresh = !l.closed
	l.mu.Unlock()
	more, err := l.repay(ctx, c, until)
	all.Counters, all.Hits, all.Exceeded = all.Counters+more.Counters, all.Hits+more.Hits, all.Exceeded+more.Exceeded
	return all, err
}

// charged notes that the store has been charged with d, which left the counter in a state, so many
// hits further beyond its limit.
func (l *lane) charged(now limiter.Time, d *script.Debt, state *limiter.State, excess uint64, all *Repaid) {
	exceeded := min(excess, d.Admitted)
	all.Counters++
	all.Hits += d.Hits
	all.Exceeded += exceeded
	l.options.observe().Repaid(d.Hits)
	if d.Exceeded != nil && exceeded > 0 {
		d.Exceeded(exceeded)
	}
	b := limiter.Batch{Charges: []limiter.Charge{d.Charge}, Partition: d.Partition}
	b.Charges[0].Policy, b.Charges[0].Hits = &d.Policy, d.Hits
	b.Stored().ResetDecisions()
	b.Stored().MergeInto(l.options.Table, now, 0, state) // so the next outage goes on from here
}
