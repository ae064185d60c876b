package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// A lane that is away is probed firstProbe after it went, then in growing steps of up to
	// mostProbe, give or take a quarter, so that replicas do not come together.
	firstProbe = 50 * time.Millisecond
	mostProbe  = 500 * time.Millisecond
	// A lane that is there is probed each second, so that health and metrics know of a server that
	// died while nobody asked.
	steadyProbe = time.Second
)

// A dialer connects to the server of a lane.
type dialer func(ctx context.Context) (*client, error)

// probe is the lane's prober: whenever the lane is away it looks for the server until one answers in
// time. Only it dials.
func (l *lane) probe(ctx context.Context) {
	wait := time.Duration(0)
	for {
		c, ok := l.reach(ctx, wait)
		if !ok {
			return
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
			c.close()
			return
		}
		gone, ok := l.watch(ctx, c)
		if !ok {
			return
		}
		l.options.observe().Failed(l.shard, gone.why.kind)
		l.options.Log.away(l.shard, gone.why)
		gone.client.close() // which ends what waits for it
		l.ground()
		l.fleet.ask()
		// A server that says nothing but a probe's reply is asked less and less often.
		if wait = max(firstProbe, min(2*wait, mostProbe)); clock().Sub(since) > steadyProbe {
			wait = firstProbe
		}
	}
}

// watch waits until the lane, which has c, goes away. It reports false if ctx ends before.
func (l *lane) watch(ctx context.Context, c *client) (gone lost, ok bool) {
	tick := time.NewTicker(steadyProbe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return lost{}, false
		case gone := <-l.lost:
			return gone, true
		case <-c.over: // before anybody asks
			why := c.why()
			l.fail(c, &failure{kindOf(why), why})
			return <-l.lost, true
		case <-tick.C:
		case <-l.owes:
			err := l.guarded(func() error {
				_, err := l.repay(ctx, c, clock().Add(mostRepaying))
				return err
			})
			if err != nil && ctx.Err() == nil {
				l.fail(c, &failure{kindOf(err), err})
			}
			continue
		}
		// Whether it comes in time is for those who wait to say: nobody may be in a hurry now.
		err := l.guarded(func() error {
			return c.within(ctx, func() error {
				_, err := l.decideProbe(c, &flight{})
				return err
			})
		})
		switch {
		case err == nil || ctx.Err() != nil:
		case kindOf(err) == Cluster: // the probe's slot has moved
			l.fleet.ask()
		default:
			l.fail(c, &failure{kindOf(err), err})
		}
	}
}

// guarded is do, and an error in place of a panic of it.
func (l *lane) guarded(do func() error) (err error) {
	err = errPanicked
	l.options.guard(func() { err = do() })
	return err
}

// reach tries until a server answers in time, at first after about wait, which is 0 for the first
// connection. It reports false if ctx ends before.
func (l *lane) reach(ctx context.Context, wait time.Duration) (*client, bool) {
	first, since := wait == 0, clock()
	var last Kind
	for {
		timer := time.NewTimer(wait - wait/4 + rand.N(wait/2+1)) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, false
		case <-timer.C:
		}
		var c *client
		var charged Repaid
		err := l.guarded(func() (err error) {
			c, charged, err = l.try(ctx)
			return err
		})
		if err == nil {
			if !first || last != "" {
				l.options.Log.back(l.shard, clock().Sub(since), charged)
			}
			return c, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		l.giveUp()
		l.fleet.ask()
		why := &failure{kindOf(err), err}
		l.options.observe().Failed(l.shard, why.kind)
		if why.kind != last && (first || why.kind.remedy() != "") {
			l.options.Log.away(l.shard, why)
		}
		last = why.kind
		wait = min(max(firstProbe, wait*2), mostProbe)
	}
}

// try dials, runs the script on a counter of the probe's own, and charges what is owed. It fails if
// the probe takes longer than a caller would wait.
func (l *lane) try(ctx context.Context) (*client, Repaid, error) {
	c, err := l.dial(ctx)
	if err != nil {
		return nil, Repaid{}, err
	}
	err = errPanicked
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	err = c.within(ctx, func() error {
		var f flight
		f.message.clear(0)
		// The first run may have to bring the script.
		if err := c.warm(&f); err != nil {
			return err
		}
		took, err := l.decideProbe(c, &f)
		if err == nil && took > l.options.Timeout {
			err = context.DeadlineExceeded
		}
		return err
	})
	var charged Repaid
	if err == nil {
		charged, err = l.catchUp(ctx, c)
	}
	return c, charged, err
}

// decideProbe has the script decide a charge of the probe's own, with f's memory. So the first
// charges, too, go by the store's clock.
func (l *lane) decideProbe(c *client, f *flight) (took time.Duration, err error) {
	name := l.probeName()
	if name == nil {
		return 0, nil
	}
	var probe call
	probe.encode(0, &limiter.Batch{Charges: []limiter.Charge{{Policy: probePolicy, Hits: 1}}}, [][]byte{name}, 0)
	f.message.clear(l.options.storeTime())
	f.message.add(&probe)
	sent := l.options.Clock()
	if err = c.run(&f.message, &f.reply); err != nil {
		return 0, err
	}
	took = l.options.Clock().Sub(sent)
	l.fleet.learn(f.reply.now, sent, took)
	return took, nil
}

// probeName returns the name of the counter that the probes of a lane charge: a bucket, so that a
// server that takes no writes shows it. It expires two seconds later. On a cluster it is in one of the
// lane's slots; without any there is none.
func (l *lane) probeName() []byte {
	spans := l.fleet.chart.Load().spans
	if l.fleet.server.Nodes != nil && !slices.ContainsFunc(spans, func(s span) bool { return s.lane == l }) {
		return nil
	}
	for n := 0; ; n++ {
		name := []byte(l.options.Prefix + "s1{probe}t1")
		if n > 0 {
			name = []byte(l.options.Prefix + "s1{probe" + strconv.Itoa(n) + "}t1")
		}
		if l.fleet.server.Nodes == nil || slices.ContainsFunc(spans, func(s span) bool {
			slot := slotOf(name)
			return s.lane == l && s.first <= slot && slot <= s.last
		}) {
			return name
		}
	}
}

var probePolicy = &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1 << 30, Window: time.Second, Burst: 1 << 31}
