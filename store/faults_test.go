//go:build more

package store

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// startLoad sends requests until the test ends, each with the given budget, 0 for none. Every
// request must be decided. slowest is the longest time of a request, in nanoseconds.
func startLoad(tb testing.TB, s *Store, p *limiter.Policy, budget time.Duration) (slowest *atomic.Int64) {
	tb.Helper()
	var stop atomic.Bool
	slowest = &atomic.Int64{}
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			var c caller
			for !stop.Load() {
				began := clock()
				if err := c.decideWithin(s, budget, oneHit(uint64(n+1), p)); err != nil {
					tb.Errorf("decide = %v", err)
				}
				for elapsed := int64(clock().Sub(began)); ; {
					if was := slowest.Load(); elapsed <= was || slowest.CompareAndSwap(was, elapsed) {
						break
					}
				}
				if len(c.b.Decisions) != 1 || c.b.Denied && p == hugeBucket {
					tb.Errorf("decided %+v", c.b.Decisions)
				}
				time.Sleep(200 * time.Microsecond)
			}
		})
	}
	tb.Cleanup(func() {
		stop.Store(true)
		all.Wait()
	})
	return slowest
}

// During every fault the fallback decides, the error is of an accepted kind, and after the fault
// the store decides again.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.name == loading {
				storetest.Before7(t, "replies while little data is loaded")
			}
			srv := storetest.Start(t, tt.args...)
			o := &recorder{}
			s := runStore(t, Options{Server: serverAt(srv), Observer: o, Timeout: time.Second, DialTimeout: time.Second})
			storetest.Eventually(t, "up", s.Up)
			startLoad(t, s, hugeBucket, 0)
			tt.inject(t, srv)
			storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
			storetest.Eventually(t, "probed", func() bool {
				n := 0
				for _, kind := range tt.kinds {
					n += o.failuresOf(kind)
				}
				return n >= 2
			})
			tt.repair(t, srv)
			storetest.Eventually(t, "up again", s.Up)
			_, before := o.decisions()
			storetest.Eventually(t, "the store decides again", func() bool {
				_, n := o.decisions()
				return n > before
			})
			if o.diverged > 0 {
				t.Errorf("%d replies diverged", o.diverged)
			}
		})
	}
}

// A server without scripts is reported with a remedy.
func TestNoScripts(t *testing.T) {
	srv := storetest.Start(t, "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
	o := &recorder{}
	remedies := make(chan string, 1)
	runStore(t, Options{Server: serverAt(srv), Observer: o, Log: Log{Unavailable: func(_ string, _ redis.Kind, _ error, remedy string) {
		select {
		case remedies <- remedy:
		default:
		}
	}}})
	if remedy := <-remedies; o.failuresOf(redis.Script) == 0 || remedy != redis.Script.Remedy() {
		t.Errorf("failed %v, remedy %q, want %q and its remedy", o.failed, remedy, redis.Script)
	}
}

// A script that the server drops while connections are open is sent again, without an effect on
// callers.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	for range 20 {
		srv.Must("SCRIPT", "FLUSH")
		must.OK(t, c.decide(s, oneHit(1, hugeBucket)))
	}
	if o.decided[byFallback] > 0 || len(o.failed) > 0 {
		t.Errorf("decided %v, failed %v; want all by the store", o.decided, o.failed)
	}
}

// Connections that the server closes are replaced.
func TestConnectionsKilled(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o})
	startLoad(t, s, hugeBucket, 0)
	for n := range 5 {
		storetest.Eventually(t, "up", s.Up)
		srv.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		storetest.Eventually(t, "noticed", func() bool { return o.failuresOf(redis.Connection) > n })
	}
	storetest.Eventually(t, "up", s.Up)
}

// A faultyProxy is a proxy between a store and its server. It delays and truncates replies, and
// serves TLS if it has a configuration.
type faultyProxy struct {
	net.Listener
	to    string
	mu    sync.Mutex
	delay time.Duration
	cut   int // bytes of the next reply that are forwarded; -1 for all
}

func newFaultyProxy(tb testing.TB, to string, config *tls.Config) *faultyProxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(tb, err)
	if config != nil {
		l = tls.NewListener(l, config)
	}
	m := &faultyProxy{Listener: l, to: to, cut: -1}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { m.serve(c) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return m
}

func (m *faultyProxy) setFault(delay time.Duration, cut int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay, m.cut = delay, cut
}

func (m *faultyProxy) serve(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", m.to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		_, _ = io.Copy(s, c)
		_ = s.Close()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := s.Read(b)
		if err != nil {
			return
		}
		m.mu.Lock()
		delay, cut := m.delay, m.cut
		m.mu.Unlock()
		time.Sleep(delay)
		if cut >= 0 && cut < n {
			_, _ = c.Write(b[:cut])
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// Incomplete or late replies make the shard unavailable, and are never used for another request.
func TestHalfAndLateReplies(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	m := newFaultyProxy(t, srv.Addr, nil)
	o := &recorder{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: m.Addr().String()}, Observer: o, Timeout: 50 * time.Millisecond})
	startLoad(t, s, hugeBucket, 0)
	storetest.Eventually(t, "up", s.Up)
	for _, cut := range []int{0, 1, 5, 20} {
		before := o.failuresOf(redis.Connection)
		m.setFault(0, cut)
		storetest.Eventually(t, "the truncated reply is an error", func() bool { return o.failuresOf(redis.Connection) > before })
		m.setFault(0, -1)
		storetest.Eventually(t, "up", s.Up)
	}
	before := o.failuresOf(redis.Timeout)
	m.setFault(200*time.Millisecond, -1)
	storetest.Eventually(t, "late", func() bool { return o.failuresOf(redis.Timeout) > before && !s.Up() })
	m.setFault(0, -1)
	storetest.Eventually(t, "up", s.Up)
	if o.diverged > 0 {
		t.Errorf("%d replies were used for other requests", o.diverged)
	}
}

// If a request's own deadline passes first, the fallback decides only that request.
func TestShortDeadline(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Fallback: Error})
	soon := runStore(t, Options{Server: serverAt(srv), Fallback: Error, Timeout: time.Second})
	storetest.Eventually(t, "up", func() bool { return s.Up() && soon.Up() })
	srv.Stop()
	defer srv.Continue()
	var c caller
	err := c.decideWithin(s, time.Millisecond, oneHit(1, hugeBucket))
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("decide = %v, want %v", err, ErrUnavailable)
	}
	if !s.Up() {
		t.Error("one short deadline made the shard unavailable")
	}
	// If the next requests get no reply until the timeout, the shard is unavailable, although each
	// request has a short deadline.
	storetest.Eventually(t, "unavailable", func() bool {
		_ = c.decideWithin(soon, time.Millisecond, oneHit(1, hugeBucket))
		return !soon.Up()
	})
}
