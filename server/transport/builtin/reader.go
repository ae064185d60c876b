package builtin

import (
	"net"
	"sync"
	"syscall"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// readBytes is the size of a read buffer.
const readBytes = 32 << 10

var readBuffers = sync.Pool{New: func() any { return new([readBytes]byte) }}

var _ [readBytes - h2.MaxFrame]struct{} // a frame fits into the buffer

// reader reads from a connection. While it waits it has no buffer, only the bytes of an incomplete
// frame, so that an idle connection costs little.
type reader struct {
	conn    net.Conn
	raw     syscall.RawConn // nil if conn has no file descriptor that can be polled
	tryFunc func(fd uintptr) bool

	buffer   *[readBytes]byte // nil while waiting
	rest     []byte           // an incomplete frame, while there is no buffer
	buffered int              // number of bytes in buffer
	err      error
}

// newReader returns a reader of conn, which is raw, or TLS over raw. With TLS, conn must not be
// read through raw's file.
func newReader(conn, raw net.Conn) *reader {
	r := &reader{conn: conn}
	if file, ok := raw.(syscall.Conn); ok && conn == raw && canTry {
		if raw, err := file.SyscallConn(); err == nil {
			r.raw = raw
			r.tryFunc = r.tryRead
		}
	}
	return r
}

// read waits for input, and returns it together with the bytes that keepRest stored. The result is
// valid until keepRest is called.
func (r *reader) read() ([]byte, error) {
	if r.raw != nil {
		if err := r.raw.Read(r.tryFunc); err != nil {
			return nil, err
		}
		if r.err != nil {
			return nil, r.err
		}
		return r.buffer[:r.buffered], nil
	}
	r.acquireBuffer()
	n, err := r.conn.Read(r.buffer[r.buffered:])
	r.buffered += n
	if n == 0 {
		return nil, err // conn never returns 0 without an error
	}
	return r.buffer[:r.buffered], nil
}

// tryRead reads without blocking. It returns false if there is nothing to read; then RawConn.Read
// waits for input, while no buffer is allocated. It must call read(2) each time, since RawConn.Read
// resets the poller's readiness at its beginning.
func (r *reader) tryRead(fd uintptr) bool {
	r.acquireBuffer()
	n, err := tryRead(fd, r.buffer[r.buffered:])
	if n == 0 && err == nil {
		r.releaseBuffer()
		return false
	}
	r.buffered += n
	r.err = err
	return true
}

// keepRest stores the rest of read's result until the next read, and releases the buffer. It
// reports whether the last read filled the buffer, in which case more input is likely.
func (r *reader) keepRest(rest []byte) (full bool) {
	full = r.buffered == readBytes
	r.rest = append(r.rest[:0], rest...)
	if len(rest) == 0 {
		r.rest = nil
	}
	r.releaseBuffer()
	return full
}

// acquireBuffer gets a buffer and copies the rest into it.
func (r *reader) acquireBuffer() {
	r.buffer, _ = readBuffers.Get().(*[readBytes]byte)
	r.buffered = copy(r.buffer[:], r.rest)
}

func (r *reader) releaseBuffer() {
	if r.buffer != nil {
		readBuffers.Put(r.buffer)
		r.buffer = nil
	}
}
