package store

import (
	"context"
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
	offset  atomic.Int64  // the store's time less ours, in nanoseconds
	offsets offsetRange   // by the replies so far
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
	f.owed = accounts{debts: map[string]*script.Debt{}, most: mostDebts}
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

// learn has f know that the store's time was now, on a trip that began at sent.
func (f *fleet) learn(now limiter.Time, sent time.Time, trip time.Duration) {
	if f.options.at != nil { // a test's clock may move meanwhile, and is the store's
		return
	}
	f.offset.Store(f.offsets.add(now, sent, trip))
}

// time is the store's time at ours, as far as is known.
func (f *fleet) time(now limiter.Time) limiter.Time { return now + limiter.Time(f.offset.Load()) }
