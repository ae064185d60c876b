package builtin

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// Transport answers gRPC by package h2: each connection has a goroutine that reads, answers and writes.
type Transport struct {
	shared

	mu       sync.Mutex
	listener net.Listener
	conns    map[*connection]struct{}
	stage    stage
	stopped  chan struct{} // closed when it stops to accept

	ended    sync.WaitGroup // of the connections
	over     chan struct{}  // closed when they have ended
	ending   sync.Once
	watching sync.WaitGroup
}

// stage only grows.
type stage byte

const (
	stageServes stage = iota
	stageDrains
	stageStopped
)

// New returns a transport.
func New(c transport.Config) *Transport {
	b := newBridge(&c)
	t := &Transport{
		shared: shared{
			Config: c, bridge: b, crowd: make(chan struct{}, runtime.GOMAXPROCS(0)), lingering: mostLingering,
			h2: h2.NewServer(h2.Options{
				Limits: h2.Limits{
					MaxStreams:      int(c.Limits.MaxStreams),
					MaxHeaderBytes:  int(c.Limits.MaxHeaderBytes),
					MaxMessageBytes: c.Limits.MaxMessageBytes,
					PingInterval:    c.Limits.KeepaliveMinTime,
				},
				Methods:   b.h2Methods(),
				Encodings: []string{gzipEncoding},
			}),
		},
		conns:   make(map[*connection]struct{}),
		stopped: make(chan struct{}), over: make(chan struct{}),
	}
	t.parked.reserved = c.Quotas.MemoryBytes
	t.parked.all = func() []*share {
		var shares []*share
		for _, c := range t.all() {
			shares = append(shares, &c.parked)
		}
		return shares
	}
	return t
}

// newConnection returns a connection that is not served yet.
func newConnection(t *Transport, raw net.Conn) *connection {
	now := t.Handler.Clock.Elapsed()
	c := &connection{shared: &t.shared, returned: make(chan struct{}, 1)}
	c.raw = newSocket(raw, c.stalls, c.flows)
	c.h2 = t.h2.NewConn((*calls)(c), now)
	c.watched.begin(now, t.Limits.MaxConnectionAge)
	c.inbox.flush, c.parked.end = c.flush, c.closeWith
	return c
}

// Serve implements [Transport].
func (w *Transport) Serve(l net.Listener) error {
	w.mu.Lock()
	if w.stage != stageServes {
		w.mu.Unlock()
		_ = l.Close() // as grpc-go does: the file of a socket would stay
		return grpc.ErrServerStopped
	}
	w.listener = l
	w.watching.Go(w.watch) // below the lock: a stop that comes now waits for it
	w.mu.Unlock()
	for pause := time.Duration(0); ; {
		raw, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			w.accept(raw)
			continue
		case errors.Is(err, net.ErrClosed):
			return nil
		}
		// Too many open files, for example. Others end in time.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		w.Handler.Rare.Warn("accept a grpc connection; more within ten seconds are not logged", zap.Error(err))
		select {
		case <-time.After(pause):
		case <-w.stopped:
			return nil
		}
	}
}

// accept starts the goroutine of a connection.
func (w *Transport) accept(raw net.Conn) {
	c := newConnection(w, raw)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage != stageServes {
		_ = raw.Close() // it came while the listener was closed
		return
	}
	w.conns[c] = struct{}{}
	if bounded, ok := raw.(transport.Bounded); ok {
		bounded.ServedBy(c)
	}
	w.ended.Go(func() {
		c.serve()
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
	})
}

// all returns the connections there are.
func (w *Transport) all() []*connection {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*connection, 0, len(w.conns))
	for c := range w.conns {
		all = append(all, c)
	}
	return all
}

// enter goes to a later stage, and closes the listener.
func (w *Transport) enter(s stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage == stageServes {
		close(w.stopped)
		if w.listener != nil {
			_ = w.listener.Close() // nothing more is accepted in either case
		}
	}
	w.stage = max(w.stage, s)
}

// GracefulStop implements [Transport].
func (w *Transport) GracefulStop() {
	w.enter(stageDrains)
	for _, c := range w.all() {
		c.order(orderStop)
	}
	w.wait()
}

// Stop implements [Transport].
func (w *Transport) Stop() {
	w.enter(stageStopped)
	for _, c := range w.all() {
		c.ours.Store(true)
		c.close()
	}
	w.wait()
}

// wait waits for the connections' ends.
func (w *Transport) wait() {
	w.ended.Wait()
	w.ending.Do(func() { close(w.over) })
	w.watching.Wait()
}

// watchedAtOnce is how many connections the watch looks at before others may run. An order takes a
// goroutine for a moment. Connections that began together are pinged together, and the memory of as many
// goroutines would stay.
const watchedAtOnce = 64

// watch looks at all connections now and then.
func (w *Transport) watch() {
	tick := time.NewTicker(watchEvery(&w.Limits))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.over:
			return
		}
		now := w.Handler.Clock.Elapsed()
		for i, c := range w.all() {
			c.watch(now)
			if i%watchedAtOnce == watchedAtOnce-1 {
				runtime.Gosched()
			}
		}
	}
}
