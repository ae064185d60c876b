package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// A blockWorld is replicas with one store, in simulated time.
type blockWorld struct {
	t        *testing.T
	host     *luahost.Server
	trip     time.Duration
	replicas []*blockReplica
	commands atomic.Int64
	mu       sync.Mutex
	admitted map[int64]int // hits by end of the window
	asked    map[int64]int
	lossy    bool // hits that are admitted during an outage are not recorded

	unreachable atomic.Bool // no connection can be made

	noObserver

	events sync.Map // hits by event of blocks, each an *atomic.Uint64
}

// Blocks implements [Observer].
func (w *blockWorld) Blocks(event string, hits uint64) {
	n, _ := w.events.LoadOrStore(event, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(hits)
}

// hitsOf returns the hits of an event of blocks.
func (w *blockWorld) hitsOf(event string) uint64 {
	n, ok := w.events.Load(event)
	if !ok {
		return 0
	}
	return n.(*atomic.Uint64).Load()
}

type blockReplica struct {
	world  *blockWorld
	store  *Store
	conn   atomic.Pointer[luahost.SlowConn]
	stop   func() // ends the store
	jump   atomic.Int64
	waited atomic.Int64
}

func newBlockWorld(t *testing.T, replicas int, trip time.Duration) *blockWorld {
	t.Helper()
	return newBlockWorldWith(t, replicas, trip, Deny)
}

func newBlockWorldWith(t *testing.T, replicas int, trip time.Duration, fallback Fallback) *blockWorld {
	t.Helper()
	return newBlockWorldAt(t, replicas, trip, fallback, func() limiter.Time { return limiter.Time(time.Now().UnixNano()) })
}

// newBlockWorldAt returns a world whose store has the time at, or its own if at is nil.
func newBlockWorldAt(t *testing.T, replicas int, trip time.Duration, fallback Fallback, at func() limiter.Time) *blockWorld {
	t.Helper()
	w := &blockWorld{t: t, host: luahost.NewServer(), trip: trip, admitted: map[int64]int{}, asked: map[int64]int{}}
	l := make(luahost.Memory)
	go func() { _ = w.host.Serve(l) }()
	t.Cleanup(func() { close(l) })
	w.host.OnCommand(func(string, [][]byte, []byte) { w.commands.Add(1) })
	for range replicas {
		r := &blockReplica{world: w}
		r.store = newStore(t, Options{
			Blocks: BlocksAuto, Observer: w, Fallback: fallback, at: at, Timeout: time.Second, DialTimeout: time.Second, Jitter: -1,
			Clock: func() time.Time { return time.Now().Add(time.Duration(r.jump.Load())) },
			Server: redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
				if w.unreachable.Load() {
					return nil, net.ErrClosed
				}
				slow := l.Dial(w.trip)
				r.conn.Store(slow)
				return slow, nil
			}},
		})
		w.replicas = append(w.replicas, r)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.store.Run(ctx)
		}()
		r.stop = func() {
			cancel()
			<-ended
		}
		t.Cleanup(r.stop)
	}
	for _, r := range w.replicas {
		for !r.store.Up() {
			time.Sleep(time.Millisecond)
		}
	}
	return w
}

// cut ends the connection to the store.
func (r *blockReplica) cut() {
	if c := r.conn.Load(); c != nil {
		_ = c.Close()
	}
}

// request sends one request now, and records its decision.
func (r *blockReplica) request(p *limiter.Policy, hits uint64) {
	c := caller{clock: r.store.options.Clock}
	charge := oneHit(1, p)
	charge.Hits = hits
	done, err := c.start(r.store, 0, charge)
	end, outage := int64(p.WindowEnd(limiter.Time(c.clock().UnixNano()))), r.world.lossy && !r.store.Up()
	record := func() {
		must.OK(r.world.t, err)
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		r.world.asked[end] += int(hits)
		if !c.b.Denied && !outage {
			r.world.admitted[end] += int(hits)
		}
	}
	if done {
		record()
		return
	}
	r.waited.Add(1)
	go func() {
		err = <-c.decided
		record()
	}()
}

// check compares the admitted hits of each window with the limit.
func (w *blockWorld) check(limit int) (admitted, admissible int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for end, n := range w.admitted {
		if n > limit {
			w.t.Errorf("the window that ends at %v admitted %d hits, want at most %d", time.Unix(0, end).UTC(), n, limit)
		}
		admitted += n
		admissible += min(limit, w.asked[end])
	}
	return admitted, admissible
}

// Replicas admit all hits of the limit and no more, with few commands.
func TestBlocks(t *testing.T) {
	for _, tt := range []struct {
		limit, replicas int
		refused         bool
		demand          float64 // relative to the limit
		trip            time.Duration
		commands        float64 // per request, at most
	}{
		{10_000, 3, false, 0.9, time.Millisecond, 0.02},
		{10_000, 3, true, 0.9, time.Millisecond, 0.02},
		{10_000, 3, true, 3, time.Millisecond, 0.02},
		{10_000, 10, true, 2, time.Millisecond, 0.04},
		{1_000, 2, true, 2, time.Millisecond, 0.1},
		{1_000, 2, false, 0.8, time.Millisecond, 0.1},
		{10_000, 3, true, 2, 80 * time.Millisecond, 0.6},
		{100, 3, true, 1.2, time.Millisecond, 1},
	} {
		t.Run(fmt.Sprintf("limit %d, replicas %d, refused %v, demand %v, trip %v", tt.limit, tt.replicas, tt.refused, tt.demand, tt.trip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBlockWorld(t, tt.replicas, tt.trip)
				p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: uint32(tt.limit), Window: time.Second, CountRefused: tt.refused}
				rng := rand.New(rand.NewPCG(1, 2))
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				commands, n := w.commands.Load(), 0
				for start := time.Now(); time.Since(start) < 5*time.Second; n++ {
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / (tt.demand * float64(tt.limit))))
					w.replicas[rng.IntN(tt.replicas)].request(p, 1)
				}
				each := float64(w.commands.Load()-commands) / float64(n)
				time.Sleep(time.Second)
				admitted, admissible := w.check(tt.limit)
				t.Logf("%d requests: %.4f commands and %.4f waits per request, %.5f of the admissible hits admitted", n, each, float64(w.waited())/float64(n), float64(admitted)/float64(admissible))
				// Some windows of a small limit lose their last hit.
				if each > tt.commands || float64(admitted) < 0.999*float64(admissible)-10 {
					t.Errorf("%.4f commands per request and %d hits admitted, want at most %v and at least 99.9 %% of %d less 10", each, admitted, tt.commands, admissible)
				}
			})
		})
	}
}

// A counter with 33 hits a second at each replica has a block in two seconds, so it costs about a
// fiftieth of the commands.
func TestBlocksOfLittleDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 3, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Hour}
		rng := rand.New(rand.NewPCG(1, 2))
		commandsOf := func(load bool) (commands int64, n int) {
			before := w.commands.Load()
			for start := time.Now(); time.Since(start) < time.Minute; n++ {
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / 100))
				if load {
					w.replicas[rng.IntN(3)].request(p, 1)
				}
			}
			return w.commands.Load() - before, n
		}
		commandsOf(true)
		busy, n := commandsOf(true)
		time.Sleep(time.Second) // blocks are returned
		probes, _ := commandsOf(false)
		each := float64(busy-probes) / float64(n)
		t.Logf("%.4f commands per request, without those of probes", each)
		if each > 0.025 {
			t.Errorf("%.4f commands per request, want at most 0.025", each)
		}
	})
}

func (w *blockWorld) waited() (n int64) {
	for _, r := range w.replicas {
		n += r.waited.Load()
	}
	return n
}

// No window exceeds its limit, whatever the demand, and however often connections fail. After the
// store has lost its data, replicas admit additional hits only until they are connected again.
func TestBlocksRandom(t *testing.T) {
	for seed := range uint64(effort.Times(t, 6)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testBlocksRandom(t, seed) })
		})
	}
}

func testBlocksRandom(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	w := newBlockWorld(t, 1+rng.IntN(4), time.Duration(1+rng.IntN(20))*time.Millisecond)
	limit := 50 + rng.IntN(3000)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: uint32(limit), Window: time.Duration(1+rng.IntN(2)) * time.Second, CountRefused: rng.IntN(2) == 0}
	demand := (0.5 + 3*rng.Float64()) * float64(limit) / p.Window.Seconds()
	maxHits := []uint64{1, 5, 100}[rng.IntN(3)]
	faults := rng.IntN(3)
	w.lossy = faults == 2
	favourite, nextFault := 0, time.Now().Add(time.Second)
	for start := time.Now(); time.Since(start) < 8*time.Second; {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / demand))
		switch rng.IntN(int(demand)) { // about once a second each
		case 0:
			favourite = rng.IntN(len(w.replicas))
		case 1:
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		}
		if faults > 0 && time.Now().After(nextFault) {
			nextFault = time.Now().Add(time.Duration(200+rng.IntN(2000)) * time.Millisecond)
			if faults == 1 {
				w.replicas[rng.IntN(len(w.replicas))].cut()
			} else {
				w.loseData()
			}
		}
		r := w.replicas[favourite]
		if rng.IntN(3) == 0 {
			r = w.replicas[rng.IntN(len(w.replicas))]
		}
		r.request(p, 1+rng.Uint64N(maxHits))
	}
	time.Sleep(2 * time.Second)
	w.check(limit)
}

// loseData ends all connections, and the store loses its data.
func (w *blockWorld) loseData() {
	for _, r := range w.replicas {
		r.cut()
	}
	synctest.Wait()
	w.mu.Lock()
	clear(w.admitted)
	w.mu.Unlock()
	w.host.FlushAll()
}

// Used hits of the newest block are charged again when the store has lost them, and the others are
// not used any more.
func TestBlocksAfterDataLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1000
		w := newBlockWorld(t, 1, time.Millisecond)
		r, p := w.replicas[0], &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: time.Hour}
		w.fill(p, 20)
		left := r.unused()
		used := int(r.store.blocks.all[0].balances[0].granted) - left
		w.loseData()
		for range 10 { // while the store is unavailable
			r.request(p, 1)
		}
		if got := w.total(); got != 10 || r.unused() != left-10 {
			t.Fatalf("%d hits admitted during the outage, and %d of %d left, want 10", got, r.unused(), left)
		}
		for !r.store.Up() {
			time.Sleep(time.Millisecond)
		}
		if got := r.unused(); got != 0 {
			t.Errorf("%d hits of the block are still used after the outage", got)
		}
		var c caller
		peek := oneHit(1, p)
		peek.Hits = 0
		if must.OK(t, c.decide(r.store, peek)); int(c.b.Decisions[0].Before) != used+10 {
			t.Errorf("the store has %d hits, want the %d used of the newest block", c.b.Decisions[0].Before, used+10)
		}
	})
}

// fill sends requests to the first replica, one each millisecond, until it has a block of at least
// the given number of unused hits.
func (w *blockWorld) fill(p *limiter.Policy, unused int) {
	w.t.Helper()
	for range 2000 {
		time.Sleep(time.Millisecond)
		w.replicas[0].request(p, 1)
		synctest.Wait()
		if w.replicas[0].unused() >= unused {
			time.Sleep(10 * time.Millisecond) // for the replies to earlier requests
			synctest.Wait()
			return
		}
	}
	w.t.Fatal("no block")
}

// unused returns the unused hits of all blocks of a replica.
func (r *blockReplica) unused() (n int) {
	for _, h := range r.store.blocks.counters() {
		for i := range h.balances {
			n += int(h.balances[i].word.Load() & hitsMask)
		}
	}
	return n
}

// total returns the number of admitted hits.
func (w *blockWorld) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, hits := range w.admitted {
		n += hits
	}
	return n
}
