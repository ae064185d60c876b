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

// A fleet is the primaries of one store, with a lane to each. On a cluster a lane has the slots of its primary. A store
// that is no cluster has one lane, which has all slots.
type backend struct {
	store       *Store
	options     *Options
	server      *redis.Server
	timeout     time.Duration // of a dial
	offset      atomic.Int64  // the store's time less ours, in nanoseconds: on a cluster, that of the node with the first slots
	offsetKnown atomic.Bool   // the offset is of that node
	refresh     chan struct{} // has an element if the primaries are to be asked for at once
	slots       atomic.Pointer[slotMap]
	watch       *sentinel.Watch // nil without
	ledger      ledger
	outcomeMu   sync.Mutex // guards what asks owe while nobody knows their fate

	mu      sync.Mutex
	start   func(sh *shard) (end context.CancelFunc) // nil but while f runs
	shards  map[string]*runningShard
	running sync.WaitGroup // the lanes
}

// A berth is a lane that runs.
type runningShard struct {
	shard *shard
	stop  context.CancelFunc
}

// A chart says whose the slots are. It is immutable.
type slotMap struct{ ranges []slotRange } // in order

// A span is slots of one primary, and the lane that brings charges there.
type slotRange struct {
	redis.NodeSlots
	shard *shard
}

func newBackend(s *Store, server *redis.Server, timeout time.Duration) *backend {
	f := &backend{store: s, options: &s.options, server: server, timeout: timeout, refresh: make(chan struct{}, 1), shards: map[string]*runningShard{}}
	f.ledger = newLedger()
	switch {
	case server.Nodes != nil:
		f.slots.Store(&slotMap{})
		return f
	case server.Sentinels != nil:
		f.watch = sentinel.New(sentinel.Options{
			Server: server, Timeout: timeout, Refresh: f.requestRefresh, Guard: s.options.guard,
			Address: func() string { return f.shardOf(0).address() },
			Failed:  func(kind redis.Kind) { s.options.observe().Failed(string(kind)) },
		})
	}
	sh := newShard(f, server.String(), f.dialer(server))
	f.slots.Store(&slotMap{[]slotRange{{redis.NodeSlots{Last: redis.Slots - 1, Primary: sh.name}, sh}}})
	return f
}

// dialer returns what connects to where server is.
func (f *backend) dialer(server *redis.Server) dialer {
	if f.watch != nil {
		return f.watch.Dial
	}
	return func(ctx context.Context) (*redis.Conn, error) { return redis.Dial(ctx, server, f.timeout) }
}

// probeTimeout is how long a probe and a question for roles wait for a connection's server: never less than a request does, so
// that a pause which requests outlast does not end the connection.
func (f *backend) probeTimeout() time.Duration { return max(f.timeout, f.options.Timeout) }

// requestRefresh has follow look at once.
func (f *backend) requestRefresh() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// shardOf returns the lane of a slot, nil if none is known.
func (f *backend) shardOf(slot uint16) *shard {
	spans := f.slots.Load().ranges
	if len(spans) == 1 && spans[0].First <= slot && slot <= spans[0].Last { // all stores but clusters
		return spans[0].shard
	}
	i, _ := slices.BinarySearchFunc(spans, slot, func(s slotRange, slot uint16) int { return int(s.Last) - int(slot) })
	if i < len(spans) && spans[i].First <= slot {
		return spans[i].shard
	}
	return nil
}

// shardAt returns the lane of the primary at address, which it makes if there is none. It
// returns nil when f has ended, or has too many.
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

// shardStates returns the names of f's lanes while it runs, and whether each is up.
func (f *backend) shardStates() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]bool, len(f.shards))
	for name, b := range f.shards {
		all[name] = b.shard.isUp()
	}
	return all
}

// isUp reports whether all of f answers.
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

// Counters go by the clock of their node: nodes of a cluster may have different clocks, and a key expires by its own node's.
// The clock of the node with the first slots, which all replicas take, is that of whatever belongs to no one node.

// learnOffset notes that the time of l's server was now, on a trip that began at sent.
func (sh *shard) learnOffset(now limiter.Time, sent time.Time, trip time.Duration) {
	f := sh.backend
	if f.options.at != nil { // a test's clock may move meanwhile, and is the store's
		return
	}
	offset := sh.offsets.add(now, sent, trip)
	if sh.offset.Store(offset); !f.useFirstShardClock() && !f.offsetKnown.Load() {
		f.offset.Store(offset)
	}
}

// useFirstShardClock has f go by the clock of the node with the first slots. It reports false while that is not known.
func (f *backend) useFirstShardClock() bool {
	spans := f.slots.Load().ranges
	if len(spans) == 0 {
		return false
	}
	offset := spans[0].shard.offset.Load()
	if offset == unknown {
		return false
	}
	f.offset.Store(offset)
	f.offsetKnown.Store(true)
	return true
}

// unknown is the offset of a lane whose server has not told its time.
const unknown = math.MinInt64

// time is the time of l's server at ours, as far as is known.
func (sh *shard) time(now limiter.Time) limiter.Time {
	if offset := sh.offset.Load(); offset != unknown {
		return now + limiter.Time(offset)
	}
	return sh.backend.time(now)
}

// time is the store's time at ours, as far as is known.
func (f *backend) time(now limiter.Time) limiter.Time { return now + limiter.Time(f.offset.Load()) }

// timeOf returns the time, at ours, that a counter in one of l's slots goes by, and by how many seconds l's server, whose clock its
// key expires by, is ahead of that: none, unless the slot depends on the start of the window, which no node's clock can say
// then.
func (sh *shard) timeOf(now limiter.Time, p *limiter.Policy, name []byte) (at limiter.Time, ahead int64) {
	return sh.timeBy(now, sh.backend.server.Nodes != nil && slotDependsOnStart(p, name))
}

// timeBy is timeOf for a counter whose slot depends on the start of the window if startSays is set, and not elsewhere.
func (sh *shard) timeBy(now limiter.Time, startSays bool) (at limiter.Time, ahead int64) {
	at = sh.backend.time(now)
	if sh.backend.server.Nodes == nil {
		return at, 0
	}
	own := sh.time(now)
	if !startSays {
		return own, 0
	}
	return at, int64((own - at + limiter.Time(time.Second) - 1) / limiter.Time(time.Second))
}

// counterTime returns the time that a counter goes by at the time now of l's server.
func (sh *shard) counterTime(now limiter.Time, startSays bool) limiter.Time {
	if startSays {
		return max(now+sh.backend.time(0)-sh.time(0), 0) // the server may lie
	}
	return now
}

// timeOf returns the time, at ours, that a counter in a slot goes by.
func (f *backend) timeOf(slot uint16, now limiter.Time, p *limiter.Policy, name []byte) limiter.Time {
	sh := f.shardOf(slot)
	if sh == nil {
		return f.time(now)
	}
	at, _ := sh.timeOf(now, p, name)
	return at
}

// slotDependsOnStart reports whether the slot of a counter depends on the start of its window, which the name lacks.
func slotDependsOnStart(p *limiter.Policy, name []byte) bool {
	if !script.IsFixed(p) {
		return false
	}
	_, tagged := redis.TagOf(name)
	return !tagged
}
