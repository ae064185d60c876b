package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A stallTest has replicas whose store stalls repeatedly, while callers start and end requests.
type stallTest struct {
	replicas  []*Store
	watch     *Store // reads the held permits and hits
	idleStore *Store // does not stall; callers that wait use it
	observed  *recorder
	freeze    func(on bool)
	fallback  Fallback
	deadline  time.Duration
	counters  uint64 // number of the first counter
	seed      uint64

	pause time.Duration // wait of a caller after a denial or a lease of the fallback

	held, maxHeld    [2]atomic.Int64 // permits and reserved hits that callers hold now, and their maxima
	granted, allowed [2]atomic.Int64 // leases that the fallback granted, and may grant until the next stall
	started          atomic.Int64
	stop             atomic.Bool
}

const stalledPermits, stalledHits, stalledCallers = 3, 12, 8

// hitsOfKind is the number of hits of a charge, by kind: a permit, or reserved hits.
var hitsOfKind = [2]int64{1, stalledHits / stalledPermits}

// allowances are the numbers of leases that the fallback may grant in each stall: permits, and
// reservations. If leases are returned before their replica reported them, the store remembers
// 4,096 permits and 1,024 reservations of a counter, and holds further ones until they expire
// (docs/store.md). The allowances bound the number of leases on a machine of any speed.
var allowances = [2]int64{600, 150}

// charge returns a charge that acquires a permit, or reserves hits, at the start of a request.
func (st *stallTest) charge(kind int) limiter.Charge {
	if kind == 0 {
		return permitCharge(st.counters, stalledPermits)
	}
	c := oneHit(st.counters+1, &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: stalledHits, Reserve: limiter.NewReserve(stalledPermits, time.Hour, true)})
	c.Hits, c.Reserve = stalledHits/stalledPermits, true
	return c
}

// addHeld adds change to the hits of a kind that callers hold.
func (st *stallTest) addHeld(kind int, change int64) {
	now := st.held[kind].Add(change)
	for was := st.maxHeld[kind].Load(); now > was && !st.maxHeld[kind].CompareAndSwap(was, now); was = st.maxHeld[kind].Load() {
	}
}

// runCaller starts and ends requests until the test stops. A permit may be released at any replica.
// A reservation is settled at its own replica: at another one the release could overtake the
// acquisition.
func (st *stallTest) runCaller(tb testing.TB, n uint64) {
	tb.Helper()
	random := rand.New(rand.NewPCG(st.seed, n))
	var c, other caller
	for !st.stop.Load() {
		s := st.replicas[random.IntN(len(st.replicas))]
		kinds := [][]int{{0}, {1}, {0, 1}}[random.IntN(3)] // on a cluster a request of both kinds has two parts
		var charges []limiter.Charge
		for _, kind := range kinds {
			charges = append(charges, st.charge(kind))
		}
		if !st.mayStart(kinds) {
			st.pauseCaller(tb, &other)
			continue
		}
		if err := c.decideWithin(s, st.deadline, charges...); err != nil || c.b.Denied {
			st.pauseCaller(tb, &other)
			continue
		}
		st.started.Add(1)
		byFallback := false
		for i, kind := range kinds {
			st.addHeld(kind, hitsOfKind[kind])
			if lease := c.b.Lease(i); lease>>8&1 == 1 { // the nonce is odd: a replica granted it without the store
				st.granted[kind].Add(1)
				byFallback = true
			}
		}
		if err := other.decideWithin(s, st.deadline, oneHit(st.counters+2, hugeBucket)); err != nil && st.fallback != Error { // hold the permit for the duration of another request
			tb.Error(err)
		}
		for i, kind := range kinds {
			st.addHeld(kind, -hitsOfKind[kind])
			charges[i].Hits, charges[i].Refund, charges[i].Reserve, charges[i].Group = c.b.Lease(i), true, false, int32(i)
		}
		if random.IntN(4) == 0 { // the client has disconnected
			s.Cancel(limiter.Time(time.Now().UnixNano()), &c.b, c.names)
		} else {
			if kinds[len(kinds)-1] == 0 {
				s = st.replicas[random.IntN(len(st.replicas))]
			}
			if err := other.decideWithin(s, st.deadline, charges...); err != nil && st.fallback != Error {
				tb.Error(err)
			}
		}
		if byFallback {
			st.pauseCaller(tb, &other)
		}
	}
}

// mayStart reports whether the fallback may grant more leases of the kinds.
func (st *stallTest) mayStart(kinds []int) bool {
	for _, kind := range kinds {
		if st.granted[kind].Load() >= st.allowed[kind].Load() {
			return false
		}
	}
	return true
}

// pauseCaller waits before the next attempt: for the pause, or for a request to the store that does
// not stall.
func (st *stallTest) pauseCaller(tb testing.TB, c *caller) {
	tb.Helper()
	if st.pause > 0 {
		<-time.After(st.pause)
		return
	}
	c.heldHits(tb, st.idleStore, st.charge(0))
}

// run starts and ends requests while the store stalls repeatedly. Afterwards nothing may be held,
// and the number of permits held at once must never have exceeded the limit.
func (st *stallTest) run(t *testing.T, stalls int, stall func()) {
	t.Helper()
	storetest.Eventually(t, "up", st.allUp)
	var all sync.WaitGroup
	for n := range uint64(stalledCallers) {
		all.Go(func() { st.runCaller(t, n) })
	}
	defer func() {
		st.stop.Store(true)
		all.Wait()
	}()
	for range stalls {
		for kind, n := range allowances {
			st.allowed[kind].Add(n)
		}
		stall()
		storetest.Eventually(t, "up again", st.allUp)
	}
	st.stop.Store(true)
	all.Wait()
	var c caller
	storetest.Eventually(t, "nothing is held or unsynced after all requests have ended", func() bool {
		for _, s := range st.replicas {
			if s.unsyncedCounters() > 0 || !s.isIdle() {
				return false
			}
		}
		return c.heldHits(t, st.watch, st.charge(0))+c.heldHits(t, st.watch, st.charge(1)) == 0
	})
	for kind, limit := range []int64{stalledPermits, stalledHits} {
		if st.fallback == Local {
			limit *= int64(1 + len(st.replicas)) // plus, once for each replica, the permits that it knew to be free
		}
		if most := st.maxHeld[kind].Load(); most > limit {
			t.Errorf("%d held at once, want at most %d", most, limit)
		}
	}
	late, byStore := st.observed.decisions()
	t.Logf("seed %d: %d started, %d and %d held at once; %d charges decided by the store, %d by the fallback", st.seed, st.started.Load(), st.maxHeld[0].Load(), st.maxHeld[1].Load(), byStore, late)
}

// allUp reports whether the store is available at all replicas.
func (st *stallTest) allUp() bool {
	for _, s := range append([]*Store{st.watch}, st.replicas...) {
		if !s.Up() {
			return false
		}
	}
	return true
}

// waitForTraffic waits until requests have started and, while the store stalls, the fallback has
// decided some.
func (st *stallTest) waitForTraffic(tb testing.TB) {
	tb.Helper()
	started := st.started.Load()
	storetest.Eventually(tb, "requests start", func() bool { return st.started.Load() > started+2*stalledCallers })
	st.freeze(true)
	before, _ := st.observed.decisions()
	storetest.Eventually(tb, "deadlines pass", func() bool {
		for _, s := range st.replicas {
			s.expireAll()
		}
		late, _ := st.observed.decisions()
		return late > before+2*stalledCallers
	})
}

// expireAll lets the deadlines of all waiting requests of s pass.
func (s *Store) expireAll() {
	for _, at := range s.main.slots.Load().ranges {
		l := at.shard
		l.mu.Lock()
		late := l.removeLateLocked(clock().Add(time.Hour))
		l.mu.Unlock()
		l.fallBack(late)
	}
}

// isIdle reports whether no message is in flight or waiting.
func (s *Store) isIdle() bool {
	for _, at := range s.main.slots.Load().ranges {
		at.shard.mu.Lock()
		idle := at.shard.inFlight == 0 && len(at.shard.queue) == 0
		at.shard.mu.Unlock()
		if !idle {
			return false
		}
	}
	return true
}

// dropConnections makes the shards of all replicas unavailable, without replies to messages in
// flight.
func (st *stallTest) dropConnections() {
	for _, s := range st.replicas {
		for _, at := range s.main.slots.Load().ranges {
			at.shard.mu.Lock()
			c := at.shard.conn
			at.shard.mu.Unlock()
			if c != nil {
				at.shard.markUnavailable(c, &redis.Error{Kind: redis.Timeout, Err: errors.New("no answer for a long time")})
			}
		}
	}
}

// newStallTest returns replicas that reach one server through a relay each. to returns the server
// address of a replica by the address of its relay. A stall delays the server's replies.
func newStallTest(t *testing.T, to func(address string) redis.Server, o Options, replicas int, deadline time.Duration) *stallTest {
	t.Helper()
	srv := storetest.Start(t)
	st := &stallTest{observed: &recorder{}, fallback: o.Fallback, deadline: deadline, counters: 1, seed: rand.Uint64()}
	o.Observer = st.observed
	var relays []*relay
	for range replicas {
		r := newRelay(t, srv.Addr, nil, false)
		relays = append(relays, r)
		o.Server = to(r.addr)
		st.replicas = append(st.replicas, runStore(t, o))
	}
	st.watch = runStore(t, Options{Server: serverAt(srv), Fallback: Error, Timeout: time.Minute, DialTimeout: time.Minute})
	st.idleStore = st.watch
	st.freeze = func(on bool) {
		for _, r := range relays {
			r.pauseReplies(on)
		}
	}
	return st
}

// newClusterStallTest returns replicas whose store is a cluster. A stall stops all nodes.
func newClusterStallTest(t *testing.T, o Options, replicas int) *stallTest {
	t.Helper()
	all := storetest.StartCluster(t, 2, false)
	st := &stallTest{observed: &recorder{}, fallback: o.Fallback, seed: rand.Uint64()}
	for slots := [2]bool{}; slots != [2]bool{true, false}; { // until the two counters are on different nodes
		st.counters++
		for kind := range slots {
			c := st.charge(kind)
			slots[kind] = redis.SlotOf(nameOf("s1", &c)) < redis.Slots/2
		}
	}
	o.Server, o.Observer = nodes(all), st.observed
	for range replicas {
		st.replicas = append(st.replicas, runStore(t, o))
	}
	st.watch = runStore(t, Options{Server: nodes(all), Fallback: Error, Timeout: time.Minute, DialTimeout: time.Minute})
	st.idleStore = runStore(t, Options{Server: serverAt(storetest.Start(t)), Timeout: time.Minute, DialTimeout: time.Minute})
	storetest.Eventually(t, "up", st.idleStore.Up)
	st.freeze = func(on bool) {
		for _, n := range all {
			if on {
				n.Stop()
			} else {
				n.Continue()
			}
		}
	}
	return st
}

func serverAtAddress(address string) redis.Server {
	return redis.Server{Network: "tcp", Address: address}
}

// However the store stalls, nothing is held after all requests have ended: neither if replies
// arrive after the deadlines nor if connections end first.
func TestStalls(t *testing.T) {
	t.Parallel()
	for _, fallback := range []Fallback{Local, Error, Deny} {
		for _, kind := range []string{"server", "Sentinel", "cluster"} {
			t.Run(string(fallback)+" "+kind, func(t *testing.T) {
				t.Parallel()
				o := Options{Fallback: fallback, Timeout: time.Minute, DialTimeout: time.Minute, Panicked: func(thrown any) { t.Errorf("panicked: %v", thrown) }}
				var st *stallTest
				switch kind {
				case "server":
					st = newStallTest(t, serverAtAddress, o, 3, 0)
				case "Sentinel":
					st = newStallTest(t, func(address string) redis.Server {
						to, _ := threeSentinels(t, address, address, "", false)
						return to
					}, o, 2, 0)
				case "cluster":
					st = newClusterStallTest(t, o, 2)
				}
				lost := false
				st.run(t, 4, func() {
					st.waitForTraffic(t)
					if lost = !lost; lost {
						st.dropConnections()
					}
					st.freeze(false)
				})
			})
		}
	}
}

// A cell is a case of TestStallMatrix.
type cell struct {
	stall, deadline time.Duration
	fallback        Fallback
	replicas        int
}

// someCells returns nine cells that cover every pair of values of any two fields.
func someCells() (cells []cell) {
	const ms = time.Millisecond
	for i, stall := range []time.Duration{ms, 60 * ms, 1500 * ms} {
		for j, deadline := range []time.Duration{5 * ms, 50 * ms, 5000 * ms} {
			cells = append(cells, cell{stall, deadline, []Fallback{Local, Error, Deny}[(i+j)%3], 1 + (i+2*j)%3})
		}
	}
	return cells
}

func allCells() (cells []cell) {
	const ms = time.Millisecond
	for _, stall := range []time.Duration{ms, 10 * ms, 60 * ms, 300 * ms, 1500 * ms} {
		for _, deadline := range []time.Duration{5 * ms, 20 * ms, 50 * ms, 500 * ms, 5000 * ms} {
			for _, fallback := range []Fallback{Local, Error, Deny} {
				for replicas := 1; replicas <= 3; replicas++ {
					cells = append(cells, cell{stall, deadline, fallback, replicas})
				}
			}
		}
	}
	return cells
}

// The same for combinations of stalls, deadlines and replicas: nine cells, or with SLUICE_LONG=1
// all 225, which takes a minute.
func TestStallMatrix(t *testing.T) {
	t.Parallel()
	cells, stalls := someCells(), 3
	if os.Getenv("SLUICE_LONG") != "" {
		cells, stalls = allCells(), 5
	}
	for _, c := range cells {
		t.Run(fmt.Sprintf("%v_%v_%s_%d", c.stall, c.deadline, c.fallback, c.replicas), func(t *testing.T) {
			t.Parallel()
			st := newStallTest(t, serverAtAddress, Options{Fallback: c.fallback, Timeout: time.Second}, c.replicas, c.deadline)
			st.pause = 20 * time.Millisecond
			st.run(t, stalls, func() {
				<-time.After(100 * time.Millisecond)
				st.freeze(true)
				<-time.After(c.stall)
				st.freeze(false)
			})
		})
	}
}
