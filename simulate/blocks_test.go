package simulate

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// A storeFigure is the use of a store by some requests.
type storeFigure struct {
	requests, commands, waiting, admitted float64

	denied []bool // by request
}

func (f storeFigure) String() string {
	return fmt.Sprintf("%.4f commands and %.4f waits per request, %.0f admitted", f.commands/f.requests, f.waiting/f.requests, f.admitted)
}

// more counts the requests that are denied, but not in the other figure.
func (f storeFigure) more(than storeFigure) (n float64) {
	for i, denied := range f.denied {
		if denied && !than.denied[i] {
			n++
		}
	}
	return n
}

// An arrival is a request of one hit.
type arrival struct {
	at      limiter.Time
	replica int
}

// TestBlocksAsInStore compares the model with the code of package store on the requests of
// store.TestBlocks: commands and waits differ by at most a quarter (over 80 ms by six tenths), or
// 0.001 per request, and admitted hits by 0.1 %, those of a round trip, and ten. So do the requests
// that are denied only with blocks, or by a quarter. Without blocks, the loads are small: the store
// cannot keep up with 20,000 requests per second over a round trip of 80 ms, which the model does not
// show.
func TestBlocksAsInStore(t *testing.T) {
	for _, tt := range []struct {
		limit, replicas int
		refused         bool
		demand          float64 // relative to the limit
		trip            time.Duration
		moves           bool // all demand is on one replica at a time
	}{
		{10_000, 3, false, 0.9, time.Millisecond, false},
		{10_000, 3, true, 0.9, time.Millisecond, false},
		{10_000, 3, true, 3, time.Millisecond, false},
		{10_000, 10, true, 2, time.Millisecond, false},
		{1_000, 2, true, 2, time.Millisecond, false},
		{1_000, 2, false, 0.8, time.Millisecond, false},
		{10_000, 3, true, 2, 80 * time.Millisecond, false},
		{100, 3, true, 1.2, time.Millisecond, false},
		{1_000, 3, true, 3, time.Millisecond, true},
		{1_000, 3, false, 3, time.Millisecond, true},
	} {
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: uint32(tt.limit), Window: time.Second, CountRefused: tt.refused}
		for _, blocks := range []bool{false, true} {
			if tt.limit > 1000 && (!blocks || testing.Short()) {
				continue
			}
			t.Run(fmt.Sprintf("limit %d, replicas %d, refused %v, demand %v, trip %v, moves %v, blocks %v", tt.limit, tt.replicas, tt.refused, tt.demand, tt.trip, tt.moves, blocks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want, arrivals := useStore(t, p, tt.replicas, tt.demand, tt.trip, tt.moves, blocks)
					got := useModel(t, p, tt.replicas, tt.trip, blocks, arrivals)
					off := useModel(t, p, tt.replicas, tt.trip, false, arrivals)
					t.Logf("store %v, %.0f more denied; model %v, %.0f more denied", want, want.more(off), got, got.more(off))
					// Requests take the whole round trip, and replies no time, so replicas believe that
					// the store's clock is ahead by half of it, and so are the windows.
					shifted := tt.trip.Seconds() / 2 * want.requests
					hits := 10 + 0.001*want.admitted + float64(tt.limit)*tt.trip.Seconds()
					part := 0.25
					if tt.trip > time.Millisecond {
						part = 0.6 // the model does not space the batches
					}
					for name, pair := range map[string][3]float64{
						"commands":    {got.commands, want.commands, max(part*want.commands, 0.001*want.requests)},
						"waiting":     {got.waiting, want.waiting, max(part*want.waiting, 0.001*want.requests)},
						"admitted":    {got.admitted, want.admitted, hits},
						"more denied": {got.more(off), want.more(off), max(0.25*want.more(off), hits+shifted)},
					} {
						if math.Abs(pair[0]-pair[1]) > pair[2] {
							t.Errorf("the model has %.0f %s, want the %.0f of the store, give or take %.0f", pair[0], name, pair[1], pair[2])
						}
					}
				})
			})
		}
	}
}

// TestBlockSizes checks the sizes of blocks of a counter whose limit is not reached, and that hits are
// returned when the demand falls.
func TestBlockSizes(t *testing.T) {
	const trip = 250 * time.Millisecond // a block is for 2,000 requests
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Minute}
	m, start, unused := newModel(t, 1, trip, true), limiter.Time(noon.UnixNano()), func() uint64 { return 0 }
	request := func(after time.Duration) {
		m.request(start+limiter.Time(after), 0, p)
		for _, c := range m.blocks.counters {
			unused = func() uint64 { return c.hot[0].unused }
		}
	}
	largest := uint64(0)
	for at := time.Duration(0); at < time.Minute; at += time.Millisecond {
		before := unused()
		request(at)
		largest = max(largest, unused())
		if left := time.Minute - at + trip; unused() > before && unused()-before > uint64(left/time.Millisecond) {
			t.Fatalf("a block of %d hits was charged %v before the end of the window", unused()-before, left)
		}
	}
	if largest < 3000 || largest > 4000 { // the next block is charged when half is left
		t.Errorf("%d unused hits, want 4,000 at most", largest)
	}
	for at := time.Minute; at < 70*time.Second; at += time.Millisecond {
		request(at)
	}
	commands, before := m.total.Commands, unused()
	for at := 70 * time.Second; at < 72*time.Second; at += 100 * time.Millisecond { // a hundredth
		request(at)
	}
	if before < 1000 || unused() > 80 || m.total.Commands == commands {
		t.Errorf("%d of %d hits are unused after the demand has fallen, after %v commands; want the rest returned", unused(), before, m.total.Commands-commands)
	}
}

// A testModel decides requests of one counter.
type testModel struct {
	*storeModel

	plan descriptors.Plan
}

func newModel(t *testing.T, replicas int, trip time.Duration, blocks bool) *testModel {
	t.Helper()
	table, err := limiter.New(limiter.Options{})
	must.OK(t, err)
	set := compile(t, perUser)
	m := newStoreModel(&variant{tables: []*limiter.Table{table}, tally: newTally(set, false)}, &Options{RoundTrip: trip, Replicas: replicas}, blocks)
	return &testModel{m, descriptors.Plan{Limits: set.Limits[:1]}}
}

// request decides a request, and reports whether it is admitted.
func (m *testModel) request(at limiter.Time, replica int, p *limiter.Policy) bool {
	m.replica = replica
	m.plan.Batch.Reset()
	m.plan.Batch.Charges = append(m.plan.Batch.Charges, limiter.Charge{ID: identity.ID{Lo: 1}, Policy: p, Hits: 1})
	m.decide(at, &m.plan)
	return !m.plan.Batch.Denied
}

// useModel decides requests by the model.
func useModel(t *testing.T, p *limiter.Policy, replicas int, trip time.Duration, blocks bool, arrivals []arrival) (f storeFigure) {
	t.Helper()
	m := newModel(t, replicas, trip, blocks)
	for _, a := range arrivals {
		admitted := m.request(a.at, a.replica, p)
		if f.denied = append(f.denied, !admitted); admitted {
			f.admitted++
		}
	}
	if blocks {
		m.blocks.finish(arrivals[len(arrivals)-1].at)
	}
	f.requests, f.commands, f.waiting = float64(m.total.Requests), m.total.Commands, float64(m.total.Waiting)
	return f
}

// A waiter waits for a decision.
type waiter struct{ decided func(err error) }

func (w *waiter) Decided(err error)            { w.decided(err) }
func (*waiter) Exceeded(int) func(hits uint64) { return nil }

// useStore sends random requests for five seconds to replicas with a store.
func useStore(t *testing.T, p *limiter.Policy, replicas int, demand float64, trip time.Duration, moves, blocks bool) (storeFigure, []arrival) {
	t.Helper()
	host, l := luahost.NewServer(), make(memoryListener)
	go func() { _ = host.Serve(l) }()
	defer close(l)
	var commands atomic.Int64
	var batches []*limiter.Batch
	host.OnCommand(func(name string, args [][]byte, _ []byte) {
		if name == "EVALSHA" || (name == "INCRBY" || name == "EXPIREAT") && string(args[0]) != "s1{replicas}" {
			commands.Add(1)
		}
	})
	mode := store.BlocksOff
	if blocks {
		mode = store.BlocksAuto
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running, waiting sync.WaitGroup
	var stores []*store.Store
	for range replicas {
		table, err := limiter.New(limiter.Options{})
		must.OK(t, err)
		s, err := store.New(store.Options{
			Blocks: mode, Fallback: store.Deny, Table: table, Timeout: time.Second, DialTimeout: time.Second, Jitter: -1,
			Server: redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
				mine, theirs := net.Pipe()
				l <- theirs
				return newSlowConn(mine, trip), nil
			}},
		})
		must.OK(t, err)
		stores = append(stores, s)
		running.Go(func() { s.Run(ctx) })
	}
	for _, s := range stores {
		s.Await(ctx)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	f, arrivals, before := storeFigure{}, []arrival(nil), commands.Load()
	for start := time.Now(); time.Since(start) < 5*time.Second; f.requests++ {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / (demand * float64(p.Limit))))
		a := arrival{limiter.Time(time.Now().UnixNano()), rng.IntN(replicas)}
		if moves {
			a.replica = int(time.Since(start)/(150*time.Millisecond)) % replicas
		}
		arrivals = append(arrivals, a)
		b := &limiter.Batch{Charges: []limiter.Charge{{ID: identity.ID{Lo: 1}, Policy: p, Hits: 1}}}
		batches = append(batches, b)
		decided := func(err error) {
			must.OK(t, err)
			waiting.Done()
		}
		waiting.Add(1)
		if done, err := stores[a.replica].Decide(a.at, b, [][]byte{[]byte("s1{1}")}, &waiter{decided}); done {
			decided(err)
		} else {
			f.waiting++
		}
	}
	f.commands = float64(commands.Load() - before)
	waiting.Wait()
	cancel()
	running.Wait()
	for _, b := range batches {
		if f.denied = append(f.denied, b.Denied); !b.Denied {
			f.admitted++
		}
	}
	return f, arrivals
}

// A memoryListener accepts connections that are made in memory.
type memoryListener chan net.Conn

func (l memoryListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (memoryListener) Close() error   { return nil }
func (memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

// A slowConn delivers data that is written to it after a delay.
type slowConn struct {
	net.Conn

	delay  time.Duration
	queue  chan slowData
	closed chan struct{}
	once   sync.Once
}

type slowData struct {
	at   time.Time
	data []byte
}

func newSlowConn(c net.Conn, delay time.Duration) *slowConn {
	s := &slowConn{Conn: c, delay: delay, queue: make(chan slowData, 1<<14), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case d := <-s.queue:
				time.Sleep(time.Until(d.at))
				_, _ = c.Write(d.data) // fails if it was closed
			case <-s.closed:
				return
			}
		}
	}()
	return s
}

func (s *slowConn) Write(b []byte) (int, error) {
	s.queue <- slowData{time.Now().Add(s.delay), bytes.Clone(b)}
	return len(b), nil
}

func (s *slowConn) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}
