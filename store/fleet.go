package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// look is how often who the primaries are is asked again. Errors make it sooner, but no
	// sooner than rest after the last time.
	look = time.Second
	rest = 20 * time.Millisecond
	// mostPrimaries are as many as a cluster may have: its makers advise a thousand nodes, replicas among
	// them. Twice as many lanes may run while primaries are replaced.
	mostPrimaries = 500
)

// A fleet is the primaries of one store. Each has a lane, which has slots of a cluster; the only
// lane of what is none has them all.
type fleet struct {
	store   *Store
	options *Options
	server  *Server
	timeout time.Duration // of a dial
	offset  atomic.Int64  // the store's time less ours, in nanoseconds
	anew    chan struct{} // has an element if the primaries are to be asked for at once
	chart   atomic.Pointer[chart]
	watch   *sentinels // nil without
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

// A span is slots that have one primary. It is at address, and lane brings charges there.
type span struct {
	first, last uint16
	address     string
	lane        *lane
}

func newFleet(s *Store, server *Server, timeout time.Duration) *fleet {
	f := &fleet{store: s, options: &s.options, server: server, timeout: timeout, anew: make(chan struct{}, 1), lanes: map[string]*berth{}}
	f.owed = accounts{debts: map[string]*debt{}, most: mostDebts}
	switch {
	case server.Nodes != nil:
		f.chart.Store(&chart{})
		return f
	case server.Sentinels != nil:
		f.watch = newSentinels(f)
	}
	l := newLane(f, server.String(), f.dialer(server))
	f.chart.Store(&chart{[]span{{0, slots - 1, l.shard, l}}})
	return f
}

// dialer returns what connects to where server is.
func (f *fleet) dialer(server *Server) dialer {
	if f.watch != nil {
		return f.watch.dial
	}
	return func(ctx context.Context) (*client, error) { return dial(ctx, server, f.timeout) }
}

// run keeps f until ctx ends, and returns when all that it started has ended.
func (f *fleet) run(ctx context.Context) {
	defer f.ran.Wait()
	f.mu.Lock()
	f.start = func(l *lane) context.CancelFunc {
		ctx, end := context.WithCancel(ctx)
		f.ran.Go(func() { l.run(ctx) })
		return end
	}
	for _, s := range f.chart.Load().spans {
		f.lanes[s.lane.shard] = &berth{s.lane, f.start(s.lane)}
	}
	f.mu.Unlock()
	switch {
	case f.server.Nodes != nil:
		c := &cluster{fleet: f}
		defer c.close()
		f.follow(ctx, c.look)
	case f.watch != nil:
		f.watch.run(ctx)
	default:
		<-ctx.Done()
	}
	f.mu.Lock()
	f.start = nil
	f.mu.Unlock()
}

// follow looks who the primaries are, each second and whenever there is reason to.
func (f *fleet) follow(ctx context.Context, again func(context.Context)) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	calm := time.NewTimer(0)
	defer calm.Stop()
	for {
		f.options.guard(func() { again(ctx) })
		calm.Reset(rest)
		select {
		case <-ctx.Done():
			return
		case <-calm.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.anew:
		}
	}
}

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
	i, _ := slices.BinarySearchFunc(spans, slot, func(s span, slot uint16) int { return int(s.last) - int(slot) })
	if i < len(spans) && spans[i].first <= slot {
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
	if f.start == nil || len(f.lanes) >= 2*mostPrimaries {
		return nil
	}
	l := newLane(f, address, f.dialer(f.server.at(address)))
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
		if int(s.first) != next || !s.lane.up() {
			return false
		}
		next = int(s.last) + 1
	}
	return next == slots
}

// learn has f know that the store's time was now, on a trip that began at sent.
func (f *fleet) learn(now limiter.Time, sent time.Time, trip time.Duration) {
	if f.options.at != nil { // a test's clock may move meanwhile, and is the store's
		return
	}
	f.offset.Store(int64(now) - sent.Add(trip/2).UnixNano())
}

// time is the store's time at ours, as far as is known.
func (f *fleet) time(now limiter.Time) limiter.Time { return now + limiter.Time(f.offset.Load()) }
