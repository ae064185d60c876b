package cpu

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxHandshakes is the maximum number of TLS handshakes in progress for a client address.
	maxHandshakes = 64
	// maxHandshakeWait is how long a handshake may wait for its client while others of its address
	// wait, and maxSlotWait how long these wait.
	maxHandshakeWait = time.Second
	maxSlotWait      = 5 * time.Second
)

// Handshakes are the TLS handshakes of a process. Each has a task while it does not wait for its
// client. A client address has at most 64 in progress; further ones wait. Its methods may be called
// concurrently.
type Handshakes struct {
	tokens *Tokens

	mu        sync.Mutex
	byAddress map[netip.Addr]*slots
}

// slots are the handshakes of a client address.
type slots struct{ open, waiting []*Conn }

// NewHandshakes returns handshakes that use the given tokens.
func NewHandshakes(t *Tokens) *Handshakes {
	return &Handshakes{tokens: t, byAddress: map[netip.Addr]*slots{}}
}

// Conn is a connection that begins with a handshake. The handshake ends when a read deadline is
// removed, as servers do after it, or by [Conn.EndHandshake].
type Conn struct {
	net.Conn

	handshakes *Handshakes
	address    netip.Addr
	task       *Task
	ended      atomic.Bool
	granted    chan struct{} // is closed when the connection gets a slot, or loses its turn

	// Protected by handshakes.mu.
	hasSlot, waits, done bool
	reading              bool      // waits for the client
	deadline             time.Time // for reads, set by the server
	hurried              bool
	left                 time.Duration // for further waits for the client, once hurried
	boundAt              time.Time     // when the current read was bound
}

// NewConn returns the connection of a client.
func (h *Handshakes) NewConn(conn net.Conn, address netip.Addr) *Conn {
	return &Conn{Conn: conn, handshakes: h, address: address, task: h.tokens.NewTask(Source{Handshake, address}), granted: make(chan struct{})}
}

// Read implements [net.Conn]. After it, the handshake has a token until its next read or write.
func (c *Conn) Read(p []byte) (int, error) {
	if c.ended.Load() {
		return c.Conn.Read(p)
	}
	c.task.Pause()
	n, err := c.readBounded(p)
	if n == 0 {
		return n, err
	}
	if !c.handshakes.acquire(c) && !c.ended.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	c.task.Resume()
	if c.ended.Load() { // closed meanwhile
		c.task.Pause()
	}
	return n, err
}

// readBounded reads. If the handshake is hurried, the time until the client has sent something counts.
func (c *Conn) readBounded(p []byte) (int, error) {
	h := c.handshakes
	h.mu.Lock()
	if c.reading = true; c.hurried && c.hasSlot {
		c.bound()
	}
	h.mu.Unlock()
	n, err := c.Conn.Read(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.reading = false; c.hurried {
		c.left -= time.Since(c.boundAt)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	c.task.Pause()
	return c.Conn.Write(p)
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	c.noteReadDeadline(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.noteReadDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *Conn) noteReadDeadline(t time.Time) {
	if t.IsZero() {
		c.EndHandshake()
	}
	c.handshakes.mu.Lock()
	defer c.handshakes.mu.Unlock()
	c.deadline = t
}

// SyscallConn implements [syscall.Conn]. Writes pause the task, as [Conn.Write] does.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	file, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := file.SyscallConn()
	return rawConn{raw, c.task}, err
}

type rawConn struct {
	syscall.RawConn

	task *Task
}

// Write implements [syscall.RawConn].
func (r rawConn) Write(f func(fd uintptr) (done bool)) error {
	r.task.Pause()
	return r.RawConn.Write(f)
}

// EndHandshake ends the handshake. It may be called concurrently.
func (c *Conn) EndHandshake() {
	if c.ended.Swap(true) {
		return
	}
	c.task.Pause()
	c.handshakes.release(c)
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.EndHandshake()
	return c.Conn.Close()
}

// acquire waits for a slot of the client address, unless c has one. It reports whether c has one.
func (h *Handshakes) acquire(c *Conn) bool {
	h.mu.Lock()
	if c.hasSlot || c.done {
		defer h.mu.Unlock()
		return c.hasSlot
	}
	a := h.byAddress[c.address]
	if a == nil {
		a = &slots{}
		h.byAddress[c.address] = a
	}
	if len(a.open) < maxHandshakes {
		defer h.mu.Unlock()
		a.admit(c)
		return true
	}
	c.waits = true
	a.waiting = append(a.waiting, c)
	for _, open := range a.open {
		open.hurry()
	}
	h.mu.Unlock()
	timeout := time.NewTimer(maxSlotWait)
	defer timeout.Stop()
	select {
	case <-c.granted:
	case <-timeout.C:
		h.release(c)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return c.hasSlot
}

// release ends the use of a slot, or the wait for one, for good.
func (h *Handshakes) release(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.byAddress[c.address]
	c.done = true
	switch {
	case c.waits:
		c.waits = false
		a.waiting = slices.DeleteFunc(a.waiting, func(other *Conn) bool { return other == c })
		close(c.granted)
	case c.hasSlot:
		c.hasSlot = false
		a.open = slices.DeleteFunc(a.open, func(other *Conn) bool { return other == c })
		if len(a.waiting) > 0 {
			next := a.waiting[0]
			a.waiting = a.waiting[1:]
			next.waits = false
			a.admit(next)
			close(next.granted)
		}
		if len(a.waiting) > 0 {
			a.open[len(a.open)-1].hurry()
		}
		if len(a.open) == 0 {
			delete(h.byAddress, c.address)
		}
	}
}

// admit gives c a slot.
func (a *slots) admit(c *Conn) {
	c.hasSlot = true
	a.open = append(a.open, c)
}

// hurry bounds the time that the handshake waits for its client. The time that it waits for a token
// does not count: a server with much to do would otherwise end all handshakes that are in progress.
func (c *Conn) hurry() {
	if c.hurried {
		return
	}
	c.hurried, c.left = true, maxHandshakeWait
	if c.reading {
		c.bound()
	}
}

// bound bounds the current read.
func (c *Conn) bound() {
	c.boundAt = time.Now() //nolint:forbidigo // of a socket
	deadline := c.boundAt.Add(c.left)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	_ = c.Conn.SetReadDeadline(deadline)
}
