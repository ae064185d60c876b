package cpu

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxHandshakes is the maximum number of TLS handshakes in progress for a client address.
	maxHandshakes = 64
	// maxHandshakeWait is how long a client may take for a handshake while others of its address
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
	hasSlot, waits, done, hurried bool
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
	n, err := c.Conn.Read(p)
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

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	c.task.Pause()
	return c.Conn.Write(p)
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.EndHandshake()
	}
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		c.EndHandshake()
	}
	return c.Conn.SetReadDeadline(t)
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

// hurry bounds the time until the client has sent the rest of its handshake.
func (c *Conn) hurry() {
	if !c.hurried {
		c.hurried = true
		_ = c.Conn.SetReadDeadline(time.Now().Add(maxHandshakeWait)) //nolint:forbidigo // of a socket
	}
}
