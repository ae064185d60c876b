package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/store"
)

// fault is something that goes wrong, or that an operator does.
type fault struct {
	at   time.Duration // after the start of the traffic
	kind string
	host string
	d    time.Duration // its duration
}

func (f fault) String() string { return fmt.Sprintf("%v: %s %s for %v", f.at, f.kind, f.host, f.d) }

// lasts returns how long the fault has an effect.
func (f fault) lasts() time.Duration {
	switch f.kind {
	case "slow":
		return slowFor
	case "clock": // what was counted ahead of time stays until then
		return clockFor + f.d
	}
	return f.d
}

const (
	// slowFor is how long links are slow; d is then ten times the additional latency.
	slowFor = 5 * time.Second
	// clockFor is how long the clock of a replica is wrong, by d.
	clockFor = 10 * time.Second
)

// Kinds of faults, by host.
var (
	linkFaults  = []string{"silence", "slow", "reset"}
	storeFaults = []string{"silence", "silence", "slow", "reset", "stall", "stall", "stall", "stop", "flush", "failover", "loading", "oom"}
	// operations are faults of a sluice that operators and the platform cause.
	operations = []string{"kill", "restart", "reload"}
	// boundChanges are operations that change max_counters.
	boundChanges = []string{"partition", "partition", "repartition", "resize"}
)

// chooseFaults chooses up to six faults; one run in five has none.
func (c *scenario) chooseFaults(r *rand.Rand) {
	if r.IntN(5) == 0 {
		return
	}
	choose := func(from []string) string { return from[r.IntN(len(from))] }
	for range 1 + r.IntN(6) {
		f := fault{
			at:   time.Duration(r.Int64N(int64(c.duration))),
			host: fmt.Sprint("sluice-", r.IntN(c.replicas)),
			d:    time.Duration(r.ExpFloat64() * float64([]time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[r.IntN(3)])),
		}
		switch kind := r.IntN(4); {
		case kind < 2 && c.shared:
			f.host, f.kind = "store", choose(storeFaults)
		case kind == 2:
			if f.kind = choose(operations); !c.shared && r.IntN(4) == 0 {
				f.kind = "clock"
			}
		default:
			f.kind = choose(linkFaults)
		}
		f.d = min(f.d, 8*time.Second)
		c.faults = append(c.faults, f)
	}
}

// chooseBounds lets operators add, change and remove max_counters in half of the scenarios.
func (c *scenario) chooseBounds() {
	r := rand.New(rand.NewPCG(c.seed, 7))
	if r.IntN(2) == 0 {
		return
	}
	c.maxCounters = 100 * r.IntN(2)
	for range 1 + r.IntN(16) {
		c.faults = append(c.faults, fault{
			at: time.Duration(r.Int64N(int64(c.duration))), kind: boundChanges[r.IntN(len(boundChanges))],
			host: fmt.Sprint("sluice-", r.IntN(c.replicas)), d: time.Duration(r.Int64N(int64(100 * time.Millisecond))),
		})
	}
}

// newBound returns max_counters after an operation, 0 for none. A partition begins or ends.
func (f fault) newBound(before int) int {
	toggles := f.kind == "partition" || f.kind == "repartition"
	if toggles == (before > 0) {
		return 0
	}
	return 16 + int(f.d%1000)
}

// playFaults makes the faults of the scenario happen.
func (w *world) playFaults(ctx context.Context) {
	var faults sync.WaitGroup
	w.faultEnds = make([]time.Time, len(w.faults))
	for i, f := range w.faults {
		faults.Go(func() {
			time.Sleep(time.Until(w.traffic.Add(f.at)))
			w.record("fault", "%s %s for %v", f.kind, f.host, f.d)
			switch {
			case w.isReplica(f.host):
				w.replica(f.host).suffer(f)
			default:
				w.store.suffer(f)
			}
			w.faultEnds[i] = time.Now()
			if f.kind == "slow" || f.kind == "silence" { // they last
				w.faultEnds[i] = w.faultEnds[i].Add(f.lasts())
			}
		})
	}
	<-ctx.Done()
	faults.Wait()
}

// A turn lets operations follow each other. A goroutine that waits for a mutex would stop the time
// of the bubble.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// acquire waits for the turn, and returns a function that passes it on.
func (t turn) acquire() (release func()) {
	t <- struct{}{}
	return func() { <-t }
}

// suffer plays a fault of the network. It reports false if the fault is of another kind.
func (n *network) suffer(f fault) bool {
	switch f.kind {
	case "silence":
		n.silence(f.host, f.d)
	case "slow":
		n.slow(f.host, f.d/10, slowFor)
	case "reset":
		n.reset(f.host)
	default:
		return false
	}
	return true
}

// suffer plays a fault of a sluice, or an operation.
func (r *replica) suffer(f fault) {
	if r.world.network.suffer(f) {
		return
	}
	defer r.operations.acquire()()
	switch f.kind {
	case "kill":
		r.kill()
		time.Sleep(f.d)
		r.start()
	case "restart", "repartition":
		r.stop()
		r.maxCounters = f.newBound(r.maxCounters)
		time.Sleep(f.d)
		r.start()
	case "partition", "resize":
		r.maxCounters = f.newBound(r.maxCounters)
		r.reload(r.world.rules)
	case "reload":
		r.reload(r.world.changedRules)
		time.Sleep(f.d)
		r.reload(r.world.rules)
	case "clock":
		r.clockError.Store(int64(f.d))
		time.Sleep(clockFor)
		r.clockError.Store(0)
	default:
		panic(f.kind)
	}
}

// effects are the possible effects of a kind of fault, from its start until replicas have recovered
// from its end. A fault of a sluice affects that sluice, a fault of the store all of them.
type effects struct {
	outage  bool // the store is unavailable
	breaks  bool // connections end, so requests may be lost or counted twice
	starts  bool // a process starts, which decides without the store until it has connected
	changes bool // of limits, or of the windows to which hits belong
	// forgets returns how many times all hits of a counter may be admitted again; nil for never.
	forgets func(w *world, l *limit, f fault) uint64
}

// effectsOf has the effects of each kind of fault.
var effectsOf = map[string]effects{
	"silence":         {outage: true, breaks: true},
	"slow":            {outage: true},
	"reset":           {outage: true, breaks: true, forgets: leasesOfDisconnected},
	"stall":           {outage: true, breaks: true},
	"stop":            {outage: true, breaks: true},
	"loading":         {outage: true, breaks: true},
	"oom":             {outage: true, breaks: true},
	"lie":             {outage: true, breaks: true}, // of a Sentinel
	"move slots":      {outage: true, breaks: true},
	"flush":           {outage: true, breaks: true, forgets: once},
	"failover":        {outage: true, breaks: true, forgets: once},
	"silent failover": {outage: true, breaks: true, forgets: once},
	"split failover":  {outage: true, breaks: true, forgets: twice}, // the old primary goes on admitting
	"kill":            {breaks: true, starts: true, forgets: inMemory(once)},
	"restart":         {breaks: true, starts: true, forgets: inMemory(unsaved)},
	"repartition":     {breaks: true, starts: true, forgets: inMemory(once)},
	"reload":          {changes: true, forgets: changedBucket},
	"partition":       {forgets: once}, // of counters in memory (docs/rules.md, "max_counters")
	"resize":          {},
	"clock":           {changes: true, forgets: inMemory(twice)}, // it is corrected later
}

func once(*world, *limit, fault) uint64  { return 1 }
func twice(*world, *limit, fault) uint64 { return 2 }

// inMemory restricts forgets to counters in memory.
func inMemory(forgets func(*world, *limit, fault) uint64) func(*world, *limit, fault) uint64 {
	return func(w *world, l *limit, f fault) uint64 {
		if w.shared {
			return 0
		}
		return forgets(w, l, f)
	}
}

// unsaved is for counters that are not in a state file, and for permits, which are free after a
// restart.
func unsaved(w *world, l *limit, _ fault) uint64 {
	if w.stateFiles && !l.grantsLeases() {
		return 0
	}
	return 1
}

// changedBucket is for the bucket whose limit changes: it keeps times, not hits (docs/algorithms.md,
// "Editing rules").
func changedBucket(w *world, l *limit, _ fault) uint64 {
	if l.burst > 0 && l == w.limits[0] {
		return 1
	}
	return 0
}

// leasesOfDisconnected is for the permits of an Envoy that cannot reconnect within --lease-grace.
func leasesOfDisconnected(w *world, l *limit, f fault) uint64 {
	began := w.traffic.Add(f.at)
	if l.grantsLeases() && w.during(began, began.Add(2*time.Second), func(g fault) bool { return g.kind == "silence" || g.kind == "slow" }) > 0 {
		return 1
	}
	return 0
}

// affects reports whether a fault may have an effect on calls to a replica.
func (w *world) affects(f fault, replica string) bool {
	return f.host == replica || !w.isReplica(f.host)
}

// breaks reports whether connections end, because of the fault or because the store answers too late.
func (w *world) breaks(f fault) bool {
	return effectsOf[f.kind].breaks || f.kind == "slow" && 2*f.latency() > w.storeTimeout
}

// latency returns the latency of bytes during the fault.
func (f fault) latency() time.Duration {
	if f.kind == "slow" {
		return f.d/10 + maxLatency
	}
	return maxLatency
}

// recovery is how long a replica may need to find that the store is available again.
const recovery = 4 * time.Second

// interval returns when a fault has an effect.
func (w *world) interval(i int) (begins, ends time.Time) {
	f := w.faults[i]
	if ends = w.faultEnds[i]; ends.IsZero() { // it has not ended
		ends = time.Now()
	}
	if begins = w.traffic.Add(f.at); f.kind == "partition" {
		return begins, ends
	}
	return begins, later(begins.Add(f.lasts()), ends).Add(recovery)
}

// during returns how many faults of a kind have an effect in an interval.
func (w *world) during(from, to time.Time, kind func(fault) bool) (n int) {
	for i, f := range w.faults {
		if begins, ends := w.interval(i); kind(f) && begins.Before(to) && ends.After(from) {
			n++
		}
	}
	return n
}

// withoutStore reports whether a replica may have decided a request without the store.
func (w *world) withoutStore(replica string, from, to time.Time) bool {
	return w.shared && w.during(from, to, func(f fault) bool {
		return w.affects(f, replica) && (effectsOf[f.kind].outage || effectsOf[f.kind].starts)
	}) > 0
}

// alone returns the number of processes that may have decided requests without the store.
func (w *world) alone(from, to time.Time) (n uint64) {
	for _, p := range w.processes {
		if p.started.Before(to) && (p.until.IsZero() || p.until.After(from)) && w.withoutStore(p.host, from, to) {
			n++
		}
	}
	return n
}

// readmitted returns how many hits a counter may admit beyond its bound, because their predecessors
// were forgotten or removed.
func (w *world) readmitted(l *limit, from, to time.Time) (hits uint64) {
	for i, f := range w.faults {
		begins, ends := w.interval(i)
		if f.kind == "partition" && w.shared && !w.withoutStore(f.host, from, to) {
			continue
		}
		if forgets := effectsOf[f.kind].forgets; forgets != nil && begins.Before(to) && ends.After(from) {
			hits += forgets(w, l, f) * max(l.n, l.burst)
		}
	}
	return hits + w.addedByOperator(l, from, to)
}

// knowsAll reports whether e was decided by a store that knew all hits since the given time in the same
// window, including those that the fallback admitted before.
func (w *world) knowsAll(l *limit, from time.Time, e *entry) bool {
	sameWindow := e.received.Sub(from) <= l.window
	if l.algorithm == "fixed_window" {
		sameWindow = from.Truncate(l.window).Equal(e.received.Truncate(l.window))
	}
	unsynced := w.during(e.sent, e.received, func(f fault) bool { return !effectsOf[f.kind].changes }) > 0
	lost := w.during(from.Add(-l.window), e.received, func(f fault) bool {
		return effectsOf[f.kind].starts || strings.HasSuffix(f.kind, "failover") || f.kind == "flush"
	}) > 0
	return w.shared && l.burst == 0 && !w.usesBlocks(l) && sameWindow && !unsynced && !lost && w.addedByOperator(l, from, e.received) == 0
}

// admitsAlone reports whether replicas admit requests without the store.
func (w *world) admitsAlone() bool {
	return w.shared && (w.fallback == store.Local || w.fallback == store.Allow)
}
