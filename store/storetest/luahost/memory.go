package luahost

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// A Memory is a [net.Listener] whose connections are made in memory, for tests in simulated time.
// Accept returns an error after the channel was closed.
type Memory chan net.Conn

// Accept implements [net.Listener].
func (m Memory) Accept() (net.Conn, error) {
	if c, ok := <-m; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements [net.Listener]. It does nothing.
func (Memory) Close() error { return nil }

// Addr implements [net.Listener].
func (Memory) Addr() net.Addr { return &net.TCPAddr{} }

// Dial returns a connection to the listener. Data that is written to it arrives after a delay.
func (m Memory) Dial(delay time.Duration) *SlowConn {
	mine, theirs := net.Pipe()
	m <- theirs
	c := &SlowConn{Conn: mine, delay: delay, queue: make(chan delayedData, 1<<14), closed: make(chan struct{})}
	go c.run()
	return c
}

// A SlowConn is a connection that delivers data which is written to it after a delay.
type SlowConn struct {
	net.Conn

	delay  time.Duration
	queue  chan delayedData
	closed chan struct{}
	close  sync.Once
}

type delayedData struct {
	at   time.Time
	data []byte
}

func (c *SlowConn) run() {
	for {
		select {
		case d := <-c.queue:
			select {
			case <-time.After(time.Until(d.at)):
				_, _ = c.Conn.Write(d.data) // fails if it was closed
			case <-c.closed:
				return
			}
		case <-c.closed:
			return
		}
	}
}

// Write implements [net.Conn].
func (c *SlowConn) Write(b []byte) (int, error) {
	select {
	case c.queue <- delayedData{time.Now().Add(c.delay), bytes.Clone(b)}: //nolint:forbidigo // the clock of a bubble
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Close implements [net.Conn].
func (c *SlowConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
