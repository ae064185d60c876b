package builtin

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// socket is a client's socket, below TLS if there is TLS. It tells when a write has to wait for
// the client.
type socket struct {
	net.Conn
	raw syscall.RawConn // nil: it cannot tell
	// stalls is called when a write begins to wait, at most once for each write, and flows at the end
	// of such a write.
	stalls, flows func()

	// Of the write that goes on; and tryWrite, bound once.
	rest  []byte
	waits bool
	err   error
	try   func(fd uintptr) (done bool)
}

func newSocket(conn net.Conn, stalls, flows func()) *socket {
	s := &socket{Conn: conn, stalls: stalls, flows: flows}
	if file, ok := conn.(syscall.Conn); ok && canTry {
		if raw, err := file.SyscallConn(); err == nil {
			s.raw, s.try = raw, s.tryWrite
		}
	}
	return s
}

// SyscallConn lets a connection read without a buffer of its own.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	if s.raw == nil {
		return nil, errors.ErrUnsupported
	}
	return s.raw, nil
}

// CloseWrite is that of the socket.
func (s *socket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// Write implements [net.Conn]. It is called by one goroutine at a time: in a turn, or by TLS, which has
// a lock. By TLS a reader writes too, to answer what is TLS's own, and that may be beside a turn.
func (s *socket) Write(p []byte) (n int, err error) {
	if s.raw == nil {
		return s.Conn.Write(p)
	}
	s.rest, s.waits, s.err = p, false, nil
	err = s.raw.Write(s.try)
	if err == nil {
		err = s.err
	}
	if s.waits {
		s.flows()
	}
	n = len(p) - len(s.rest)
	s.rest = nil
	return n, err
}

// tryWrite writes what it can without waiting, and reports whether that is all.
func (s *socket) tryWrite(fd uintptr) (done bool) {
	n, err := tryWrite(fd, s.rest)
	s.rest, s.err = s.rest[n:], err
	if err != nil || len(s.rest) == 0 {
		return true
	}
	if !s.waits {
		s.waits = true
		s.stalls()
	}
	return false
}

// mostStalled is how many connections may wait for their clients to read. Each holds what it writes,
// and what it has read meanwhile.
const mostStalled = 256

// stalled are the connections that wait for their clients to read, in the order in which they began to.
// A client that reads nothing costs memory until it is closed, after mostWriteTime. So if there are too
// many, the one that has waited for longest is closed now.
type stalled struct {
	mu    sync.Mutex
	conns []ender
}

// ender is a connection that can be closed because of what its client did.
type ender interface{ closeWith(why error) }

func (s *stalled) enter(c ender) {
	var longest ender
	s.mu.Lock()
	if s.conns = append(s.conns, c); len(s.conns) > mostStalled {
		longest = s.conns[0]
		s.conns = append(s.conns[:0], s.conns[1:]...)
	}
	s.mu.Unlock()
	if longest != nil {
		longest.closeWith(errUnread)
	}
}

func (s *stalled) leave(c ender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.conns {
		if other == c {
			s.conns = append(s.conns[:i], s.conns[i+1:]...)
			return
		}
	}
}
