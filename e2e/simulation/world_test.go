package simulation

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
)

// world is one run: the parties, the network and the trace.
type world struct {
	*scenario

	dir       string // of state files
	network   *network
	store     *sharedStore // nil if counters are in memory
	replicas  []*replica
	processes []*process // of all replicas, with killed ones
	envoys    []*envoy
	orders    *orders
	ledger    ledger
	began     time.Time
	traffic   time.Time   // when the traffic starts
	faultEnds []time.Time // of the faults of the scenario: some wait for others
	stopping  atomic.Bool

	mu       sync.Mutex
	trace    uint64
	last     []string // the last events
	failures []string
}

// lastEvents is the number of events that a failure prints.
const lastEvents = 50

// record adds an event to the trace.
func (w *world) record(who, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%12.9f %s %s", time.Since(w.began).Seconds(), who, fmt.Sprintf(format, args...))
	w.trace += hashText(line) // events of the same time may be in any order
	if w.last = append(w.last, line); len(w.last) > 2*lastEvents && !keepTrace {
		w.last = append(w.last[:0], w.last[lastEvents:]...)
	}
}

// fail records that an invariant is violated.
func (w *world) fail(format string, args ...any) {
	w.record("check", format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// start starts the parties of a scenario.
func (w *world) start(tb testing.TB) {
	tb.Helper()
	w.dir, w.network = tb.TempDir(), newNetwork(w.seed)
	time.Sleep(w.offset) // so that windows do not start with the run
	w.began = time.Now()
	if w.shared {
		w.store = newSharedStore(w.network, w.topology)
	}
	w.orders = newOrders(w)
	for i := range w.scenario.replicas {
		r := &replica{world: w, host: fmt.Sprint("sluice-", i), operations: newTurn()}
		w.replicas = append(w.replicas, r)
		r.start()
	}
	for i := range w.scenario.envoys {
		w.envoys = append(w.envoys, &envoy{world: w, host: fmt.Sprint("envoy-", i), last: map[string]*h2client.Conn{}})
	}
}

// run plays the scenario, waits until everything is at rest, and checks the invariants.
func (w *world) run() {
	time.Sleep(2 * time.Second) // the start
	ctx, cancel := context.WithTimeout(context.Background(), w.duration)
	defer cancel()
	w.traffic = time.Now()
	var parties sync.WaitGroup
	for _, rule := range w.limits {
		for _, tenant := range w.tenants {
			parties.Go(func() {
				w.request(ctx, rule.key+tenant, rule.demand, func(e *envoy, random *rand.Rand) func() { return e.newRequest(rule, tenant, random).run })
			})
		}
	}
	parties.Go(func() { w.playFaults(ctx) })
	parties.Go(func() { w.watchMetrics(ctx) })
	parties.Go(func() { w.orders.run(ctx) })
	defer w.startAttacks()()
	parties.Wait()
	time.Sleep(w.grace)
	w.checkAtRest()
	w.orders.checkAtRest()
	w.stop()
	w.ledger.check(w)
	w.orders.check()
	w.checkAnswered()
}

// stop ends all parties, except attackers.
func (w *world) stop() {
	w.stopping.Store(true)
	for _, e := range w.envoys {
		e.end()
	}
	for _, r := range w.replicas {
		if r.running {
			r.stop()
		}
	}
	for _, p := range w.processes {
		<-p.ended
	}
	if w.store != nil {
		w.store.stop()
	}
}

func (w *world) isReplica(host string) bool { return strings.HasPrefix(host, "sluice-") }

// replica returns the replica at a host.
func (w *world) replica(host string) *replica {
	return w.replicas[slices.IndexFunc(w.replicas, func(r *replica) bool { return r.host == host })]
}

// request runs what choose returns a number of times per second, at random times.
func (w *world) request(ctx context.Context, name string, perSecond float64, choose func(*envoy, *rand.Rand) (run func())) {
	random := rand.New(rand.NewPCG(w.seed, hashText(name)))
	var requests sync.WaitGroup
	defer requests.Wait()
	for sleep(ctx, time.Duration(random.ExpFloat64()/perSecond*float64(time.Second))) {
		requests.Go(choose(w.envoys[random.IntN(len(w.envoys))], random))
	}
}

// panicOn panics if there is an error, which only a mistake in this package can cause.
func panicOn(err error) {
	if err != nil {
		panic(err)
	}
}

// mustHave returns v, or panics like panicOn.
func mustHave[T any](v T, err error) T {
	panicOn(err)
	return v
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// hashText returns the hash of a text.
func hashText(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
