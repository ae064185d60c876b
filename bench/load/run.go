package load

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/bench/proc"
)

// Run loads a service as c says. It returns an error if c is wrong, a process cannot be
// measured, or ctx ends. The result counts failed calls.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Fill {
		c.Warmup, c.Duration = 0, math.MaxInt64
	}
	workers, hangUp, err := newWorkers(&c)
	if err != nil {
		return nil, err
	}
	defer hangUp()

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
	r := sum(&c, workers, elapsed)
	r.addUse(after.Since(before))
	return r, nil
}

// newWorkers connects. hangUp closes the connections.
func newWorkers(c *Config) (workers []*worker, hangUp func(), err error) {
	var conns []*grpc.ClientConn
	hangUp = func() {
		for _, cc := range conns {
			_ = cc.Close() // nothing is lost that we want
		}
	}
	target := c.Addr
	if !strings.HasPrefix(target, "unix:") {
		target = "passthrough:///" + target
	}
	var filled atomic.Uint64
	for range c.Connections {
		// One ClientConn is one HTTP/2 connection, as each Envoy worker has one.
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		conns = append(conns, cc)
		for range c.InFlight {
			t, err := newTemplate(c)
			if err != nil {
				hangUp()
				return nil, nil, err
			}
			workers = append(workers, &worker{
				client: rls.NewRateLimitServiceClient(cc), template: t,
				config: c, filled: &filled,
			})
		}
	}
	// Neighbouring workers of the open loop should be on different connections.
	rand.Shuffle(len(workers), func(i, j int) { //nolint:gosec // load, no secrets
		workers[i], workers[j] = workers[j], workers[i]
	})
	return workers, hangUp, nil
}

// phase runs every worker for about d, or until ctx ends, and returns how long
// that took.
func phase(ctx context.Context, workers []*worker, rate float64, d time.Duration) time.Duration {
	start := time.Now()
	var due chan time.Time
	if rate > 0 {
		// Room for the calls that a stalled server holds up.
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

// tally is what one worker saw.
type tally struct {
	ok, overLimit, unknown, errors int
	lastErr                        error
	latency                        []time.Duration // of every answered call, from its due time
	lag                            []time.Duration // open loop: how late the call was sent
}

// worker makes calls one at a time, over one connection.
type worker struct {
	client   rls.RateLimitServiceClient
	template *template
	config   *Config
	// filled is how many key numbers all workers have called, where Fill calls each once.
	filled *atomic.Uint64
	tally  tally
}

// call makes one call that was due at t. If no key is left to call it makes none and
// returns false.
func (w *worker) call(ctx context.Context, t time.Time) bool {
	number := rand.Uint64N(w.config.Keys) //nolint:gosec // load, no secrets
	if w.config.Fill {
		if number = w.filled.Add(1) - 1; number >= w.config.Keys {
			return false
		}
	}
	request := w.template.with(number)
	if w.config.Rate > 0 {
		w.tally.lag = append(w.tally.lag, time.Since(t))
	}
	if w.config.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.config.Timeout)
		defer cancel()
	}
	response, err := w.client.ShouldRateLimit(ctx, request)
	if err != nil {
		w.tally.errors++
		w.tally.lastErr = err
		return true
	}
	w.tally.latency = append(w.tally.latency, time.Since(t))
	switch response.GetOverallCode() {
	case rls.RateLimitResponse_OK:
		w.tally.ok++
	case rls.RateLimitResponse_OVER_LIMIT:
		w.tally.overLimit++
	default:
		w.tally.unknown++
	}
	return true
}
