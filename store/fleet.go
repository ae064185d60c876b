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
type fleet struct {
	store   *Store
	options *Options
	server  *redis.Server
	timeout time.Duration // of a dial
	offset  atomic.Int64  // the store's time less ours, in nanoseconds: on a cluster, that of the node with the first slots
	learned atomic.Bool   // the offset is of that node
	anew    chan struct{} // has an element if the primaries are to be asked for at once
	chart   atomic.Pointer[chart]
	watch   *sentinel.Watch // nil without
	owed    accounts
	fates   sync.Mutex // guards what asks owe while nobody knows their fate

	mu    sync.Mutex
	start func(l *lane) (end context.CancelFunc) // nil but while f runs
	lanes map[string]*berth
	ran   sync.WaitGroup // the lanes
}

// A berth is a lane that runs.
type berth struct {
	lane *lane
	end  context.CancelFunc
}

// A chart says whose the slots are. It is immutable.
type chart struct{ spans []span } // in order

// A span is slots of one primary, and the lane that brings charges there.
type span struct {
	redis.NodeSlots
	lane *lane
}

func newFleet(s *Store, server *redis.Server, timeout time.Duration) *fleet {
	f := &fleet{store: s, options: &s.options, server: server, timeout: timeout, anew: make(chan struct{}, 1), lanes: map[string]*berth{}}
	f.owed = newAccounts()
	switch {
	case server.Nodes != nil:
		f.chart.Store(&chart{})
		return f
	case server.Sentinels != nil:
		f.watch = sentinel.New(sentinel.Home{
			Server: server, Timeout: timeout, Again: f.ask, Guard: s.options.guard,
			At:     func() string { return f.lane(0).address() },
			Failed: func(kind redis.Kind) { s.options.observe().Failed(string(kind)) },
		})
	}
	l := newLane(f, server.String(), f.dialer(server))
	f.chart.Store(&chart{[]span{{redis.NodeSlots{Last: redis.Slots - 1, Primary: l.shard}, l}}})
	return f
}

// dialer returns what connects to where server is.
func (f *fleet) dialer(server *redis.Server) dialer {
	if f.watch != nil {
		return f.watch.Dial
	}
	return func(ctx context.Context) (*redis.Conn, error) { return redis.Dial(ctx, server, f.timeout) }
}

// patience is how long a probe and a question for roles wait for a connection's server: never less than a request does, so
// that a pause which requests outlast does not end the connection.
func (f *fleet) patience() time.Duration { return max(f.timeout, f.options.Timeout) }

// ask has follow look at once.
func (f *fleet) ask() {
	select {
	case f.anew <- struct{}{}:
	default:
	}
}

// lane returns the lane of a slot, nil if none is known.
func (f *fleet) lane(slot uint16) *lane {
	spans := f.chart.Load().spans
	if len(spans) == 1 && spans[0].First <= slot && slot <= spans[0].Last { // all stores but clusters
		return spans[0].lane
	}
	i, _ := slices.BinarySearchFunc(spans, slot, func(s span, slot uint16) int { return int(s.Last) - int(slot) })
	if i < len(spans) && spans[i].First <= slot {
		return spans[i].lane
	}
	return nil
}

// laneAt returns the lane of the primary at address, which it makes if there is none. It
// returns nil when f has ended, or has too many.
func (f *fleet) laneAt(address string) *lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.lanes[address]; b != nil {
		return b.lane
	}
	if f.start == nil || len(f.lanes) >= 2*redis.MostPrimaries {
		return nil
	}
	l := newLane(f, address, f.dialer(f.server.At(address)))
	l.fresh = true
	f.lanes[address] = &berth{l, f.start(l)}
	return l
}

// shards returns the names of f's lanes while it runs, and whether each is up.
func (f *fleet) shards() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]bool, len(f.lanes))
	for name, b := range f.lanes {
		all[name] = b.lane.up()
	}
	return all
}

// up reports whether all of f answers.
func (f *fleet) up() bool {
	next := 0
	for _, s := range f.chart.Load().spans {
		if int(s.First) != next || !s.lane.up() {
			return false
		}
		next = int(s.Last) + 1
	}
	return next == redis.Slots
}

// Counters go by the clock of their node: nodes of a cluster may have different clocks, and a key expires by its own node's.
// The clock of the node with the first slots, which all replicas take, is that of whatever belongs to no one node.

// learn notes that the time of l's server was now, on a trip that began at sent.
func (l *lane) learn(now limiter.Time, sent time.Time, trip time.Duration) {
	f := l.fleet
	if f.options.at != nil { // a test's clock may move meanwhile, and is the store's
		return
	}
	offset := l.offsets.add(now, sent, trip)
	if l.offset.Store(offset); !f.goBy() && !f.learned.Load() {
		f.offset.Store(offset)
	}
}

// goBy has f go by the clock of the node with the first slots. It reports false while that is not known.
func (f *fleet) goBy() bool {
	spans := f.chart.Load().spans
	if len(spans) == 0 {
		return false
	}
	offset := spans[0].lane.offset.Load()
	if offset == unknown {
		return false
	}
	f.offset.Store(offset)
	f.learned.Store(true)
	return true
}

// unknown is the offset of a lane whose server has not told its time.
const unknown = math.MinInt64

// time is the time of l's server at ours, as far as is known.
func (l *lane) time(now limiter.Time) limiter.Time {
	if offset := l.offset.Load(); offset != unknown {
		return now + limiter.Time(offset)
	}
	return l.fleet.time(now)
}

// time is the store's time at ours, as far as is known.
func (f *fleet) time(now limiter.Time) limiter.Time { return now + limiter.Time(f.offset.Load()) }

// timeOf returns the time, at ours, that a counter in one of l's slots goes by, and by how many seconds l's server, whose clock its
// key expires by, is ahead of that: none, unless the slot depends on the start of the window, which no node's clock can say
// then.
func (l *lane) timeOf(now limiter.Time, p *limiter.Policy, name []byte) (at limiter.Time, ahead int64) {
	return l.timeBy(now, l.fleet.server.Nodes != nil && startSaysSlot(p, name))
}

// timeBy is timeOf for a counter whose slot depends on the start of the window if startSays is set, and not elsewhere.
func (l *lane) timeBy(now limiter.Time, startSays bool) (at limiter.Time, ahead int64) {
	at = l.fleet.time(now)
	if l.fleet.server.Nodes == nil {
		return at, 0
	}
	own := l.time(now)
	if !startSays {
		return own, 0
	}
	return at, int64((own - at + limiter.Time(time.Second) - 1) / limiter.Time(time.Second))
}

// convert returns the time that a counter goes by at the time now of l's server.
func (l *lane) convert(now limiter.Time, startSays bool) limiter.Time {
	if startSays {
		return max(now+l.fleet.time(0)-l.time(0), 0) // the server may lie
	}
	return now
}

// timeOf returns the time, at ours, that a counter in a slot goes by.
func (f *fleet) timeOf(slot uint16, now limiter.Time, p *limiter.Policy, name []byte) limiter.Time {
	l := f.lane(slot)
	if l == nil {
		return f.time(now)
	}
	at, _ := l.timeOf(now, p, name)
	return at
}

// startSaysSlot reports whether the slot of a counter depends on the start of its window, which the name lacks.
func startSaysSlot(p *limiter.Policy, name []byte) bool {
	if !script.IsFixed(p) {
		return false
	}
	_, tagged := redis.TagOf(name)
	return !tagged
}
