package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	steady "github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// New returns a store, which is unavailable until [Store.Run] has reached its server.
func New(options Options) (*Store, error) {
	if options.Jitter == 0 {
		options.Jitter = time.Minute
	}
	options.DialTimeout = cmp.Or(options.DialTimeout, time.Second)
	options.PerSecondDialTimeout = cmp.Or(options.PerSecondDialTimeout, time.Second)
	if options.Clock == nil {
		options.Clock = clock
	}
	if options.Steady == nil {
		options.Steady = steady.FromFunc(func() (limiter.Time, time.Duration) {
			now := options.Clock().UnixNano()
			return limiter.Time(now), time.Duration(now)
		})
	}
	if options.Spread == nil {
		options.Spread = randomSpread
	}
	if options.Timeout < time.Millisecond || options.Timeout > time.Minute {
		return nil, fmt.Errorf("store timeout of %v: must be 1ms to 1m", options.Timeout)
	}
	if err := options.Fallback.Validate(); err != nil {
		return nil, err
	}
	if options.Table != nil {
		options.Table.SetMirror()
	}
	s := &Store{
		options: options, partBound: script.MaxPart, flushBound: maxFlush, syncBound: maxSync, tryAgainPause: tryAgainPause, reached: make(chan struct{}, 1),
	}
	s.mirror = options.Table
	s.main = newBackend(s, &s.options.Server, options.DialTimeout)
	s.singleSlot = options.PerSecond == nil && options.Server.Nodes == nil
	if options.Blocks == BlocksAuto && s.singleSlot {
		base := clock()
		s.replica = rand.Text()
		s.blocks = newBlocks(s, func() time.Duration { return time.Since(base) })
		s.blocks.remember = lately + options.Timeout + probeInterval // until a silent server is noticed
	}
	if options.PerSecond != nil {
		s.perSecond = newBackend(s, options.PerSecond, options.PerSecondDialTimeout)
	}
	return s, nil
}

// Run connects to the store and serves requests until ctx ends. It returns when all its goroutines
// have ended.
func (s *Store) Run(ctx context.Context) {
	var all sync.WaitGroup
	if s.perSecond != nil {
		all.Go(func() { s.perSecond.run(ctx) })
	}
	if s.blocks != nil {
		all.Go(func() { s.runBlocks(ctx) })
	}
	s.main.run(ctx)
	all.Wait()
}

// Offset returns how far the store's clock is ahead of this machine's, by the latest reply, and 0
// before the first.
func (s *Store) Offset() time.Duration { return time.Duration(s.main.time(0)) }

// Shards returns the addresses of the primaries, and whether each is available.
func (s *Store) Shards() map[string]bool {
	all := s.main.shardStates()
	if s.perSecond != nil {
		maps.Copy(all, s.perSecond.shardStates())
	}
	return all
}

// Up reports whether all primaries are available.
func (s *Store) Up() bool { return s.main.isUp() && (s.perSecond == nil || s.perSecond.isUp()) }

// Reached reports whether the store has answered since the start; with a separate store for limits
// of one second, whether both have.
func (s *Store) Reached() bool {
	return s.main.reached.Load() && (s.perSecond == nil || s.perSecond.reached.Load())
}

// WrongMode returns an error with its remedy if a node of a cluster has answered at the URL of a single
// server, or the reverse, and nil otherwise.
func (s *Store) WrongMode() error {
	for _, f := range []*backend{s.main, s.perSecond} {
		if f == nil {
			continue
		}
		if why := f.wrongMode.Load(); why != nil {
			return fmt.Errorf("the store: %w: %s", why, why.Kind.Remedy())
		}
	}
	return nil
}

// Await waits until every primary is available, ctx ends, or [Store.WrongMode] returns an error. It
// reports whether all are available. Run must run, and only one caller may wait at a time.
func (s *Store) Await(ctx context.Context) bool {
	for !s.Up() {
		if s.WrongMode() != nil {
			return false
		}
		select {
		case <-s.reached:
		case <-ctx.Done():
			return s.Up()
		}
	}
	return true
}

// Decide decides b, within [Options.Timeout], or within b.Budget if that is less and not 0. names
// are the names of b's counters; the name of a fixed window lacks the window's start.
//
// If done is false, Decide calls w.Decided once, possibly before it returns, and uses b and names
// until then.
func (s *Store) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error) {
	hot := false
	if s.blocks != nil {
		if done, hot = s.blocks.decide(now, b, names); done {
			s.options.observe().Decided(byBlock, len(b.Charges))
			return true, nil
		}
	}
	if !hot && s.denyFromMemory(now, b) {
		return true, nil
	}
	cost := script.CostOfAll(b)
	if cost > script.MaxRequest {
		s.decideTooLarge(now, b, names, w)
		return true, nil
	}
	if s.singleSlot && cost <= s.partBound {
		return s.decide(s.main, 0, now, b, names, w, s.options.maxWait(b.Budget), false)
	}
	r := s.split(now, b, names)
	r.bulk = cost > s.partBound
	if len(r.parts) == 1 {
		f := r.parts[0].backend
		slot := r.parts[0].slot
		r.release()
		return s.decide(f, slot, now, b, names, w, s.options.maxWait(b.Budget), false)
	}
	r.start(w)
	return false, nil
}

// decideTooLarge decides b in the mirror. The store is charged later, in several runs, as with hits
// that the fallback admits.
func (s *Store) decideTooLarge(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) {
	s.options.observe().Decided(byTooLarge, len(b.Charges))
	_ = s.main.withLocalLeases(s.main.time(now), b, func(i int) string { return script.LeaseName(b.Charges[i].Policy, names[i]) }, func() error {
		s.blocks.mergeWindows(s.main.time(now), b)
		s.mirror.Decide(s.main.time(now), b)
		return nil
	})
	s.recordAllUnsynced(Local, true, now, b, names, w)
}

// decide decides charges whose counters are all in one slot of f, and waits at most the given
// duration. bulk is set for parts of large requests.
func (s *Store) decide(
	f *backend, slot uint16, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter, wait time.Duration, bulk bool,
) (done bool, err error) {
	sh := f.shardOf(slot)
	if sh == nil || !sh.accepts() {
		return true, s.decideByFallback(f, slot, now, b, names, w)
	}
	req := newRequest()
	at := f.time(now)
	if f.server.Nodes != nil {
		req.slotByStart = slotDependsOnStart(b.Charges[0].Policy, names[0])
		at, req.call.ClockAhead = sh.timeBy(now, req.slotByStart)
	}
	if s.blocks != nil && !bulk {
		s.blocks.spendOwn(moment{now, at, s.blocks.elapsed()}, b, req)
	}
	// If some of several counters have moved to another node, only a script fails.
	if f.server.Nodes != nil && len(b.Charges) > 1 || !req.call.EncodeNative(at, b, names, s.options.Jitter) {
		req.call.Encode(at, b, names, s.options.Jitter)
	}
	req.restoreHits(b)
	req.decideFor(w, now, b)
	req.slot = slot
	req.bulk = bulk
	if !req.send(sh, wait) {
		req.loseOwn()
		return true, s.decideByFallback(f, slot, now, b, names, w)
	}
	return false, nil
}

// decideByFallback decides a request that no shard accepts.
func (s *Store) decideByFallback(
	f *backend, slot uint16, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter,
) error {
	at := f.time(now)
	if f.server.Nodes != nil {
		at = f.timeOf(slot, now, b.Charges[0].Policy, names[0])
	}
	err := f.withLocalLeases(at, b, func(i int) string { return script.LeaseName(b.Charges[i].Policy, names[i]) },
		func() error { return s.fallBack(at, b) })
	s.recordAllUnsynced(s.options.Fallback, err == nil, now, b, names, w)
	return err
}

// send queues req at a shard for at most the given duration. It reports false if the shard is
// unavailable.
func (req *request) send(sh *shard, wait time.Duration) bool {
	req.queuedAt = clock()
	req.deadline = req.queuedAt.Add(wait)
	return sh != nil && sh.enqueue(req)
}

// fallBack decides b without the store, at a time of the store's clock.
func (s *Store) fallBack(at limiter.Time, b *limiter.Batch) (err error) {
	err = redis.ErrPanicked // if it panics
	s.options.guard(func() {
		s.options.observe().Decided(byFallback, len(b.Charges))
		s.blocks.mergeWindows(at, b)
		err = s.options.Fallback.decide(at, b, s.mirror)
	})
	return err
}
