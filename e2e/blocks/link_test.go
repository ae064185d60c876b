package blocks_test

import (
	"net"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// link is a TCP proxy between a sluice and the store. It is safe for concurrent use.
type link struct {
	addr  string
	store string

	mu      sync.Mutex
	changed *sync.Cond
	stalled bool
	closed  bool
	conns   map[net.Conn]bool
	all     sync.WaitGroup
}

// startLink starts a proxy in front of the store and closes it when the test ends.
func startLink(t *testing.T, store string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	l := &link{addr: listener.Addr().String(), store: store, conns: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	l.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.all.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.stall(false)
		l.cut()
		l.all.Wait()
	})
	return l
}

func (l *link) serve(client net.Conn) {
	server, err := net.Dial("tcp", l.store)
	if err != nil {
		_ = client.Close()
		return
	}
	l.mu.Lock()
	l.conns[client], l.conns[server] = true, true
	closed := l.closed
	l.mu.Unlock()
	if closed {
		l.cut()
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client) })
	both.Go(func() { l.copy(client, server) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range []net.Conn{client, server} {
		delete(l.conns, conn)
	}
}

// copy copies until one side is closed, and closes the other.
func (l *link) copy(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			l.pass()
			if _, bad := to.Write(buf[:n]); bad != nil {
				err = bad
			}
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// pass waits while the link is stalled.
func (l *link) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.stalled {
		l.changed.Wait()
	}
}

// stall delays all data until it is called with false.
func (l *link) stall(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = on
	l.changed.Broadcast()
}

// cut closes all connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Close()
	}
}
