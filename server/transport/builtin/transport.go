package builtin

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// Transport is a gRPC server on top of package h2. Each connection has one goroutine, which reads,
// answers and writes.
type Transport struct {
	shared

	mu       sync.Mutex
	listener net.Listener
	conns    map[*connection]struct{}
	stage    stage
	stopped  chan struct{} // closed when it no longer accepts

	connections sync.WaitGroup
	done        chan struct{} // closed when all connections have ended
	doneOnce    sync.Once
	monitoring  sync.WaitGroup
}

// stage is the state of a Transport. It only increases.
type stage byte

const (
	stageServing stage = iota
	stageDraining
	stageStopped
)

// New returns a Transport that is not serving yet.
func New(c transport.Config) *Transport {
	if c.Tokens == nil {
		c.Tokens = cpu.NewTokens()
	}
	b := newBridge(&c)
	t := &Transport{
		shared: shared{
			Config: c, bridge: b, lingerTime: defaultLingerTime,
			h2: h2.NewServer(h2.Options{
				Limits: h2.Limits{
					MaxStreams:      int(c.Limits.MaxStreams),
					MaxHeaderBytes:  int(c.Limits.MaxHeaderBytes),
					MaxMessageBytes: c.Limits.MaxMessageBytes,
					PingInterval:    c.Limits.KeepaliveMinTime,
				},
				Methods: b.h2Methods(),
			}),
		},
		conns:   make(map[*connection]struct{}),
		stopped: make(chan struct{}), done: make(chan struct{}),
	}
	t.buffered.reserved = func() int64 { return 0 }
	if c.Quotas != nil {
		t.buffered.reserved = c.Quotas.MemoryBytes
	}
	t.buffered.shares = func() []*memoryShare {
		var shares []*memoryShare
		for _, c := range t.snapshotConns() {
			shares = append(shares, &c.buffered)
		}
		return shares
	}
	return t
}

// newConnection returns a connection that is not served yet.
func newConnection(t *Transport, raw net.Conn) *connection {
	now := t.Handler.Clock.Elapsed()
	c := &connection{shared: &t.shared, storeWake: make(chan struct{}, 1)}
	c.bounded, _ = raw.(transport.BoundedConn)
	c.raw = newSocket(raw, c.writeStalled, c.writeResumed)
	c.h2 = t.h2.NewConn((*calls)(c), now)
	c.activity.start(now, t.Limits.MaxConnectionAge)
	c.mailbox.runFlusher = c.runFlusher
	c.buffered.closeWithError = c.closeWithError
	return c
}

// Serve implements [transport.Transport].
func (t *Transport) Serve(l net.Listener) error {
	t.mu.Lock()
	if t.stage != stageServing {
		t.mu.Unlock()
		_ = l.Close() // as grpc-go does; otherwise the file of a unix socket remains
		return grpc.ErrServerStopped
	}
	t.listener = l
	t.monitoring.Go(t.monitor) // with the mutex locked, so that a concurrent stop waits for it
	t.mu.Unlock()
	for pause := time.Duration(0); ; {
		raw, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			t.accept(raw)
			continue
		case errors.Is(err, net.ErrClosed):
			return nil
		}
		// For example, too many files are open. Retry: other connections will end.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		t.Handler.Rare.Warn("failed to accept a gRPC connection; more within ten seconds are not logged",
			zap.Error(err))
		select {
		case <-time.After(pause):
		case <-t.stopped:
			return nil
		}
	}
}

func (t *Transport) accept(raw net.Conn) {
	c := newConnection(t, raw)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage != stageServing {
		_ = raw.Close() // it was accepted while the listener was being closed
		return
	}
	t.conns[c] = struct{}{}
	if c.bounded != nil {
		c.bounded.ServedBy(c)
	}
	t.connections.Go(func() {
		c.serve()
		t.mu.Lock()
		delete(t.conns, c)
		t.mu.Unlock()
	})
}

func (t *Transport) snapshotConns() []*connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*connection, 0, len(t.conns))
	for c := range t.conns {
		all = append(all, c)
	}
	return all
}

// advanceTo advances to a later stage, and closes the listener.
func (t *Transport) advanceTo(s stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == stageServing {
		close(t.stopped)
		if t.listener != nil {
			_ = t.listener.Close() // in either case nothing more is accepted
		}
	}
	t.stage = max(t.stage, s)
}

// GracefulStop implements [transport.Transport].
func (t *Transport) GracefulStop() {
	t.advanceTo(stageDraining)
	for _, c := range t.snapshotConns() {
		c.postCommand(commandDrainStop)
	}
	t.wait()
}

// Stop implements [transport.Transport].
func (t *Transport) Stop() {
	t.advanceTo(stageStopped)
	for _, c := range t.snapshotConns() {
		c.closedByUs.Store(true)
		c.close()
	}
	t.wait()
}

// wait waits until all connections have ended.
func (t *Transport) wait() {
	t.connections.Wait()
	t.doneOnce.Do(func() { close(t.done) })
	t.monitoring.Wait()
}

// checksPerYield is how many connections the monitor checks before it yields. A check may start a
// short goroutine that sends a PING. Without yields, the goroutines of all connections that were
// opened together would run at once, and their stacks would remain allocated.
const checksPerYield = 64

func (t *Transport) monitor() {
	tick := time.NewTicker(monitorInterval(&t.Limits))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.done:
			return
		}
		now := t.Handler.Clock.Elapsed()
		for i, c := range t.snapshotConns() {
			c.checkActivity(now)
			if i%checksPerYield == checksPerYield-1 {
				runtime.Gosched()
			}
		}
	}
}

// shared is the state that the connections of a transport share.
type shared struct {
	transport.Config
	bridge      *bridge
	h2          *h2.Server
	buffered    memoryBudget
	storeMemory storeMemory
	stalled     stalledWriters

	lingerTime time.Duration // defaultLingerTime, except in tests
}
