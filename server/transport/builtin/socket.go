package builtin

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// socket is a client's socket, below TLS if there is TLS. It reports when a write has to wait for
// the client.
type socket struct {
	net.Conn
	raw syscall.RawConn // nil if it cannot report that
	// onStall is called when a write begins to wait, at most once per write, and onResume at the
	// end of such a write.
	onStall, onResume func()

	// The state of the current write. tryFunc is tryWrite, bound once.
	rest    []byte
	stalled bool
	err     error
	tryFunc func(fd uintptr) (done bool)
}

func newSocket(conn net.Conn, onStall, onResume func()) *socket {
	s := &socket{Conn: conn, onStall: onStall, onResume: onResume}
	if file, ok := conn.(syscall.Conn); ok && canTry {
		if raw, err := file.SyscallConn(); err == nil {
			s.raw = raw
			s.tryFunc = s.tryWrite
		}
	}
	return s
}

// SyscallConn lets reader wait without a buffer.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	if s.raw == nil {
		return nil, errors.ErrUnsupported
	}
	return s.raw, nil
}

// CloseWrite closes the sending side.
func (s *socket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// Write implements [net.Conn]. It is called by one goroutine at a time: in a batch, or by TLS,
// which has a lock. With TLS, a reader also writes, concurrently with a batch, to answer messages
// of the TLS protocol.
func (s *socket) Write(p []byte) (n int, err error) {
	if s.raw == nil {
		return s.Conn.Write(p)
	}
	s.rest = p
	s.stalled = false
	s.err = nil
	err = s.raw.Write(s.tryFunc)
	if err == nil {
		err = s.err
	}
	if s.stalled {
		s.onResume()
	}
	n = len(p) - len(s.rest)
	s.rest = nil
	return n, err
}

// tryWrite writes without blocking, and reports whether it is done.
func (s *socket) tryWrite(fd uintptr) (done bool) {
	n, err := tryWrite(fd, s.rest)
	s.rest = s.rest[n:]
	s.err = err
	if err != nil || len(s.rest) == 0 {
		return true
	}
	if !s.stalled {
		s.stalled = true
		s.onStall()
	}
	return false
}

// maxStalled is how many connections may wait for their clients to read. Each has output, and input
// received meanwhile, in memory.
const maxStalled = 256

// stalledWriters lists the connections that wait for their clients to read, the oldest-waiting
// first. A client that does not read costs memory until its connection is closed after
// maxWriteTime. If there are too many, the first is closed at once.
type stalledWriters struct {
	mu    sync.Mutex
	conns []errorCloser
}

// errorCloser is a connection.
type errorCloser interface{ closeWithError(err error) }

func (s *stalledWriters) add(c errorCloser) {
	var oldest errorCloser
	s.mu.Lock()
	if s.conns = append(s.conns, c); len(s.conns) > maxStalled {
		oldest = s.conns[0]
		s.conns = append(s.conns[:0], s.conns[1:]...)
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.closeWithError(errWriteTimeout)
	}
}

func (s *stalledWriters) remove(c errorCloser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.conns {
		if other == c {
			s.conns = append(s.conns[:i], s.conns[i+1:]...)
			return
		}
	}
}
