package store

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/sentinel"
)

// A backend is one store: its primaries, with a shard for each. On a cluster a shard has the slots
// of its primary. A store that is not a cluster has one shard, which has all slots.
type backend struct {
	store       *Store
	options     *Options
	server      *redis.Server
	timeout     time.Duration // maximum duration of a dial
	offset      atomic.Int64  // store's time minus the steady clock's, in nanoseconds, or unknown; on a cluster, of the node with the first slots
	offsetKnown atomic.Bool   // the offset is that of the node with the first slots
	refresh     chan struct{} // signals that the primaries are to be queried at once; holds one element
	slots       atomic.Pointer[slotMap]
	watch       *sentinel.Watch // nil without Sentinels
	reached     atomic.Bool     // a primary has answered since the start
	wrongMode   atomic.Pointer[redis.Error]
	ledger      ledger
	outcomeMu   sync.Mutex // guards the outcomes of requests

	mu      sync.Mutex
	start   func(sh *shard) (end context.CancelFunc) // nil except while f runs
	shards  map[string]*runningShard
	running sync.WaitGroup // goroutines of shards
}

// A runningShard is a shard whose goroutines run.
type runningShard struct {
	shard *shard
	stop  context.CancelFunc
}

// A slotMap maps slots to shards. It is immutable.
type slotMap struct{ ranges []slotRange } // sorted by slot

// A slotRange is a range of slots of one primary, with its shard.
type slotRange struct {
	redis.NodeSlots
	shard *shard
}

func newBackend(s *Store, server *redis.Server, timeout time.Duration) *backend {
	f := &backend{
		store: s, options: &s.options, server: server, timeout: timeout, refresh: make(chan struct{}, 1), shards: map[string]*runningShard{},
	}
	f.ledger = newLedger()
	f.offset.Store(unknown)
	switch {
	case server.Nodes != nil:
		f.slots.Store(&slotMap{})
		return f
	case server.Sentinels != nil:
		f.watch = sentinel.New(sentinel.Options{
			Server: server, Timeout: timeout, Guard: s.options.guard,
			Address: func() string { return f.shardOf(0).address() },
		})
	}
	sh := newShard(f, server.String(), f.dialer(server))
	f.slots.Store(&slotMap{[]slotRange{{redis.NodeSlots{Last: redis.Slots - 1, Primary: sh.name}, sh}}})
	return f
}

// dialer returns the dialer of a shard.
func (f *backend) dialer(server *redis.Server) dialer {
	if f.watch != nil {
		return f.watch.Dial
	}
	return func(ctx context.Context) (*redis.Conn, error) { return redis.Dial(ctx, server, f.timeout) }
}

// probeTimeout bounds a probe and a leadership request. It is not less than the timeout of
// requests, so that a pause which requests outlast does not end the connection.
func (f *backend) probeTimeout() time.Duration { return max(f.timeout, f.options.Timeout) }

// logUnavailable logs that a shard, or the primaries of a cluster, cannot be reached.
func (f *backend) logUnavailable(shard string, why *redis.Error) {
	if why.Kind == redis.Mode {
		f.wrongMode.Store(why)
		f.store.notifyReached()
	}
	if log := &f.options.Log; log.NotReached != nil && !f.reached.Load() {
		log.NotReached(shard, why.Kind, why.Err, why.Kind.Remedy())
	} else if log.Unavailable != nil {
		log.Unavailable(shard, why.Kind, why.Err, why.Kind.Remedy())
	}
}

// requestRefresh wakes pollTopology.
func (f *backend) requestRefresh() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// shardOf returns the shard of a slot, nil if it is not known.
func (f *backend) shardOf(slot uint16) *shard {
	ranges := f.slots.Load().ranges
	if len(ranges) == 1 && ranges[0].First <= slot && slot <= ranges[0].Last { // not a cluster
		return ranges[0].shard
	}
	i, _ := slices.BinarySearchFunc(ranges, slot, func(s slotRange, slot uint16) int { return int(s.Last) - int(slot) })
	if i < len(ranges) && ranges[i].First <= slot {
		return ranges[i].shard
	}
	return nil
}

// shardAt returns the shard of the primary at an address, and creates it if necessary. It returns
// nil if f has ended or has too many shards.
func (f *backend) shardAt(address string) *shard {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.shards[address]; b != nil {
		return b.shard
	}
	if f.start == nil || len(f.shards) >= 2*redis.MaxPrimaries {
		return nil
	}
	sh := newShard(f, address, f.dialer(f.server.At(address)))
	sh.connecting = true
	f.shards[address] = &runningShard{sh, f.start(sh)}
	return sh
}

// shardStates returns the names of f's running shards, and whether each is available.
func (f *backend) shardStates() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]bool, len(f.shards))
	for name, b := range f.shards {
		all[name] = b.shard.isUp()
	}
	return all
}

// isUp reports whether all slots have an available shard.
func (f *backend) isUp() bool {
	next := 0
	for _, s := range f.slots.Load().ranges {
		if int(s.First) != next || !s.shard.isUp() {
			return false
		}
		next = int(s.Last) + 1
	}
	return next == redis.Slots
}

// learnOffset records now, the server's time in the reply of a round trip that began at sent.
//
// Nodes of a cluster may have different clocks, and a node expires keys by its own clock, so a
// counter uses the clock of its node. Anything that belongs to no single node uses the clock of the
// node with the first slots.
func (sh *shard) learnOffset(now limiter.Time, sent, trip time.Duration) {
	f := sh.backend
	if f.options.at != nil { // a test sets the store's clock
		return
	}
	f.options.now() // reads the wall clock, for its offset
	offset := sh.offsets.add(now, sent, trip, f.options.Steady.WallOffset())
	if sh.offset.Store(offset); !f.useFirstShardClock() && !f.offsetKnown.Load() {
		f.offset.Store(offset)
	}
}

// useFirstShardClock sets the offset of f to that of the node with the first slots. It reports
// false if that is not known.
func (f *backend) useFirstShardClock() bool {
	ranges := f.slots.Load().ranges
	if len(ranges) == 0 {
		return false
	}
	offset := ranges[0].shard.offset.Load()
	if offset == unknown {
		return false
	}
	f.offset.Store(offset)
	f.offsetKnown.Store(true)
	return true
}

// unknown is the offset of a shard whose server has not sent its time.
const unknown = math.MinInt64

// time converts our time to that of the shard's server, as far as its offset is known.
func (sh *shard) time(now limiter.Time) limiter.Time {
	if offset := sh.offset.Load(); offset != unknown {
		return sh.options.timeAt(now, offset)
	}
	return sh.backend.time(now)
}

// time converts our time to the store's.
func (f *backend) time(now limiter.Time) limiter.Time {
	if offset := f.offset.Load(); offset != unknown {
		return f.options.timeAt(now, offset)
	}
	return now
}

// timeAt converts our time to that of a server with the given offset to the steady clock.
func (o *Options) timeAt(now limiter.Time, offset int64) limiter.Time {
	return now - limiter.Time(o.Steady.WallOffset()) + limiter.Time(offset)
}

// timeOf converts our time to that of a counter in one of the shard's slots. ahead is the number of
// seconds by which the server's clock, which expires the key, is ahead of that time. It is 0 unless
// the slot depends on the start of the window: then the time must not depend on a node's clock.
func (sh *shard) timeOf(now limiter.Time, p *limiter.Policy, name []byte) (at limiter.Time, ahead int64) {
	return sh.timeBy(now, sh.backend.server.Nodes != nil && slotDependsOnStart(p, name))
}

// timeBy is timeOf for a counter whose slot depends on the start of the window if slotByStart is
// set.
func (sh *shard) timeBy(now limiter.Time, slotByStart bool) (at limiter.Time, ahead int64) {
	at = sh.backend.time(now)
	if sh.backend.server.Nodes == nil {
		return at, 0
	}
	own := sh.time(now)
	if !slotByStart {
		return own, 0
	}
	return at, int64((own - at + limiter.Time(time.Second) - 1) / limiter.Time(time.Second))
}

// counterTime converts the server's time to that of a counter.
func (sh *shard) counterTime(now limiter.Time, slotByStart bool) limiter.Time {
	if slotByStart {
		return max(now+sh.backend.time(0)-sh.time(0), 0) // the server may send any time
	}
	return now
}

// timeOf converts our time to that of a counter in a slot.
func (f *backend) timeOf(slot uint16, now limiter.Time, p *limiter.Policy, name []byte) limiter.Time {
	sh := f.shardOf(slot)
	if sh == nil {
		return f.time(now)
	}
	at, _ := sh.timeOf(now, p, name)
	return at
}

// slotDependsOnStart reports whether the slot of a counter depends on the start of its window,
// which the name lacks.
func slotDependsOnStart(p *limiter.Policy, name []byte) bool {
	if !script.IsFixed(p) {
		return false
	}
	_, tagged := redis.TagOf(name)
	return !tagged
}

// backendOf returns the store that has the counters of p.
func (s *Store) backendOf(p *limiter.Policy) *backend {
	if s.perSecond != nil && p.Window == time.Second {
		return s.perSecond
	}
	return s.main
}

// slotOf returns the store that has a charge's counter, and the counter's slot on a cluster. The
// start of a fixed window, which the name lacks, affects the slot unless the name has braces.
func (s *Store) slotOf(now limiter.Time, c *limiter.Charge, name []byte) (*backend, uint16) {
	f := s.backendOf(c.Policy)
	if f.server.Nodes == nil {
		return f, 0
	}
	if slotDependsOnStart(c.Policy, name) {
		var room [256]byte // most names fit
		return f, redis.SlotOf(script.AppendName(room[:0], f.time(now), c.Policy, name))
	}
	return f, redis.SlotOf(name)
}
