package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

const (
	// A shard is probed minProbeDelay after it became unavailable, then at growing intervals of up
	// to maxProbeDelay, plus or minus a quarter, so that replicas do not reconnect at once.
	minProbeDelay = 50 * time.Millisecond
	maxProbeDelay = 500 * time.Millisecond
	// probeInterval is how often an available shard is probed, so that health and metrics notice an
	// idle server that died.
	probeInterval = time.Second
)

// run runs the shard until ctx ends, and returns when all goroutines have ended.
func (sh *shard) run(ctx context.Context) {
	var all sync.WaitGroup
	senders := 0
	sh.addSenders = func(most int) {
		for ; senders < most; senders++ {
			n := senders
			all.Go(func() { sh.runSender(n) })
		}
	}
	sh.addSenders(minInFlight)
	stop := context.AfterFunc(ctx, func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.endedAt = clock()
	})
	c := sh.runProber(ctx)
	stop()
	sh.close(context.WithoutCancel(ctx), c)
	all.Wait()
	if sh.loggedUnavailable && sh.replaced.Load() {
		sh.options.Log.replaced(sh.name)
	}
}

// close stops the senders and the timer. The fallback decides waiting requests. Unsynced hits are
// charged, if possible within flushBound. c is the last connection, nil if there was none.
func (sh *shard) close(ctx context.Context, c *redis.Conn) {
	sh.mu.Lock()
	failed := sh.conn != c
	sh.closed = true
	waiting := slices.DeleteFunc(sh.drainLocked(), func(req *request) bool {
		if !req.sent || !req.end.outlivesShard() {
			return false
		}
		sh.open.push(req)
		return true
	})
	sh.wake.Broadcast()
	sh.mu.Unlock()
	sh.fallBack(waiting)
	if failed && c != nil {
		c.Close()
	}
	sh.syncRemaining(ctx, c, failed)
}

// maxFlush bounds how long a shard with unsynced hits takes to end. Half of it is for replies in
// flight.
const maxFlush = 2 * time.Second

// syncRemaining charges unsynced hits by the connection c, or by a new one if c has failed, fails or is
// nil. It closes the connection.
func (sh *shard) syncRemaining(ctx context.Context, c *redis.Conn, failed bool) {
	sh.mu.Lock()
	until := sh.endedAt
	sh.mu.Unlock()
	if until.IsZero() {
		until = clock()
	}
	until = until.Add(sh.backend.store.flushBound)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if c != nil { // the replies determine the unsynced hits
		late := time.AfterFunc(sh.backend.store.flushBound/2, c.Close)
		sh.waitIdle()
		late.Stop()
	}
	if s := sh.backend.store; s.blocks != nil {
		if c == nil || failed {
			s.rechargeBlocks()
		} else if s.returnBlocks(ctx, c, s.flushBound/2) != nil {
			s.rechargeBlocks()
			c.Close()
			c = nil
		}
	}
	sh.pausing.Wait()
	for ctx.Err() == nil && sh.backend.ledger.hasUnsynced(sh.owns) {
		err := sh.guarded(func() (err error) {
			if c == nil {
				if c, err = sh.dial(ctx); err != nil {
					return err
				}
			}
			if _, err = sh.sync(ctx, c, until); err == nil {
				err = sh.syncMoving(ctx, c)
			}
			return err
		})
		if err == nil && !sh.backend.ledger.hasUnsynced(sh.owns) {
			break
		}
		if err != nil && c != nil {
			c.Close()
			c = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(minProbeDelay):
		}
	}
	if c != nil {
		c.Close()
	}
	for _, c := range sh.otherConns {
		c.Close()
	}
}

// runProber reconnects whenever the shard is unavailable. Nothing else dials until it returns. It
// returns its last connection, which may have failed, or nil.
func (sh *shard) runProber(ctx context.Context) *redis.Conn {
	wait := time.Duration(0)
	for {
		c, ok := sh.reconnect(ctx, wait)
		if !ok {
			return nil
		}
		since := clock()
		sh.mu.Lock()
		closed := sh.closed
		if !closed {
			sh.setConnLocked(c, false)
			sh.wake.Broadcast()
		}
		sh.mu.Unlock()
		if closed {
			return c
		}
		sh.backend.reached.Store(true)
		sh.backend.store.notifyReached()
		lost, ok := sh.monitor(ctx, c)
		if !ok {
			return c
		}
		sh.options.observe().Failed(string(lost.why.Kind))
		sh.logUnavailable(lost.why)
		lost.client.Close() // fails all that wait for a reply
		sh.waitIdle()
		sh.backend.requestRefresh()
		// The delay grows while a server answers nothing but probes.
		wait = max(minProbeDelay, min(2*wait, maxProbeDelay))
		if clock().Sub(since) > probeInterval {
			wait = minProbeDelay
		}
	}
}

// lateContext returns a context that ends some time after ctx: a reply in flight is waited for, because
// blocks can be returned only by the same connection.
func (sh *shard) lateContext(ctx context.Context) (late context.Context, cancel func()) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(sh.backend.store.flushBound / 2)
		defer timer.Stop()
		select {
		case <-late.Done():
		case <-timer.C:
			end()
		}
	})
	return late, func() {
		stop()
		end()
	}
}

func (sh *shard) logUnavailable(why *redis.Error) {
	sh.backend.logUnavailable(sh.name, why)
	sh.loggedUnavailable = true
}

// monitor waits until the shard, which uses c, becomes unavailable. It reports false if ctx ends
// before.
func (sh *shard) monitor(ctx context.Context, c *redis.Conn) (gone lostConn, ok bool) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case lost := <-sh.lost: // before further work on c
			return lost, true
		default:
		}
		select {
		case <-ctx.Done():
			return lostConn{}, false
		case lost := <-sh.lost:
			return lost, true
		case <-c.Done: // before a request notices
			if ctx.Err() != nil {
				return lostConn{}, false // ctx ended a probe, which closed the connection
			}
			why := c.Err()
			sh.markUnavailable(c, redis.NewError(why))
			return <-sh.lost, true
		case <-tick.C:
		case <-sh.syncNow:
			err := sh.guarded(func() error {
				n, err := sh.syncSome(ctx, c, clock().Add(sh.backend.store.syncBound), &Synced{})
				if n > 0 {
					sh.requestSync() // maybe there are more, after a look at the other events
				}
				return err
			})
			if err != nil && ctx.Err() == nil {
				sh.markUnavailable(c, redis.NewError(err))
			}
			continue
		case <-sh.retrySync.C:
			if err := sh.guarded(func() error { return sh.syncMoving(ctx, c) }); err != nil && ctx.Err() == nil {
				sh.markUnavailable(c, redis.NewError(err))
			}
			continue
		}
		// A waiting request makes the shard unavailable by its own timer.
		err := sh.guarded(func() error {
			late, cancel := sh.lateContext(ctx)
			defer cancel()
			return c.Within(late, sh.backend.probeTimeout(), func() error {
				_, err := sh.sendProbe(c, &script.Run{})
				if s := sh.backend.store; s.blocks != nil && err == nil {
					s.countReplicas(c)
				}
				return err
			})
		})
		switch {
		case err == nil || ctx.Err() != nil:
		case redis.KindOf(err) == redis.Cluster: // the slot of the probe has moved
			sh.backend.requestRefresh()
		default:
			sh.markUnavailable(c, redis.NewError(err))
		}
	}
}

// guarded calls do, and returns an error if it panics.
func (sh *shard) guarded(do func() error) (err error) {
	err = redis.ErrPanicked
	sh.options.guard(func() { err = do() })
	return err
}

// reconnect tries until a server answers in time. The first attempt follows after about wait, which
// is 0 for the first connection. It reports false if ctx ends before.
func (sh *shard) reconnect(ctx context.Context, wait time.Duration) (*redis.Conn, bool) {
	first := wait == 0
	since := clock()
	var last redis.Kind
	for {
		timer := time.NewTimer(sh.options.Spread(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, false
		case <-timer.C:
		}
		var c *redis.Conn
		var charged Synced
		err := sh.guarded(func() (err error) {
			c, charged, err = sh.connect(ctx)
			return err
		})
		if err == nil {
			if !first || last != "" {
				sh.options.Log.recovered(sh.name, clock().Sub(since), charged)
				sh.loggedUnavailable = false
			}
			return c, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		why := redis.NewError(err)
		sh.markUnavailable(nil, why)
		sh.backend.requestRefresh()
		sh.options.observe().Failed(string(why.Kind))
		if why.Kind != last && (first || why.Kind.Remedy() != "") {
			sh.logUnavailable(why)
		}
		last = why.Kind
		wait = min(max(minProbeDelay, wait*2), maxProbeDelay)
	}
}

// connect dials, runs the script on a counter of the probe, and charges unsynced hits. It fails if
// the probe takes longer than a request would wait.
func (sh *shard) connect(ctx context.Context) (*redis.Conn, Synced, error) {
	c, err := sh.dial(ctx)
	if err != nil {
		return nil, Synced{}, err
	}
	s := sh.backend.store
	err = redis.ErrPanicked
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	err = c.Within(ctx, sh.backend.probeTimeout(), func() error {
		var probe script.Run
		probe.Clear(sh.options.storeTime())
		if sh.backend.server.Nodes == nil { // any node of a cluster rejects keys in two slots
			probe.Message.Keys = append(probe.Message.Keys, sh.options.Prefix+"s1{probe}t1",
				sh.options.Prefix+"s1{probe2}t1")
		}
		// The first run may have to send the script.
		script.DecideScript.Run(c, &probe)
		switch kind := redis.KindOf(probe.Err); {
		case probe.Err == nil:
		case kind == redis.Cluster && sh.backend.server.Nodes == nil:
			return &redis.Error{Kind: redis.Mode, Err: fmt.Errorf("%s is a node of a cluster: %w", sh.name, probe.Err)}
		default:
			return probe.Err
		}
		took, err := sh.sendProbe(c, &probe)
		sh.shortestTrip.Store(int64(took))
		sh.addSenders(sh.mostInFlight())
		for err == nil && sh.offsets.isVague() {
			_, err = sh.sendProbe(c, &probe)
		}
		if err == nil && took > sh.options.Timeout {
			err = context.DeadlineExceeded
		}
		if s.blocks != nil && err == nil {
			s.countReplicas(c)
		}
		return err
	})
	var charged Synced
	if err == nil {
		if s.blocks != nil {
			err = s.recoverBlocks(ctx, c)
		}
		if err == nil {
			charged, err = sh.syncBeforeUse(ctx, c)
		}
	}
	return c, charged, err
}

// sendProbe decides a charge of the probe by the script, or none if the shard has no slots. It also
// learns the offset of the store's clock before the first request.
func (sh *shard) sendProbe(c *redis.Conn, probe *script.Run) (took time.Duration, err error) {
	probe.Clear(sh.options.storeTime())
	if name := sh.probeName(); name != nil {
		var charge script.Call
		charge.Encode(0, &limiter.Batch{Charges: []limiter.Charge{{Policy: probePolicy, Hits: 1}}}, [][]byte{name}, 0)
		probe.Add(&charge)
	}
	sent := sh.options.elapsed()
	if script.DecideScript.Run(c, probe); probe.Err != nil {
		return 0, probe.Err
	}
	took = sh.options.elapsed() - sent
	sh.learnOffset(probe.Reply.Now, sent, took)
	return took, nil
}

// probeName returns the name of the counter that probes charge: a bucket, so that probes fail at a
// server that accepts no writes. It expires after two seconds. On a cluster it is in one of the
// shard's slots; without slots it is nil.
func (sh *shard) probeName() []byte {
	in := func(slot uint16) bool { return sh.backend.server.Nodes == nil || sh.owns(slot) }
	if sh.backend.server.Nodes != nil &&
		!slices.ContainsFunc(sh.backend.slots.Load().ranges, func(s slotRange) bool { return s.shard == sh }) {
		return nil
	}
	name := []byte(sh.options.Prefix + "s1{probe}t1")
	for n := 1; !in(redis.SlotOf(name)); n++ {
		name = fmt.Appendf(nil, "%ss1{probe%d}t1", sh.options.Prefix, n)
	}
	return name
}

var probePolicy = &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1 << 30, Window: time.Second, Burst: 1 << 31}
