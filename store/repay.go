package store

import (
	"context"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// mostRepaying is how long a lane stays away to charge what is owed. The rest is charged while
	// requests are sent again.
	mostRepaying = 2 * time.Second
	// mostWork bounds a run of the script, which other callers of the store wait for: it is in
	// microseconds of a slow server, by the work of a debt.
	mostWork = 700
)

// Repaid says what a store was charged with on its return.
type Repaid struct {
	Counters int
	// Hits are all, and Exceeded those of them that were admitted beyond their limits.
	Hits, Exceeded uint64
}

// work is how long the script takes for d, in microseconds of a slow server.
func (d *debt) work() int {
	switch d.policy.Algorithm {
	case limiter.SlidingWindow:
		_, k := d.policy.Ring()
		return 10 + k
	case limiter.SlidingLog:
		return 20 + int(min(d.hits, limiter.MaxLog))/8
	default:
		return 5
	}
}

// repay charges the store with what is owed to the lane's slots, until the ledger is empty or the time has
// come. What it could not charge stays owed.
func (l *lane) repay(ctx context.Context, c *client, until time.Time) (all Repaid, err error) {
	var f flight
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
			err := c.within(ctx, func() (err error) {
				left, err = l.charge(c, &f, left, &all)
				return err
			})
			if err == nil {
				owed = owed[n:]
				continue
			}
			l.fleet.forgot(l.fleet.owed.putBack(left) + l.fleet.owed.putBack(owed[n:]))
			if kindOf(err) == Cluster { // slots have moved, and their lane will charge it
				l.fleet.ask()
				return all, nil
			}
			return all, err
		}
	}
}

// piece returns how many debts one run of the script charges: those of one slot.
func piece(owed []*debt) int {
	n, work := 1, owed[0].work()
	for n < len(owed) && owed[n].slot == owed[0].slot && work+owed[n].work() <= mostWork {
		work += owed[n].work()
		n++
	}
	return n
}

// charge charges debts in one run of the script. With an error it returns those that were not charged, as
// far as is known.
func (l *lane) charge(c *client, f *flight, owed []*debt, all *Repaid) (left []*debt, err error) {
	var call call
	now := l.fleet.time(limiter.Time(l.options.Clock().UnixNano()))
	sent := make([]*debt, 0, len(owed))
	for _, d := range owed {
		if call.owed(now, d, l.options.Jitter) {
			sent = append(sent, d)
		}
	}
	if len(sent) == 0 {
		return nil, nil
	}
	f.message.clear(l.options.storeTime())
	f.message.add(&call)
	if err := c.eval(repayScript, repaySHA, &f.message, &f.reply); err != nil {
		return sent, err
	}
	var state limiter.State
	for i, d := range sent {
		state = limiter.State{Counts: state.Counts[:0]}
		why, excess, bad := f.reply.charged(&f.message, &call, d, &call.charges[i], &state)
		switch {
		case bad != nil:
			return nil, &failure{Reply, bad}
		case why == nil:
			l.charged(f.reply.now, d, &state, excess, all)
		case why.kind != Script: // of the server
			left, err = append(left, d), why
		default: // of the key, which another program has written
			l.options.observe().Failed(l.shard, Script)
			l.fleet.forgot(d.hits)
		}
	}
	return left, err
}

// catchUp charges what is owed before the lane has c. Who comes while the last of it is charged waits.
func (l *lane) catchUp(ctx context.Context, c *client) (all Repaid, err error) {
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
func (l *lane) charged(now limiter.Time, d *debt, state *limiter.State, excess uint64, all *Repaid) {
	exceeded := min(excess, d.admitted)
	all.Counters++
	all.Hits += d.hits
	all.Exceeded += exceeded
	l.options.observe().Repaid(d.hits)
	if d.exceeded != nil && exceeded > 0 {
		d.exceeded(exceeded)
	}
	b := limiter.Batch{Charges: []limiter.Charge{d.charge}, Partition: d.partition}
	b.Charges[0].Policy, b.Charges[0].Hits = &d.policy, d.hits
	b.Stored().Resize()
	b.Stored().Adopt(l.options.Table, now, 0, state) // so the next outage goes on from here
}

// beyond returns by how many hits d left a counter that counts further beyond its limit, in a state, if it counts
// those that were let pass alone.
func (d *debt) beyond(s *limiter.State) uint64 {
	used := s.Hits
	for _, n := range s.Counts {
		used += uint64(n)
	}
	used -= min(used, d.hits)
	return used + d.admitted - min(used+d.admitted, max(used, d.policy.Capacity()))
}

// excess reads how far a bucket would be beyond full without a highest level, less how far it was
// before, and returns that in hits.
func (r *reply) excess(k limiter.Bucket) (uint64, error) {
	var levels [2]amount
	for i := range levels {
		seconds, err := r.next()
		if err != nil {
			return 0, err
		}
		parts, err := r.next()
		if err != nil {
			return 0, err
		}
		full := instant(r.now, 0).plus(amountOf(k.Full, k.Fine))
		levels[i] = amount{seconds, parts}.minus(full)
	}
	beyond, step := levels[1].minus(levels[0]), amountOf(k.Step, k.Fine)
	if k.Step == 0 {
		return 0, nil
	}
	return uint64(math.Ceil(beyond.float()/step.float() - 1e-9)), nil
}

// owed appends d in the words of repay.lua. It reports false if d's window is over.
func (c *call) owed(now limiter.Time, d *debt, jitter time.Duration) bool {
	p := &d.policy
	at := charge{algorithm: p.Algorithm, first: true, place: len(c.args) + 1}
	switch p.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := p.Bucket()
		c.args = append(c.args, "b", "")
		c.amount(d.cost)
		c.amount(d.tat)
		c.amount(amountOf(min(k.Full+k.Debt, alwaysRoom), k.Fine))
	case limiter.SlidingWindow:
		length, k := p.Ring()
		at.length, at.k = int64(length), int64(k)
		c.args = append(c.args, "r", "", c.number(at.length/int64(time.Second)), c.number(at.length%int64(time.Second)),
			c.number(at.k), c.number(ringSpan(at.length, at.k)), c.number(int64(len(d.runs))))
		for _, s := range d.runs {
			c.args = append(c.args, c.number(s.last), c.number(int64(s.hits))) //nolint:gosec // at most mostHits
		}
	case limiter.SlidingLog:
		runs := d.newest(uint64(min(p.Limit, limiter.MaxLog)))
		c.args = append(c.args, "l", "", c.number(int64(min(p.Limit, limiter.MaxLog))), c.number(int64(p.Window/time.Second)), c.number(int64(len(runs))))
		for _, s := range runs {
			c.args = append(c.args, c.number(s.last/int64(time.Second)), c.number(s.last%int64(time.Second)), c.number(int64(s.hits))) //nolint:gosec // at most the limit
		}
	default:
		at.algorithm, at.end = limiter.FixedWindow, p.WindowEnd(d.at)
		if at.end+outlives <= now {
			return false
		}
		c.args = append(c.args, "f", "", c.number(int64(min(d.hits, mostHits))), c.number(at.expires(p, jitter)))
	}
	at.key, _ = c.counter(d.name)
	c.charges = append(c.charges, at)
	return true
}

// newest returns the newest of a log's hits, so many at most.
func (d *debt) newest(most uint64) []stretch {
	n := len(d.runs)
	for n > 0 && most > 0 {
		n--
		d.runs[n].hits = min(d.runs[n].hits, most)
		most -= d.runs[n].hits
	}
	return d.runs[n:]
}

// charged reads what repay.lua says of one counter: its state, and by how many hits it is further beyond its
// limit; or why it could not be charged.
func (r *reply) charged(m *message, c *call, d *debt, at *charge, s *limiter.State) (why *failure, excess uint64, err error) {
	if len(r.values) == 0 {
		return nil, 0, errReply
	}
	v := r.values[0]
	r.values = r.values[1:]
	switch {
	case v.isText:
		told := replyError(v.text)
		kind := kindOf(told)
		if kind == Connection { // an error of Lua's
			kind = Script
		}
		return &failure{kind, told}, 0, nil
	case at.algorithm == limiter.TokenBucket || at.algorithm == limiter.LeakyBucket:
		if err = r.counter(m, c, at, s); err == nil {
			excess, err = r.excess(d.policy.Bucket())
		}
		return nil, excess, err
	}
	err = r.counter(m, c, at, s)
	return nil, d.beyond(s), err
}

// A replyError is what a script says of a command that failed.
type replyError string

func (e replyError) Error() string { return string(e) }
