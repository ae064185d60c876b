package guard

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// Why a connection is closed.
var (
	errOddActs = errors.New("too many frames that ask for nothing, or streams that had to be reset")
	errParked  = errors.New("it holds the most memory of all connections for requests that are not whole")
	errWindow  = errors.New("it sent more of its requests than their windows allow")
)

// defaultParkedBytes is the default of [Options].ParkedBytes. Twenty-four connections
// with 1024 streams each reach it if all wait at the end of their first window.
const defaultParkedBytes = 96 << 20

// Options configure a [Guard].
type Options struct {
	// ParkedBytes bounds the memory of requests that are on their way, of all connections
	// together. 0 means 96 MiB.
	ParkedBytes int64
	// Reserved returns the bytes of ParkedBytes that are held for other purposes. Optional.
	Reserved func() int64
	// MaxStreams is how many streams a connection may have open.
	MaxStreams int
	// HeaderListBytes is the most that grpc-go decodes of a call's headers, its
	// grpc.MaxHeaderListSize.
	HeaderListBytes int
	// Elapsed reads the clock of [transport.Usage]. Optional: by default it stands still.
	Elapsed func() time.Duration
	// OddActs, Memory and Windows count the connections that were closed, by why.
	OddActs, Memory, Windows prometheus.Counter
	// Logger logs each of them. A client can cause any number of lines, so pass a logger that
	// drops most.
	Logger *zap.Logger
}

// count returns what counts the connections that are closed for that reason.
func (o *Options) count(why error) prometheus.Counter {
	switch {
	case errors.Is(why, errParked):
		return o.Memory
	case errors.Is(why, errWindow):
		return o.Windows
	}
	return o.OddActs
}

// Guard watches the connections of one listener. Its methods may be called
// concurrently.
type Guard struct {
	options Options
	parked  atomic.Int64 // bytes of all connections

	// shedding is locked before the connections' locks, and mu after them.
	shedding sync.Mutex

	mu    sync.Mutex
	conns map[*conn]struct{} // open ones that hold memory, or did once
}

// New returns a guard without connections.
func New(o Options) *Guard {
	if o.ParkedBytes == 0 {
		o.ParkedBytes = defaultParkedBytes
	}
	if o.Elapsed == nil {
		o.Elapsed = func() time.Duration { return 0 }
	}
	return &Guard{options: o, conns: make(map[*conn]struct{})}
}

// Credentials returns creds that guard each connection of their server handshakes.
func (g *Guard) Credentials(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return guarded{creds, g}
}

type guarded struct {
	credentials.TransportCredentials
	guard *Guard
}

// ServerHandshake implements [credentials.TransportCredentials].
func (g guarded) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	guarded := g.guard.wrap(c, time.Now()) //nolint:forbidigo // connections begin when they like
	guarded.raw = raw
	if bounded, ok := raw.(transport.Bounded); ok {
		bounded.ServedBy(guarded)
	}
	return guarded, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (g guarded) Clone() credentials.TransportCredentials {
	g.TransportCredentials = g.TransportCredentials.Clone()
	return g
}

// add takes in a connection that holds memory.
func (g *Guard) add(c *conn) {
	g.mu.Lock()
	g.conns[c] = struct{}{}
	g.mu.Unlock()
}

// remove forgets a connection that is closed.
func (g *Guard) remove(c *conn) {
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
}

// full reports whether the connections hold more than they may.
func (g *Guard) full() bool {
	most := g.options.ParkedBytes
	if g.options.Reserved != nil {
		most -= g.options.Reserved()
	}
	return g.parked.Load() > most
}

// shed closes the connections that hold the most until the others together hold no more than is
// allowed. The caller must hold no lock.
func (g *Guard) shed() {
	for g.full() {
		worst := g.leaveWorst()
		if worst == nil {
			return // others have done it
		}
		worst.shut(errParked)
	}
}

// leaveWorst marks the connection that holds the most as ended and returns it, for its caller to
// shut. It returns nil if nothing is to be closed.
func (g *Guard) leaveWorst() *conn {
	// Of two goroutines, the second must see what the first has freed. Otherwise it would close
	// one connection more than is needed.
	g.shedding.Lock()
	defer g.shedding.Unlock()
	for g.full() {
		worst := g.worst()
		if worst == nil || worst.leave(errParked) {
			return worst
		}
	}
	return nil
}

// worst removes the connection that holds the most and returns it, or nil if there is none.
func (g *Guard) worst() *conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	var worst *conn
	for c := range g.conns {
		if worst == nil || c.holds.Load() > worst.holds.Load() {
			worst = c
		}
	}
	delete(g.conns, worst)
	return worst
}
