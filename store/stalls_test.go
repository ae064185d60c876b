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

// A stalled is replicas whose store stalls now and then, and callers that start and end requests meanwhile.
type stallTest struct {
	replicas  []*Store
	watch     *Store // that looks at what is held
	idleStore *Store // that is not stalled, for callers who try again
	observed  *recorder
	freeze    func(yes bool)
	fallback  Fallback
	deadline  time.Duration
	counters  uint64 // of the first counter
	seed      uint64

	pause time.Duration // that a caller waits after it was denied, or was given a lease by the fallback

	held, maxHeld    [2]atomic.Int64 // places, and hits that are reserved, that callers have now and had at once
	granted, allowed [2]atomic.Int64 // leases that the fallback gave, and may give until the next stall
	started          atomic.Int64
	stop             atomic.Bool
}

const stalledPlaces, stalledHits, stalledCallers = 3, 12, 8

// hitsOfKind is what a charge of either kind takes.
var hitsOfKind = [2]int64{1, stalledHits / stalledPlaces}

// allowances are the numbers of leases that the fallback may give in each stall, of places and of reservations. The store remembers
// 4,096 and 1,024 of a counter that came back before their replica reported them, and holds others until they end by
// themselves (docs/store.md). The speed of the machine must not decide whether there are more.
var allowances = [2]int64{600, 150}

// counter returns a charge that starts a request: on places, or one that reserves.
func (st *stallTest) charge(kind int) limiter.Charge {
	if kind == 0 {
		return slotCharge(st.counters, stalledPlaces)
	}
	c := oneHit(st.counters+1, &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: 24 * time.Hour, Burst: stalledHits, Reserve: limiter.NewReserve(stalledPlaces, time.Hour, true)})
	c.Hits, c.Reserve = stalledHits/stalledPlaces, true
	return c
}

// addHeld notes that a caller has what a charge has taken, or has it no more.
func (st *stallTest) addHeld(kind int, change int64) {
	now := st.held[kind].Add(change)
	for was := st.maxHeld[kind].Load(); now > was && !st.maxHeld[kind].CompareAndSwap(was, now); was = st.maxHeld[kind].Load() {
	}
}

// runCaller starts and ends requests until it is stopped. A place may end at any replica; what is reserved ends where it began:
// elsewhere it may come sooner than its start.
func (st *stallTest) runCaller(tb testing.TB, n uint64) {
	tb.Helper()
	random := rand.New(rand.NewPCG(st.seed, n))
	var c, other caller
	for !st.stop.Load() {
		s := st.replicas[random.IntN(len(st.replicas))]
		kinds := [][]int{{0}, {1}, {0, 1}}[random.IntN(3)] // on a cluster the last are two parts
		var charges []limiter.Charge
		for _, kind := range kinds {
			charges = append(charges, st.charge(kind))
		}
		if !st.mayStart(kinds) {
			st.pauseCaller(tb, &other)
			continue
		}
		if err := c.askWithin(s, st.deadline, charges...); err != nil || c.b.Denied {
			st.pauseCaller(tb, &other)
			continue
		}
		st.started.Add(1)
		byFallback := false
		for i, kind := range kinds {
			st.addHeld(kind, hitsOfKind[kind])
			if lease := c.b.Lease(i); lease>>8&1 == 1 { // its nonce is odd: a replica gave it without the store
				st.granted[kind].Add(1)
				byFallback = true
			}
		}
		if err := other.askWithin(s, st.deadline, oneHit(st.counters+2, hugeBucket)); err != nil && st.fallback != Error { // so that it lasts
			tb.Error(err)
		}
		for i, kind := range kinds {
			st.addHeld(kind, -hitsOfKind[kind])
			charges[i].Hits, charges[i].Refund, charges[i].Reserve, charges[i].Group = c.b.Lease(i), true, false, int32(i)
		}
		if random.IntN(4) == 0 { // its client went away
			s.Cancel(limiter.Time(time.Now().UnixNano()), &c.b, c.names)
		} else {
			if kinds[len(kinds)-1] == 0 {
				s = st.replicas[random.IntN(len(st.replicas))]
			}
			if err := other.askWithin(s, st.deadline, charges...); err != nil && st.fallback != Error {
				tb.Error(err)
			}
		}
		if byFallback {
			st.pauseCaller(tb, &other)
		}
	}
}

// mayStart reports whether the fallback may give more leases of these kinds.
func (st *stallTest) mayStart(kinds []int) bool {
	for _, kind := range kinds {
		if st.granted[kind].Load() >= st.allowed[kind].Load() {
			return false
		}
	}
	return true
}

// pauseCaller is the time until a caller tries again: the pause, or else a call of the store that does not stall.
func (st *stallTest) pauseCaller(tb testing.TB, c *caller) {
	tb.Helper()
	if st.pause > 0 {
		<-time.After(st.pause)
		return
	}
	c.heldHits(tb, st.idleStore, st.charge(0))
}

// run has callers start and end requests while the store stalls, now and then. Then nothing may be held, and no more than
// there is may ever have been held at once.
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
	storetest.Eventually(t, "nothing is held or owed when all requests have ended", func() bool {
		for _, s := range st.replicas {
			if s.unsyncedCounters() > 0 || !s.isIdle() {
				return false
			}
		}
		return c.heldHits(t, st.watch, st.charge(0))+c.heldHits(t, st.watch, st.charge(1)) == 0
	})
	for kind, there := range []int64{stalledPlaces, stalledHits} {
		if st.fallback == Local {
			there *= int64(1 + len(st.replicas)) // and once what each replica knew to be left
		}
		if most := st.maxHeld[kind].Load(); most > there {
			t.Errorf("%d held at once, want %d at most", most, there)
		}
	}
	late, asked := st.observed.decisions()
	t.Logf("seed %d: %d started, %d and %d held at once; %d charges decided by the store, %d by the fallback", st.seed, st.started.Load(), st.maxHeld[0].Load(), st.maxHeld[1].Load(), asked, late)
}

// allUp reports whether all replicas have the store.
func (st *stallTest) allUp() bool {
	for _, s := range append([]*Store{st.watch}, st.replicas...) {
		if !s.Up() {
			return false
		}
	}
	return true
}

// waitForTraffic waits until requests have been started and, while the store stalls, decided by the fallback.
func (st *stallTest) waitForTraffic(tb testing.TB) {
	tb.Helper()
	started := st.started.Load()
	storetest.Eventually(tb, "requests start", func() bool { return st.started.Load() > started+2*stalledCallers })
	st.freeze(true)
	before, _ := st.observed.decisions()
	storetest.Eventually(tb, "deadlines come", func() bool {
		for _, s := range st.replicas {
			s.expireAll()
		}
		late, _ := st.observed.decisions()
		return late > before+2*stalledCallers
	})
}

// expireAll has the deadlines of all come that wait for s.
func (s *Store) expireAll() {
	for _, at := range s.main.slots.Load().ranges {
		l := at.shard
		l.mu.Lock()
		late := l.removeLateLocked(clock().Add(time.Hour))
		l.mu.Unlock()
		l.fallBack(late)
	}
}

// isIdle reports whether no message is under way, and none waits.
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

// dropConnections has the connections of all replicas end without a reply to what is under way.
func (st *stallTest) dropConnections() {
	for _, s := range st.replicas {
		for _, at := range s.main.slots.Load().ranges {
			at.shard.mu.Lock()
			c := at.shard.conn
			at.shard.mu.Unlock()
			if c != nil {
				at.shard.markUnavailable(c, &redis.Error{Kind: redis.Timeout, Err: errors.New("nothing was said for long")})
			}
		}
	}
}

// newStallTest returns replicas whose store is at to, by the address of a relay, of which each has one, to a server. The relays
// keep back what that says.
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
	st.freeze = func(yes bool) {
		for _, r := range relays {
			r.holdReplies(yes)
		}
	}
	return st
}

// newClusterStallTest returns replicas whose store is a cluster, the nodes of which stop.
func newClusterStallTest(t *testing.T, o Options, replicas int) *stallTest {
	t.Helper()
	all := storetest.StartCluster(t, 2, false)
	st := &stallTest{observed: &recorder{}, fallback: o.Fallback, seed: rand.Uint64()}
	for slots := [2]bool{}; slots != [2]bool{true, false}; { // the two counters are at two nodes
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
	st.freeze = func(yes bool) {
		for _, n := range all {
			if yes {
				n.Stop()
			} else {
				n.Continue()
			}
		}
	}
	return st
}

// serverAtAddress is a store at an address.
func serverAtAddress(address string) redis.Server {
	return redis.Server{Network: "tcp", Address: address}
}

// However the store stalls, nothing is held when all requests have ended: whether the replies come after the deadlines of those
// who waited, or the connections end before.
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

// someCells returns nine cells, in which each two values of any two fields meet.
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

// The same with stalls, deadlines and replicas of many sorts: nine cells, or with SLUICE_LONG=1 all 225, which
// takes a minute.
func TestStallMatrix(t *testing.T) {
	t.Parallel()
	cells, stalls := someCells(), 3
	if os.Getenv("SLUICE_LONG") != "" {
		cells, stalls = allCells(), 5
	}
	for _, c := range cells {
		t.Run(fmt.Sprintf("%v/%v_%s_%d", c.stall, c.deadline, c.fallback, c.replicas), func(t *testing.T) {
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
