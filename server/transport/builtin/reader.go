package builtin

import (
	"net"
	"sync"
	"syscall"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// readBytes is what a read takes at once. A frame fits.
const readBytes = 32 << 10

var readBuffers = sync.Pool{New: func() any { return new([readBytes]byte) }}

var _ [readBytes - h2.MaxFrame]struct{} // a frame fits

// reader reads a connection. While it waits it holds no buffer, only what has come of a frame: a
// connection that is idle costs little.
type reader struct {
	conn net.Conn
	raw  syscall.RawConn // nil: conn is no file
	try  func(fd uintptr) bool

	buffer *[readBytes]byte // nil while it waits
	rest   []byte           // the beginning of a frame, while there is no buffer
	have   int              // bytes in buffer
	got    int              // bytes that the last read brought
	err    error
}

// newReader returns a reader of conn, which is raw, or TLS over it. What is over TLS must be read
// through it, though it has the file of what is below.
func newReader(conn, raw net.Conn) *reader {
	r := &reader{conn: conn}
	if file, ok := raw.(syscall.Conn); ok && conn == raw && canTry {
		if raw, err := file.SyscallConn(); err == nil {
			r.raw, r.try = raw, r.tryRead
		}
	}
	return r
}

// read returns what has come and not been used, with more of it than before. It is valid until keep.
func (r *reader) read() ([]byte, error) {
	if r.raw != nil {
		if err := r.raw.Read(r.try); err != nil {
			return nil, err
		}
		if r.err != nil {
			return nil, r.err
		}
		return r.buffer[:r.have], nil
	}
	r.take()
	n, err := r.conn.Read(r.buffer[r.have:])
	r.got = n
	if r.have += n; n == 0 {
		return nil, err // conn never returns 0 without one
	}
	return r.buffer[:r.have], nil
}

// tryRead reads without waiting. It returns false if there is nothing to read, after which the caller
// waits until there is, with no buffer taken. It must try each time it is called: the poller forgets
// what it knew when a RawConn's Read begins.
func (r *reader) tryRead(fd uintptr) bool {
	r.take()
	n, err := tryRead(fd, r.buffer[r.have:])
	if n == 0 && err == nil {
		r.release()
		return false
	}
	r.have, r.err = r.have+n, err
	return true
}

// keep keeps the rest of what read returned until the next read. It reports whether the last read
// filled the buffer, so that more is to be expected.
func (r *reader) keep(rest []byte) (full bool) {
	full = r.have == readBytes
	r.rest = append(r.rest[:0], rest...)
	if len(rest) == 0 {
		r.rest = nil
	}
	r.release()
	return full
}

// take takes a buffer and puts the rest into it.
func (r *reader) take() {
	r.buffer, _ = readBuffers.Get().(*[readBytes]byte)
	r.have = copy(r.buffer[:], r.rest)
}

// release gives the buffer back.
func (r *reader) release() {
	if r.buffer != nil {
		readBuffers.Put(r.buffer)
		r.buffer = nil
	}
}
