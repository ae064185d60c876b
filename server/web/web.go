// Package web bounds the time, the size and the origin of requests over HTTP, for package server and its subpackages.
package web

import (
	"errors"
	"net/http"
	"time"
)

// MaxBody is the largest body of a request, in bytes, unless its page has a bound of its own.
const MaxBody = 64 << 10

// WriteTime is the time that a client has to read a response.
const WriteTime = 10 * time.Second

// AllowTime sets the time that a client has to read the response.
func AllowTime(w http.ResponseWriter, d time.Duration) error {
	err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) //nolint:forbidigo // of a socket
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// PacedPart is the number of bytes of a long response that a client has [WriteTime] to read.
const PacedPart = 1 << 20

// Paced writes a response of any length, such as a table, to a client that may take as long as it reads each part in time.
type Paced struct {
	http.ResponseWriter

	left int // number of bytes in the part that is being written
}

// Write implements [io.Writer].
func (p *Paced) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		if p.left == 0 {
			p.left = PacedPart
			if err := AllowTime(p.ResponseWriter, WriteTime); err != nil {
				return written, err
			}
		}
		var n int
		n, err = p.ResponseWriter.Write(b[:min(len(b), p.left)])
		written, p.left, b = written+n, p.left-n, b[n:]
	}
	return written, err
}
