package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// outlet is the connection to a StatsD server. A flush opens it if there is none, and
// never waits longer for it than the flush may take.
type outlet struct {
	network, addr string
	// plain strips what only DogStatsD understands.
	plain bool
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	conn net.Conn
	err  error // that broke the connection since it was last opened
}

func newOutlet(network, addr string, plain bool) *outlet {
	return &outlet{network: network, addr: addr, plain: plain, dial: new(net.Dialer).DialContext}
}

var errNotOpen = errors.New("not connected")

// open makes sure that there is a connection, which must be done with by ctx's
// deadline. Datagrams have a new one each time: nothing says that a name has another address by now, or that another
// process has the socket of a path. Refused is not nil if a packet was refused since the last call, after it had been sent.
func (o *outlet) open(ctx context.Context) (refused, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
	if o.conn != nil {
		ended := connError(o.conn)
		if datagrams := o.network != "tcp"; datagrams || ended != nil {
			o.dropLocked()
			if datagrams {
				refused = ended
			}
		}
	}
	if o.conn == nil {
		conn, err := o.dial(ctx, o.network, o.addr)
		if err != nil {
			return refused, fmt.Errorf("connect: %w", err)
		}
		o.conn = conn
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := o.conn.SetDeadline(deadline); err != nil {
			o.dropLocked()
			return refused, fmt.Errorf("set a deadline: %w", err)
		}
	}
	return refused, nil
}

// connError returns why a connection can no longer be used: the other side closed it, or a packet was refused. Without this
// the first packet after that would be lost. What the other side sent is dropped.
func connError(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil { //nolint:forbidigo // deadlines of connections are wall time
		return err
	}
	switch _, err := io.Copy(io.Discard, conn); {
	case err == nil:
		return io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	default:
		return err
	}
}

// broken returns why the connection broke since it was opened, or nil.
func (o *outlet) broken() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *outlet) dropLocked() {
	_ = o.conn.Close()
	o.conn = nil
}

// Write sends one packet.
func (o *outlet) Write(packet []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn == nil {
		return 0, errNotOpen
	}
	out := packet
	if o.plain {
		out = plainLines(packet)
	}
	if _, err := o.conn.Write(out); err != nil {
		o.err = err
		o.dropLocked()
		return 0, err
	}
	return len(packet), nil
}

// Close closes the connection.
func (o *outlet) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn == nil {
		return nil
	}
	o.dropLocked()
	return nil
}

// plainLines strips, in place, all after the type of each line. The client adds tags
// there if Datadog's DD_ variables are set, and plain servers reject such lines. Names
// hold no bar.
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
