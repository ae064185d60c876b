package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// A Store decides charges in Redis or Valkey. Its methods may be called concurrently. Run must run.
type Store struct {
	options   Options
	fleet     *fleet
	perSecond *fleet        // nil without
	plain     bool          // all counters are in one slot
	part      time.Duration // mostPart but in tests
	flushing  time.Duration // mostFlushing but in tests
	pause     time.Duration // pause but in tests
	full      full
	reached   chan struct{} // has an element if a primary was reached, or the slots were told, since Await looked
	foreign   atomic.Int64  // when Log.Foreign was called last, in nanoseconds since 1970
}

// New returns a store, which is away until [Store.Run] has reached its server.
func New(options Options) (*Store, error) {
	if options.Jitter == 0 {
		options.Jitter = time.Minute
	}
	options.DialTimeout = cmp.Or(options.DialTimeout, time.Second)
	options.PerSecondDialTimeout = cmp.Or(options.PerSecondDialTimeout, time.Second)
	if options.Clock == nil {
		options.Clock = clock
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
	s := &Store{options: options, part: script.MostPart, flushing: mostFlushing, pause: pause, reached: make(chan struct{}, 1)}
	s.fleet = newFleet(s, &s.options.Server, options.DialTimeout)
	s.plain = options.PerSecond == nil && options.Server.Nodes == nil
	if options.PerSecond != nil {
		s.perSecond = newFleet(s, options.PerSecond, options.PerSecondDialTimeout)
	}
	return s, nil
}

// Run keeps the store until ctx ends, and returns when all that it started has ended.
func (s *Store) Run(ctx context.Context) {
	var all sync.WaitGroup
	if s.perSecond != nil {
		all.Go(func() { s.perSecond.run(ctx) })
	}
	s.fleet.run(ctx)
	all.Wait()
}

// Offset returns by how much the store's clock is ahead of this machine's, as the last reply tells; 0
// before the first.
func (s *Store) Offset() time.Duration { return time.Duration(s.fleet.offset.Load()) }

// Shards returns the addresses of the primaries, and whether each answers.
func (s *Store) Shards() map[string]bool {
	all := s.fleet.shards()
	if s.perSecond != nil {
		maps.Copy(all, s.perSecond.shards())
	}
	return all
}

// Up reports whether the store answers.
func (s *Store) Up() bool { return s.fleet.up() && (s.perSecond == nil || s.perSecond.up()) }

// Await waits until every primary has answered, or ctx ends, and reports whether all have. Run must run, and only one caller may
// wait at a time.
func (s *Store) Await(ctx context.Context) bool {
	for !s.Up() {
		select {
		case <-s.reached:
		case <-ctx.Done():
			return s.Up()
		}
	}
	return true
}

// notifyReached has Await look again.
func (s *Store) notifyReached() {
	select {
	case s.reached <- struct{}{}:
	default:
	}
}

// Decide decides b, or begins to and reports false: then it calls w.Decided once, maybe before it
// returns, and has b and names until then. names are those of b's charges; the name of a fixed window lacks
// the window's start. It decides within [Options.Timeout], or
// within b.Budget if that is less and not 0.
func (s *Store) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error) {
	if s.certain(now, b) {
		return true, nil
	}
	cost := script.CostOfAll(b)
	if cost > script.MostRequest {
		s.tooLarge(now, b, names, w)
		return true, nil
	}
	part := s.mostPart(s.fleet, 0)
	if s.plain && cost <= part {
		return s.decide(s.fleet, 0, now, b, names, w, s.options.wait(b.Budget), false)
	}
	r := s.split(now, b, names, false)
	r.bulk = cost > part
	if len(r.parts) == 1 {
		f, slot := r.parts[0].fleet, r.parts[0].slot
		r.free()
		return s.decide(f, slot, now, b, names, w, s.options.wait(b.Budget), false)
	}
	r.begin(w)
	return false, nil
}

// tooLarge decides b in memory, by what the store last said. The store is charged with it after, in
// pieces, as with what the fallback admits.
func (s *Store) tooLarge(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) {
	s.options.observe().Decided(byTooLarge, len(b.Charges))
	_ = s.fleet.leased(s.fleet.time(now), b, func(i int) string { return script.LeaseName(b.Charges[i].Policy, names[i]) }, func() error {
		s.options.Table.Decide(s.fleet.time(now), b)
		return nil
	})
	s.owes(Local, true, now, b, names, w)
}

// decide is Decide for charges whose counters are all in one slot of f, which wait for the given duration at most. If bulk is set
// they are a part of a large request.
func (s *Store) decide(
	f *fleet, slot uint16, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter, wait time.Duration, bulk bool,
) (done bool, err error) {
	l := f.lane(slot)
	if l == nil || !l.takes() {
		return true, s.without(f, slot, now, b, names, w)
	}
	a := newAsk()
	at := f.time(now)
	if f.server.Nodes != nil {
		a.startSays = startSaysSlot(b.Charges[0].Policy, names[0])
		at, a.call.Ahead = l.timeBy(now, a.startSays)
	}
	// Counters of a native request with several may be half moved to another node, which only a script hears of.
	if f.server.Nodes != nil && len(b.Charges) > 1 || !a.call.EncodeNative(at, b, names, s.options.Jitter) {
		a.call.Encode(at, b, names, s.options.Jitter)
	}
	a.now, a.batch, a.waiter, a.slot, a.bulk = now, b, w, slot, bulk
	if !a.send(l, wait) {
		return true, s.without(f, slot, now, b, names, w)
	}
	return false, nil
}

// without decides by the fallback what decide could not even ask for.
func (s *Store) without(f *fleet, slot uint16, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) error {
	at := f.time(now)
	if f.server.Nodes != nil {
		at = f.timeOf(slot, now, b.Charges[0].Policy, names[0])
	}
	err := f.leased(at, b, func(i int) string { return script.LeaseName(b.Charges[i].Policy, names[i]) }, func() error { return s.options.fallBack(at, b) })
	s.owes(s.options.Fallback, err == nil, now, b, names, w)
	return err
}

// send queues a in l, where it waits so long at most. It reports false if the lane is away.
func (a *ask) send(l *lane, wait time.Duration) bool {
	a.since = clock()
	a.until = a.since.Add(wait)
	return l != nil && l.put(a)
}

// adopt has the mirror know in what state the store has left b's counters at its time now. left is
// memory to use again.
func (s *Store) adopt(now limiter.Time, b *limiter.Batch, left *limiter.State) {
	s.options.observe().Decided(byStore, len(b.Charges))
	for i := range b.Charges {
		b.Stored().StateAfter(now, i, left)
		b.Stored().MergeInto(s.options.Table, now, i, left)
		c, d := &b.Charges[i], &b.Decisions[i]
		if (d.Over || d.Remaining == 0) && !c.Refund && c.Hits > 0 && !c.Policy.UsesLeases() {
			s.full.mark(now, c)
		}
	}
}

// foreignEvery is how often Log.Foreign is called at most.
const foreignEvery = 10 * time.Second

// logForeign has the log know of a key that another program wrote.
func (s *Store) logForeign(shard string, why *script.ForeignError) {
	now := clock().UnixNano()
	last := s.foreign.Load()
	if s.options.Log.Foreign != nil && (last == 0 || now-last >= int64(foreignEvery)) && s.foreign.CompareAndSwap(last, now) {
		s.options.Log.Foreign(shard, why.Key, why.Err)
	}
}
