package load

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/bench/proc"
)

// Run runs the load c. It returns an error if a process cannot be measured, or ctx ends. Failed
// calls are counted in the result.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Fill {
		c.Warmup = 0
		c.Duration = math.MaxInt64
	}
	workers, err := newWorkers(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer closeConns(workers)
	if !c.Fill {
		if err := connect(ctx, workers); err != nil {
			return nil, err
		}
	}

	if c.Warmup > 0 {
		phase(ctx, workers, c.Rate, c.Warmup)
	}
	for _, w := range workers {
		w.tally = tally{}
	}
	before, err := proc.Read(c.PIDs)
	if err != nil {
		return nil, err
	}
	elapsed := phase(ctx, workers, c.Rate, c.Duration)
	after, err := proc.Read(c.PIDs)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := sum(workers, elapsed)
	r.addUse(after.Since(before))
	return r, nil
}

// newWorkers returns workers that share the connections. A worker with several connections uses
// them in turn.
func newWorkers(ctx context.Context, c *Config) ([]*worker, error) {
	var filled atomic.Uint64
	workers := make([]*worker, c.InFlight)
	for i := range workers {
		t, err := newTemplate(c)
		if err != nil {
			return nil, err
		}
		workers[i] = &worker{template: t, config: c, filled: &filled}
	}
	for i := range max(c.Connections, c.InFlight) {
		w := workers[i%c.InFlight]
		if i >= c.Connections {
			w.conns = workers[i%c.Connections].conns
			continue
		}
		dialled, err := dial(ctx, c, c.Addrs[i%len(c.Addrs)])
		if err != nil {
			closeConns(workers)
			return nil, err
		}
		w.conns = append(w.conns, dialled)
	}
	// Neighbouring workers of the open loop should be on different connections.
	rand.Shuffle(len(workers), func(i, j int) {
		workers[i], workers[j] = workers[j], workers[i]
	})
	return workers, nil
}

// closeConns closes all connections.
func closeConns(workers []*worker) {
	for _, w := range workers {
		for _, c := range w.conns {
			_ = c.Close() // errors do not matter; some are closed twice
		}
	}
}

// connect makes a call over each connection, to establish them all.
func connect(ctx context.Context, workers []*worker) error {
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for range w.conns {
				w.call(ctx, time.Now())
			}
		})
	}
	wg.Wait()
	for _, w := range workers {
		if w.tally.lastErr != nil {
			return w.tally.lastErr
		}
	}
	return nil
}

// Idle returns the processes' memory per idle connection: each makes a call, and then none for
// c.Duration.
func Idle(ctx context.Context, c Config) (*Result, error) {
	before, err := proc.Read(c.PIDs)
	if err != nil {
		return nil, err
	}
	workers, err := newWorkers(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer closeConns(workers)
	if err := connect(ctx, workers); err != nil {
		return nil, err
	}
	r := sum(workers, c.Duration)
	select {
	case <-time.After(c.Duration):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := proc.Read(c.PIDs)
	if err != nil {
		return nil, err
	}
	r.addUse(after.Since(before))
	r.Idle = (after.RSS() - before.RSS()) / float64(c.Connections)
	return r, nil
}

// phase runs every worker for about d, or until ctx ends, and returns the elapsed time.
func phase(ctx context.Context, workers []*worker, rate float64, d time.Duration) time.Duration {
	start := time.Now()
	var due chan time.Time
	if rate > 0 {
		// The buffer is for calls that a stalled server delays.
		due = make(chan time.Time, 1<<16)
		go pace(ctx, due, start, rate, d)
	}
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			if due != nil {
				for t := range due {
					w.call(ctx, t)
				}
				return
			}
			for t := start; t.Sub(start) < d && ctx.Err() == nil && w.call(ctx, t); t = time.Now() {
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// tally contains the measurements of one worker.
type tally struct {
	ok, overLimit, unknown, errors int
	lastErr                        error
	latency                        []time.Duration // of every answered call, from its due time
}

// worker makes one call at a time.
type worker struct {
	conns    []conn
	next     int // index in conns
	template *template
	config   *Config
	// filled is the number of key numbers called by all workers, with Fill.
	filled *atomic.Uint64
	tally  tally
}

// call makes one call that was due at t. It returns false if no key number is left.
func (w *worker) call(ctx context.Context, t time.Time) bool {
	number := rand.Uint64N(w.config.Keys)
	if w.config.Fill {
		if number = w.filled.Add(1) - 1; number >= w.config.Keys {
			return false
		}
	}
	request := w.template.withKey(number)
	code, err := w.conns[w.next].request(ctx, request)
	w.next = (w.next + 1) % len(w.conns)
	if err != nil {
		w.tally.errors++
		w.tally.lastErr = err
		return true
	}
	w.tally.latency = append(w.tally.latency, time.Since(t))
	switch code {
	case rls.RateLimitResponse_OK:
		w.tally.ok++
	case rls.RateLimitResponse_OVER_LIMIT:
		w.tally.overLimit++
	default:
		w.tally.unknown++
	}
	return true
}
