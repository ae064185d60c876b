package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// A lane that is away is probed firstProbe after it went, then in growing steps of up to
	// mostProbe, give or take a quarter, so that replicas do not come together.
	firstProbe = 50 * time.Millisecond
	mostProbe  = 500 * time.Millisecond
	// A lane that is there is probed each second, so that health and metrics know of a server that
	// died while nobody asked.
	steadyProbe = time.Second
	// One in measureEvery probes is followed by a measurement of how fast the server is.
	measureEvery = 10
)

// run brings asks to the server until ctx ends, and returns when all that it started has ended.
func (l *lane) run(ctx context.Context) {
	var all sync.WaitGroup
	for n := range senders {
		all.Go(func() { l.send(n) })
	}
	c := l.probe(ctx)
	l.close(context.WithoutCancel(ctx), c)
	all.Wait()
	if l.loggedAway && l.replaced.Load() {
		l.options.Log.replaced(l.shard)
	}
}

// close ends the lane's senders and timer. Who still waits gets the fallback. What is owed is charged, if that can be done
// soon. The connection c is the last one, nil if there was none.
func (l *lane) close(ctx context.Context, c *redis.Conn) {
	l.mu.Lock()
	failed := l.client != c
	l.closed = true
	waiting := l.emptyLocked()
	l.wake.Broadcast()
	l.mu.Unlock()
	l.fallBack(waiting)
	if failed && c != nil {
		c.Close()
	}
	l.flush(ctx, c)
}

// mostFlushing is how long a lane takes to end at most while something is owed, half of it for replies that are yet to
// come.
const mostFlushing = 2 * time.Second

// flush charges what is owed by the connection c, or by another if it fails or is nil. It closes it.
func (l *lane) flush(ctx context.Context, c *redis.Conn) {
	until := clock().Add(l.fleet.store.flushing)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if c != nil { // the replies tell what is owed
		late := time.AfterFunc(l.fleet.store.flushing/2, c.Close)
		l.ground()
		late.Stop()
	}
	l.pausing.Wait()
	for ctx.Err() == nil && l.fleet.owed.owes(l.has) {
		err := l.guarded(func() (err error) {
			if c == nil {
				if c, err = l.dial(ctx); err != nil {
					return err
				}
			}
			if _, err = l.repay(ctx, c, until); err == nil {
				err = l.follow(ctx, c)
			}
			return err
		})
		if err == nil && !l.fleet.owed.owes(l.has) {
			break
		}
		if err != nil && c != nil {
			c.Close()
			c = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstProbe):
		}
	}
	if c != nil {
		c.Close()
	}
	for _, c := range l.others {
		c.Close()
	}
}

// probe is the lane's prober: whenever the lane is away it looks for the server until one answers in
// time. Until it ends, only it dials. It returns the connection that it had then, which may have failed; nil without one.
func (l *lane) probe(ctx context.Context) *redis.Conn {
	wait := time.Duration(0)
	for {
		c, ok := l.reach(ctx, wait)
		if !ok {
			return nil
		}
		since := clock()
		l.mu.Lock()
		closed := l.closed
		if !closed {
			l.client, l.fresh = c, false
			l.wake.Broadcast()
		}
		l.mu.Unlock()
		if closed {
			return c
		}
		l.fleet.store.notifyReached()
		gone, ok := l.watch(ctx, c)
		if !ok {
			return c
		}
		l.options.observe().Failed(string(gone.why.Kind))
		l.logAway(gone.why)
		gone.client.Close() // which ends what waits for it
		l.ground()
		l.fleet.ask()
		// A server that says nothing but a probe's reply is asked less and less often.
		if wait = max(firstProbe, min(2*wait, mostProbe)); clock().Sub(since) > steadyProbe {
			wait = firstProbe
		}
	}
}

func (l *lane) logAway(why *redis.Error) {
	l.options.Log.away(l.shard, why)
	l.loggedAway = true
}

// watch waits until the lane, which has c, goes away. It reports false if ctx ends before.
func (l *lane) watch(ctx context.Context, c *redis.Conn) (gone lost, ok bool) {
	tick := time.NewTicker(steadyProbe)
	defer tick.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return lost{}, false
		case gone := <-l.lost:
			return gone, true
		case <-c.Over: // before anybody asks
			why := c.Why()
			l.fail(c, redis.NewError(why))
			return <-l.lost, true
		case <-tick.C:
		case <-l.owes:
			err := l.guarded(func() error {
				_, err := l.repay(ctx, c, clock().Add(mostRepaying))
				return err
			})
			if err != nil && ctx.Err() == nil {
				l.fail(c, redis.NewError(err))
			}
			continue
		case <-l.again.C:
			if err := l.guarded(func() error { return l.follow(ctx, c) }); err != nil && ctx.Err() == nil {
				l.fail(c, redis.NewError(err))
			}
			continue
		}
		// Requests that wait have the lane go away when they have waited long enough.
		err := l.guarded(func() error {
			return c.Within(ctx, l.fleet.patience(), func() error {
				took, err := l.decideProbe(c, &script.Run{})
				if n = (n + 1) % measureEvery; err == nil && n == 0 {
					_ = l.measure(c, took)
				}
				return err
			})
		})
		switch {
		case err == nil || ctx.Err() != nil:
		case redis.KindOf(err) == redis.Cluster: // the probe's slot has moved
			l.fleet.ask()
		default:
			l.fail(c, redis.NewError(err))
		}
	}
}

// guarded is do, and an error in place of a panic of it.
func (l *lane) guarded(do func() error) (err error) {
	err = redis.ErrPanicked
	l.options.guard(func() { err = do() })
	return err
}

// reach tries until a server answers in time, at first after about wait, which is 0 for the first
// connection. It reports false if ctx ends before.
func (l *lane) reach(ctx context.Context, wait time.Duration) (*redis.Conn, bool) {
	first, since := wait == 0, clock()
	var last redis.Kind
	for {
		timer := time.NewTimer(wait - wait/4 + rand.N(wait/2+1)) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, false
		case <-timer.C:
		}
		var c *redis.Conn
		var charged Repaid
		err := l.guarded(func() (err error) {
			c, charged, err = l.try(ctx)
			return err
		})
		if err == nil {
			if !first || last != "" {
				l.options.Log.back(l.shard, clock().Sub(since), charged)
				l.loggedAway = false
			}
			return c, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		why := redis.NewError(err)
		l.fail(nil, why)
		l.fleet.ask()
		l.options.observe().Failed(string(why.Kind))
		if why.Kind != last && (first || why.Kind.Remedy() != "") {
			l.logAway(why)
		}
		last = why.Kind
		wait = min(max(firstProbe, wait*2), mostProbe)
	}
}

// try dials, runs the script on a counter of the probe's own, and charges what is owed. It fails if
// the probe takes longer than a caller would wait.
func (l *lane) try(ctx context.Context) (*redis.Conn, Repaid, error) {
	c, err := l.dial(ctx)
	if err != nil {
		return nil, Repaid{}, err
	}
	err = redis.ErrPanicked
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	err = c.Within(ctx, l.fleet.patience(), func() error {
		var probe script.Run
		probe.Clear(0)
		// The first run may have to bring the script.
		if script.Decides.Run(c, &probe); probe.Err != nil {
			return probe.Err
		}
		took, err := l.decideProbe(c, &probe)
		if err == nil && took > l.options.Timeout {
			err = context.DeadlineExceeded
		}
		for n := 0; err == nil && n < len(l.slowness.recent) && l.measure(c, took); n++ { // one suffices if the server is fast
		}
		return err
	})
	var charged Repaid
	if err == nil {
		charged, err = l.catchUp(ctx, c)
	}
	return c, charged, err
}

// decideProbe has the script decide a charge of the probe's own, or none if the lane has no slots. So the first charges of
// requests, too, go by the store's clock.
func (l *lane) decideProbe(c *redis.Conn, probe *script.Run) (took time.Duration, err error) {
	probe.Clear(l.options.storeTime())
	if name := l.probeName(); name != nil {
		var charge script.Call
		charge.Encode(0, &limiter.Batch{Charges: []limiter.Charge{{Policy: probePolicy, Hits: 1}}}, [][]byte{name}, 0)
		probe.Add(&charge)
	}
	sent := l.options.Clock()
	if script.Decides.Run(c, probe); probe.Err != nil {
		return 0, probe.Err
	}
	took = l.options.Clock().Sub(sent)
	l.learn(probe.Reply.Now, sent, took)
	return took, nil
}

// probeName returns the name of the counter that the probes of a lane charge: a bucket, so that a
// server that takes no writes shows it. It expires two seconds later. On a cluster it is in one of the
// lane's slots; without any there is none.
func (l *lane) probeName() []byte {
	in := func(slot uint16) bool { return l.fleet.server.Nodes == nil || l.has(slot) }
	if l.fleet.server.Nodes != nil && !slices.ContainsFunc(l.fleet.chart.Load().spans, func(s span) bool { return s.lane == l }) {
		return nil
	}
	name := []byte(l.options.Prefix + "s1{probe}t1")
	for n := 1; !in(redis.SlotOf(name)); n++ {
		name = fmt.Appendf(nil, "%ss1{probe%d}t1", l.options.Prefix, n)
	}
	return name
}

var probePolicy = &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1 << 30, Window: time.Second, Burst: 1 << 31}
