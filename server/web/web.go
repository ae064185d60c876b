// Package web bounds the duration, size and origin of HTTP requests, for package server and its
// subpackages.
package web

import (
	"errors"
	"net/http"
	"time"
)

// MaxBody is the maximum size of a request body, in bytes, unless a page has a bound of its own.
const MaxBody = 64 << 10

// WriteTimeout is the time within which a client must read a response.
const WriteTimeout = 10 * time.Second

// SetWriteTimeout sets the time within which the client must read the response.
func SetWriteTimeout(w http.ResponseWriter, d time.Duration) error {
	err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) //nolint:forbidigo // of a socket
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// ReadTimeout is the time within which a client must send a request.
const ReadTimeout = 10 * time.Second

// SetTimeouts sets the time within which the client must send the rest of the request and read the
// response.
func SetTimeouts(w http.ResponseWriter) error {
	err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(ReadTimeout)) //nolint:forbidigo // of a socket
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return SetWriteTimeout(w, WriteTimeout)
}

// PacedBytes is the number of bytes of a long response that a client must read within
// [WriteTimeout].
const PacedBytes = 1 << 20

// PacedWriter writes a response of any length. The client must read each PacedBytes within
// [WriteTimeout].
type PacedWriter struct {
	http.ResponseWriter

	left int // remaining bytes until the deadline is extended
}

// Write implements [io.Writer].
func (p *PacedWriter) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		if p.left == 0 {
			p.left = PacedBytes
			if err := SetWriteTimeout(p.ResponseWriter, WriteTimeout); err != nil {
				return written, err
			}
		}
		var n int
		n, err = p.ResponseWriter.Write(b[:min(len(b), p.left)])
		written += n
		p.left -= n
		b = b[n:]
	}
	return written, err
}
