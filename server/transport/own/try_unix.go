//go:build unix

package own

import (
	"io"
	"syscall"
)

const canTry = true

// tryRead reads without waiting. It returns false if there is nothing to read, after which the caller
// waits until there is, with no buffer taken. It must try each time it is called: the poller forgets
// what it knew when a RawConn's Read begins.
func (r *reader) tryRead(fd uintptr) bool {
	r.take()
	for {
		n, err := syscall.Read(int(fd), r.buffer[r.have:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			r.release()
			return false
		case err != nil:
			r.err = err
		case n == 0:
			r.err = io.EOF
		default:
			r.have += n
		}
		return true
	}
}

// tryWrite writes what it can without waiting.
func tryWrite(fd uintptr, p []byte) (n int, err error) {
	for n < len(p) {
		more, err := syscall.Write(int(fd), p[n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return n, nil
		case err != nil:
			return n, err
		}
		n += more
	}
	return n, nil
}
