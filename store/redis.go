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
)

// Options configures a [Store].
type Options struct {
	// Server is where the store is.
	Server Server
	// PerSecond is where limits of one second are. Nil means with the others.
	PerSecond *Server
	// Prefix comes before the names of counters of the store's own.
	Prefix string
	// DialTimeout is how long a connection may take, handshakes and all, and PerSecondDialTimeout one
	// to PerSecond. 0 means a second.
	DialTimeout, PerSecondDialTimeout time.Duration
	// Timeout is how long a caller waits for the store at most, 1ms to a minute; one with a deadline waits as
	// long as that leaves room. A store that says nothing for as long is away.
	Timeout time.Duration
	// Jitter is the most that keys of fixed windows outlive these, beyond a second. 0 means a minute,
	// and less none.
	Jitter time.Duration
	// Fallback decides while the store is away.
	Fallback Fallback
	// Table is a mirror of what the store last said of each counter. [Local] decides in it, and so are
	// certain refusals.
	Table *limiter.Table
	// Observer is told of what happens. Optional.
	Observer Observer
	// Log is told when a shard goes away and comes back. Optional.
	Log Log
	// Clock reads the clock that callers' times are of. Nil means this machine's.
	Clock func() time.Time
	at    func() limiter.Time // tells the store's time; nil for its own clock's
	// Panicked is called with what was thrown in place of a decision, a bug, while the stack still
	// has its place. Optional.
	Panicked func(thrown any)
}

// An Observer counts for metrics. Its methods are called concurrently and must not block.
type Observer interface {
	// Batch tells of a batch that the store has answered.
	Batch(shard string, took time.Duration, charges int)
	// Failed tells of a batch or a probe that failed.
	Failed(shard string, kind Kind)
	// Decided tells by what a number of charges were decided.
	Decided(by string, charges int)
	// Repaid tells that the store was charged with hits that the fallback had admitted.
	Repaid(hits uint64)
	// Forgot tells of hits that the fallback admitted and the store will not be charged with: they were on
	// too many counters, or on one that another program has written.
	Forgot(hits uint64)
	// Diverged tells that the store admitted another number than its reply says: a bug.
	Diverged(shard string)
}

// Log says what an operator should know. Its functions are optional.
type Log struct {
	// Away is called when a shard goes away, and while it is away, when there is another reason.
	// Remedy is empty where only waiting helps.
	Away func(shard string, kind Kind, err error, remedy string)
	// Back is called when it is back and was charged with what the fallback had admitted.
	Back func(shard string, after time.Duration, charged Repaid)
	// Foreign is called, once in ten seconds at most, when a charge cannot be decided because another program
	// wrote the key of its counter.
	Foreign func(shard, key string, err error)
}

func (l *Log) away(shard string, why *failure) {
	if l.Away != nil {
		l.Away(shard, why.kind, why.err, why.kind.remedy())
	}
}

func (l *Log) back(shard string, after time.Duration, charged Repaid) {
	if l.Back != nil {
		l.Back(shard, after, charged)
	}
}

// By what charges were decided.
const (
	byStore    = "store"
	byMemory   = "memory" // certain refusals
	byFallback = "fallback"
	byTooLarge = "too_large" // in memory, of requests that would keep the store for too long
)

// Deciders are all of these, for metrics.
var Deciders = []string{byStore, byMemory, byFallback, byTooLarge}

type silent struct{}

func (silent) Batch(string, time.Duration, int) {}
func (silent) Failed(string, Kind)              {}
func (silent) Decided(string, int)              {}
func (silent) Repaid(uint64)                    {}
func (silent) Forgot(uint64)                    {}
func (silent) Diverged(string)                  {}

func (o *Options) observe() Observer {
	if o.Observer == nil {
		return silent{}
	}
	return o.Observer
}

// storeTime returns the time that the scripts are given, 0 for the server's own.
func (o *Options) storeTime() limiter.Time {
	if o.at == nil {
		return 0
	}
	return o.at()
}

// fallBack decides b without the store, at a time of the store's clock.
func (o *Options) fallBack(now limiter.Time, b *limiter.Batch) (err error) {
	err = errPanicked // unless it returns
	o.guard(func() {
		o.observe().Decided(byFallback, len(b.Charges))
		err = o.Fallback.decide(now, b, o.Table)
	})
	return err
}

// A Store decides charges in Redis or Valkey. Its methods may be called concurrently. Run must run.
type Store struct {
	options   Options
	fleet     *fleet
	perSecond *fleet        // nil without
	plain     bool          // all counters are in one slot
	part      time.Duration // mostPart but in tests
	full      full
	foreign   atomic.Int64 // when Log.Foreign was called last, in nanoseconds since 1970
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
	s := &Store{options: options, part: mostPart}
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

// Decide decides b, or begins to and reports false: then it calls w.Decided once, maybe before it
// returns, and has b and names until then. names are those of b's charges; the name of a fixed window lacks
// the window's start. It decides within [Options.Timeout], or
// within b.Budget if that is less and not 0.
func (s *Store) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error) {
	if s.certain(now, b) {
		return true, nil
	}
	cost := costOfAll(b)
	if cost > mostRequest {
		s.tooLarge(now, b, names, w)
		return true, nil
	}
	if s.plain && cost <= s.part {
		return s.decide(s.fleet, 0, now, b, names, w, nil)
	}
	r := s.split(now, b, names)
	r.bulk = cost > s.part
	if len(r.parts) == 1 {
		f, slot := r.parts[0].fleet, r.parts[0].slot
		r.free()
		return s.decide(f, slot, now, b, names, w, nil)
	}
	r.begin(w)
	return false, nil
}

// tooLarge decides b in memory, by what the store last said. The store is charged with it after, in
// pieces, as with what the fallback admits.
func (s *Store) tooLarge(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) {
	s.options.observe().Decided(byTooLarge, len(b.Charges))
	s.options.Table.Decide(s.fleet.time(now), b)
	s.options.guard(func() {
		var room [256]byte // of most names
		for i := range b.Charges {
			f, slot := s.slotOf(now, &b.Charges[i], names[i])
			f.owes(Local, f.time(now), b, i, appendName(room[:0], f.time(now), b.Charges[i].Policy, names[i]), slot, w)
			f.nudge(slot)
		}
	})
}

// decide is Decide for charges whose counters are all in one slot of f. They may be a part of a
// request's.
func (s *Store) decide(f *fleet, slot uint16, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter, of *part) (done bool, err error) {
	l := f.lane(slot)
	if l == nil || !l.takes() {
		return true, s.without(f, slot, now, b, names, w)
	}
	a := newAsk()
	// Counters of a native request with several may be half moved to another node, which only a script hears of.
	if f.server.Nodes != nil && len(b.Charges) > 1 || !a.call.encodeNative(f.time(now), b, names, s.options.Jitter) {
		a.call.encode(f.time(now), b, names, s.options.Jitter)
	}
	a.now, a.batch, a.waiter, a.part, a.slot, a.bulk = now, b, w, of, slot, of != nil && of.split.bulk
	if !a.send(l, s.options.wait(b.Budget)) {
		return true, s.without(f, slot, now, b, names, w)
	}
	return false, nil
}

// without decides by the fallback what decide could not even ask for.
func (s *Store) without(f *fleet, slot uint16, now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) error {
	err := s.options.fallBack(f.time(now), b)
	if err == nil && s.options.Fallback.owes() {
		s.options.guard(func() { f.owesAll(f.time(now), b, names, slot, w) })
	}
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
		b.Stored().Left(now, i, left)
		b.Stored().Adopt(s.options.Table, now, i, left)
		c, d := &b.Charges[i], &b.Decisions[i]
		if (d.Over || d.Remaining == 0) && !c.Refund && c.Hits > 0 {
			s.full.tell(now, c)
		}
	}
}

// foreignEvery is how often Log.Foreign is called at most.
const foreignEvery = 10 * time.Second

// tellForeign has the log know of a key that another program wrote.
func (s *Store) tellForeign(shard string, why *foreignError) {
	now := clock().UnixNano()
	last := s.foreign.Load()
	if s.options.Log.Foreign != nil && (last == 0 || now-last >= int64(foreignEvery)) && s.foreign.CompareAndSwap(last, now) {
		s.options.Log.Foreign(shard, why.key, why.err)
	}
}
