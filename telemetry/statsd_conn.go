package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// statsdConn is the connection to a StatsD server. A flush opens it if necessary, within the
// flush's deadline.
type statsdConn struct {
	network, addr string
	// plain removes extensions that only DogStatsD understands.
	plain bool
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	conn  net.Conn
	ended <-chan error // gets the error when the server closes the connection or refuses a packet
	err   error        // error that broke the connection since it was last opened
}

func newStatsdConn(network, addr string, plain bool) *statsdConn {
	return &statsdConn{network: network, addr: addr, plain: plain, dial: new(net.Dialer).DialContext}
}

var errNotOpen = errors.New("not connected")

// open opens a connection if there is none. Writes must finish by ctx's deadline. Datagram sockets
// are opened each time, since the address of a name, or the process behind a socket path, may have
// changed. refused is not nil if a packet that was sent before was refused since the last call.
func (c *statsdConn) open(ctx context.Context) (refused, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = nil
	if c.conn != nil {
		var ended error
		select { // without this check, a packet to a server that has gone would be lost
		case ended = <-c.ended:
		default:
		}
		if datagrams := c.network != "tcp"; datagrams || ended != nil {
			c.dropLocked()
			if datagrams {
				refused = ended
			}
		}
	}
	if c.conn == nil {
		conn, err := c.dial(ctx, c.network, c.addr)
		if err != nil {
			return refused, fmt.Errorf("connect: %w", err)
		}
		c.conn = conn
		c.ended = watch(conn)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.conn.SetWriteDeadline(deadline); err != nil {
			c.dropLocked()
			return refused, fmt.Errorf("set a deadline: %w", err)
		}
	}
	return refused, nil
}

// watch returns a channel that gets the error of the connection when the server closes it or refuses
// a packet. Data that the server sends is discarded.
func watch(conn net.Conn) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		ended <- cmp.Or(err, io.EOF)
	}()
	return ended
}

// lastError returns the error that broke the connection since it was opened, or nil.
func (c *statsdConn) lastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *statsdConn) dropLocked() {
	_ = c.conn.Close()
	c.conn = nil
}

// Write sends one packet.
func (c *statsdConn) Write(packet []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return 0, errNotOpen
	}
	out := packet
	if c.plain {
		out = plainLines(packet)
	}
	if _, err := c.conn.Write(out); err != nil {
		c.err = err
		c.dropLocked()
		return 0, err
	}
	return len(packet), nil
}

// Close closes the connection.
func (c *statsdConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	c.dropLocked()
	return nil
}

// plainLines removes, in place, everything after the type of each line. The client appends tags
// there if Datadog's DD_ variables are set, and plain servers reject such lines. Names contain no
// bar.
func plainLines(packet []byte) []byte {
	out := packet[:0]
	for line := range bytes.Lines(packet) {
		text, _ := bytes.CutSuffix(line, []byte{'\n'})
		if first := bytes.IndexByte(text, '|'); first >= 0 {
			if second := bytes.IndexByte(text[first+1:], '|'); second >= 0 {
				text = text[:first+1+second]
			}
		}
		out = append(append(out, text...), '\n')
	}
	return out
}
