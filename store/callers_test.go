package store

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// longTimeout is a timeout that is not reached even on a busy machine: the maximum of a store.
const longTimeout = time.Minute

func newStore(tb testing.TB, o Options) *Store {
	tb.Helper()
	if o.Timeout == 0 {
		o.Timeout = longTimeout
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = longTimeout
	}
	if o.Fallback == "" {
		o.Fallback = Local
	}
	if o.Table == nil {
		o.Table = newTable(tb)
	}
	s, err := New(o)
	must.OK(tb, err)
	return s
}

// runUntilEnd runs s until the test ends.
func runUntilEnd(tb testing.TB, s *Store) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
}

func newTable(tb testing.TB) *limiter.Table {
	tb.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(tb, err)
	return table
}

// A caller sends one request after another.
type caller struct {
	b       limiter.Batch
	names   [][]byte
	clock   func() time.Time // nil for the clock of the machine
	decided chan error

	exceeded func(hits uint64)
	observer limiter.BlockObserver
}

// Exceeded implements [limiter.Waiter].
func (c *caller) Exceeded(int) func(hits uint64) { return c.exceeded }

func (c *caller) Decided(err error) { c.decided <- err }

func (c *caller) decide(s *Store, charges ...limiter.Charge) error {
	return c.decideWithin(s, 0, charges...)
}

func (c *caller) decideWithin(s *Store, budget time.Duration, charges ...limiter.Charge) error {
	done, err := c.start(s, budget, charges...)
	if !done {
		err = <-c.decided
	}
	return err
}

// start starts a request. done is true if the request was decided immediately.
func (c *caller) start(s *Store, budget time.Duration, charges ...limiter.Charge) (done bool, err error) {
	if c.decided == nil {
		c.decided = make(chan error, 1)
	}
	c.b.Reset()
	c.b.Charges = append(c.b.Charges, charges...)
	c.b.Budget, c.b.Observer = budget, c.observer
	c.names = c.names[:0]
	for i := range charges {
		name := nameOf("s1", &charges[i])
		if charges[i].Policy.Algorithm != limiter.FixedWindow {
			name = append(name, 'x')
		}
		c.names = append(c.names, name)
	}
	now := time.Now
	if c.clock != nil {
		now = c.clock
	}
	return s.Decide(limiter.Time(now().UnixNano()), &c.b, c.names, c)
}

func oneHit(n uint64, p *limiter.Policy) limiter.Charge {
	return limiter.Charge{ID: identity.ID{Hi: n << 32, Lo: n}, Policy: p, Hits: 1}
}

// hugeFixedWindow is a limit that no test reaches.
var hugeFixedWindow = &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: limiter.MaxWindow}

// hugeBucket is a limit that no test reaches.
var hugeBucket = &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1 << 30, Window: time.Second, Burst: 1 << 31}

// permitCharge returns a charge on a concurrency limit of n.
func permitCharge(counter uint64, n uint32) limiter.Charge {
	return oneHit(counter, &limiter.Policy{Algorithm: limiter.Concurrency, Limit: n, Window: time.Hour})
}

// commandOf reads a command.
func commandOf(r *bufio.Reader) (args []string, err error) {
	number := func() (n int, err error) {
		line, err := r.ReadString('\n')
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n, err
	}
	many, err := number()
	for range many {
		length, bad := number()
		if bad != nil {
			return nil, bad
		}
		b := make([]byte, length+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args = append(args, string(b[:length]))
	}
	return args, err
}

// acquireOne acquires one leadership. It returns the previous leader, or "?" if unknown.
func acquireOne(tb testing.TB, s *Store, candidate, domain string, ttl time.Duration) string {
	tb.Helper()
	if previous, known := acquireAll(tb, s, candidate, ttl, domain)[domain]; known {
		return previous
	}
	return "?"
}

// acquireAll acquires leaderships. It returns the previous leaders by domain, where known.
func acquireAll(tb testing.TB, s *Store, candidate string, ttl time.Duration, domains ...string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	s.AcquireLeadership(candidate, ttl, domains, func(i int, previous string) { all[domains[i]] = previous })
	return all
}
