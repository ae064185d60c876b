package own

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/h2"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// Transport answers gRPC by package h2: each connection has a goroutine that reads, answers and writes.
type Transport struct {
	transport.Config
	bridge *bridge
	h2     *h2.Server

	mu       sync.Mutex
	listener net.Listener
	conns    map[*connection]struct{}
	stage    stage
	stopped  chan struct{} // closed when it stops to accept

	ended    sync.WaitGroup // of the connections
	over     chan struct{}  // closed when they have ended
	ending   sync.Once
	watching sync.WaitGroup

	parked   atomic.Int64 // bytes that the connections hold; see connection.parks
	shedding sync.Mutex

	crowd   chan struct{} // holds the tickets that are taken; see takeTurn
	stalled stalled
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
	return &Transport{
		Config: c, bridge: b,
		h2: h2.NewServer(h2.Options{
			Limits: h2.Limits{
				MaxStreams:      int(c.Limits.MaxStreams),
				MaxHeaderBytes:  int(c.Limits.MaxHeaderBytes),
				MaxMessageBytes: c.Limits.MaxMessageBytes,
				PingInterval:    c.Limits.KeepaliveMinTime,
			},
			Methods:   b.h2Methods(),
			Encodings: []string{transport.Gzip},
		}),
		conns:   make(map[*connection]struct{}),
		stopped: make(chan struct{}), over: make(chan struct{}),
		crowd: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
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
	w.mu.Unlock()
	w.watching.Go(w.watch)
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
	w.ended.Go(c.serve)
}

func (w *Transport) forget(c *connection) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
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
