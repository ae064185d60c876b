package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
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
	// resumeFor is the time in which a resumed sluice reads what has arrived.
	resumeFor = 200 * time.Millisecond
)

// Kinds of faults, by host.
var (
	linkFaults  = []string{"silence", "slow", "reset"}
	storeFaults = []string{"silence", "silence", "slow", "reset", "stall", "stall", "stall", "stop", "flush", "failover", "loading", "oom"}
	// operations are faults of a sluice that operators and the platform cause.
	operations = []string{"kill", "restart", "reload"}
)

// isSuspended reports whether the only fault is that the sluice is suspended, for 3 to 6 s.
func (c *scenario) isSuspended() bool { return len(c.faults) == 1 && c.faults[0].kind == "suspend" }

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

// playFaults makes the faults of the scenario happen.
func (w *world) playFaults(ctx context.Context) {
	var faults sync.WaitGroup
	w.faultEnds = make([]time.Time, len(w.faults))
	for i, f := range w.faults {
		faults.Go(func() {
			time.Sleep(time.Until(w.traffic.Add(f.at)))
			w.record("fault", "%s %s for %v", f.kind, f.host, f.d)
			switch {
			case f.ofQuotaEnvoy():
				w.quotas.suffer(f)
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
		n.update(f.host, func(l *links) { l.extra, l.slowUntil = f.d/10, time.Now().Add(slowFor) })
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
	case "restart":
		r.stop()
		time.Sleep(f.d)
		r.start()
	case "reload":
		r.reload(r.world.changedRules)
		time.Sleep(f.d)
		r.reload(r.world.rules)
	case "suspend": // its clock stands still
		r.world.network.update(r.host, func(l *links) { l.silentUntil, l.suspended = time.Now().Add(f.d), true })
		r.suspendedAt.Store(time.Now().UnixNano())
		time.Sleep(f.d)
		r.suspendedAt.Store(0)
		time.Sleep(resumeFor)
	case "clock":
		r.clockError.Store(int64(f.d))
		time.Sleep(clockFor)
		r.clockError.Store(0)
	default:
		panic(f.kind)
	}
}
