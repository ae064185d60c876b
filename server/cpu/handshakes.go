package cpu

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection that begins with a TLS handshake, which has a task while it does not wait for
// its client. The handshake ends when a read deadline is exceeded, or is removed as servers do after
// it, or by [Conn.EndHandshake].
type Conn struct {
	net.Conn

	task  *Task
	ended atomic.Bool

	mu       sync.Mutex
	deadline *time.Timer // optional
}

// NewConn returns the connection of a client.
func (t *Tokens) NewConn(conn net.Conn, address netip.Addr) *Conn {
	return &Conn{Conn: conn, task: t.NewTask(Source{Handshake, address})}
}

// Read implements [net.Conn]. After it, the handshake has a token until its next read or write.
func (c *Conn) Read(p []byte) (int, error) {
	if c.ended.Load() {
		return c.Conn.Read(p)
	}
	c.task.Pause()
	n, err := c.Conn.Read(p)
	if n > 0 && !c.task.Resume() {
		return 0, os.ErrDeadlineExceeded
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
	c.setReadDeadline(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.setReadDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *Conn) setReadDeadline(t time.Time) {
	if t.IsZero() {
		c.EndHandshake()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
	c.deadline = nil
	if !c.ended.Load() {
		c.deadline = time.AfterFunc(time.Until(t), c.EndHandshake)
	}
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

// EndHandshake ends the handshake, also while it waits for a token. It may be called concurrently.
func (c *Conn) EndHandshake() {
	if c.ended.Swap(true) {
		return
	}
	c.task.End()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.EndHandshake()
	return c.Conn.Close()
}
