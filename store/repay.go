package store

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// mostRepaying is how long a lane stays away to charge what is owed. The rest is charged while
// requests are sent again.
const mostRepaying = 2 * time.Second

// repay charges the store with what is owed to the lane's slots, until the ledger is empty or the time has
// come. What it could not charge stays owed.
func (l *lane) repay(ctx context.Context, c *redis.Conn, until time.Time) (all Repaid, err error) {
	var f script.Run
	for {
		owed := l.fleet.owed.take(l.has)
		if len(owed) == 0 {
			return all, nil
		}
		for len(owed) > 0 {
			if clock().After(until) {
				l.fleet.forgot(l.fleet.owed.putBack(owed))
				l.nudge()
				return all, nil
			}
			n := piece(owed)
			left := owed[:n]
			err := c.Within(ctx, func() (err error) {
				left, err = l.charge(c, &f, left, &all)
				return err
			})
			if err == nil {
				owed = owed[n:]
				continue
			}
			l.fleet.forgot(l.fleet.owed.putBack(left) + l.fleet.owed.putBack(owed[n:]))
			if redis.KindOf(err) == redis.Cluster { // slots have moved, and their lane will charge it
				l.fleet.ask()
				return all, nil
			}
			return all, err
		}
	}
}

// piece returns how many debts one run of the script charges: those of one slot.
func piece(owed []*script.Debt) int {
	n, cost := 1, owed[0].Cost()
	for n < len(owed) && owed[n].Slot == owed[0].Slot && cost+owed[n].Cost() <= script.MostRun {
		cost += owed[n].Cost()
		n++
	}
	return n
}

// charge charges debts in one run of the script. With an error it returns those that were not charged, as
// far as is known.
func (l *lane) charge(c *redis.Conn, f *script.Run, owed []*script.Debt, all *Repaid) (left []*script.Debt, err error) {
	var call script.Call
	now := l.fleet.time(limiter.Time(l.options.Clock().UnixNano()))
	sent := make([]*script.Debt, 0, len(owed))
	for _, d := range owed {
		if call.Owed(now, d, l.options.Jitter) {
			sent = append(sent, d)
		}
	}
	if len(sent) == 0 {
		return nil, nil
	}
	f.Clear(l.options.storeTime())
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
		case f.Reply.Err != nil:
			return nil, redis.BadReply("%w", f.Reply.Err)
		case why == nil:
			l.charged(f.Reply.Now, d, &state, excess, all)
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
	b.Stored().Resize()
	b.Stored().Adopt(l.options.Table, now, 0, state) // so the next outage goes on from here
}
