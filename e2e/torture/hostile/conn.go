package hostile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// defaultWindow is the number of bytes that may be sent on a stream before the server's SETTINGS.
const defaultWindow = 65535

// ConnOptions configures a connection.
type ConnOptions struct {
	// Settings contains the client's initial SETTINGS.
	Settings []http2.Setting
	// NeverRead disables reading.
	NeverRead bool
	// IgnorePings disables answers to PINGs.
	IgnorePings bool
	// ReadEvery, if not 0, is the interval between reads of one byte.
	ReadEvery time.Duration
}

// Conn is an HTTP/2 connection that can send arbitrary bytes. One goroutine may send; the other
// methods are safe for concurrent use.
type Conn struct {
	net.Conn

	manners ConnOptions
	// writeMu protects out. It is a channel, so that waiting for it does not stop the time of a
	// bubble of testing/synctest. The reader answers a PING only if it can lock writeMu
	// immediately, otherwise it leaves the answer in pongs for the writer. Waiting could cause a
	// deadlock: the writer waits for the server to read, and the server for our reader.
	writeMu mutex
	out     *bufio.Writer
	pongs   atomic.Pointer[[8]byte]
	sent    atomic.Int64

	// ended is closed when the server has closed the connection.
	ended chan struct{}
	// greeted is closed when the server's first SETTINGS are received.
	greeted chan struct{}
	greet   sync.Once
	// window is the server's initial window size of a stream.
	window atomic.Int64

	mu      sync.Mutex
	replies Replies
}

// mutex is a mutual exclusion lock; create one with make(mutex, 1).
type mutex chan struct{}

func (m mutex) Lock()   { m <- struct{}{} }
func (m mutex) Unlock() { <-m }

// TryLock reports whether it has locked m.
func (m mutex) TryLock() bool {
	select {
	case m <- struct{}{}:
		return true
	default:
		return false
	}
}

// Replies summarises the frames received from a server.
type Replies struct {
	// Resets counts RST_STREAM by error code.
	Resets map[string]int
	// Statuses counts replies by grpc-status, "" if it is missing.
	Statuses map[string]int
	// GoAway contains the error code and debug data of the last GOAWAY, or is "".
	GoAway string
}

// Dial connects to addr, a host:port, and sends the preface and settings.
func Dial(ctx context.Context, addr string, m ConnOptions) (*Conn, error) {
	raw, err := dialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	return newConn(raw, m)
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", addr)
}

// newConn sends the preface and settings on a new connection, or closes it.
func newConn(raw net.Conn, m ConnOptions) (*Conn, error) {
	c := &Conn{Conn: raw, manners: m, writeMu: make(mutex, 1), out: bufio.NewWriterSize(raw, 64<<10), ended: make(chan struct{}), greeted: make(chan struct{})}
	c.replies.Resets = map[string]int{}
	c.replies.Statuses = map[string]int{}
	c.window.Store(defaultWindow)
	var err error
	if m.NeverRead {
		// With a small buffer the server's writes soon block.
		if t, ok := raw.(*net.TCPConn); ok {
			err = t.SetReadBuffer(4 << 10)
		}
	} else {
		go c.read()
	}
	hello := appendSettings([]byte(http2.ClientPreface), m.Settings...)
	if err := errors.Join(err, c.Send(1, hello), c.Flush()); err != nil {
		return nil, errors.Join(fmt.Errorf("send the preface to %v: %w", raw.RemoteAddr(), err), raw.Close())
	}
	return c, nil
}

// Send queues bytes that contain the given number of frames; see [Conn.Flush].
func (c *Conn) Send(frames int, bytes []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.sent.Add(int64(frames))
	if pong := c.pongs.Swap(nil); pong != nil {
		if _, err := c.out.Write(appendFrame(nil, http2.FramePing, http2.FlagPingAck, 0, pong[:])); err != nil {
			return err
		}
	}
	_, err := c.out.Write(bytes)
	return err
}

// Flush writes queued bytes to the network.
func (c *Conn) Flush() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.out.Flush()
}

// pong answers a PING, now or with the next frames.
func (c *Conn) pong(data [8]byte) {
	c.pongs.Store(&data)
	if !c.writeMu.TryLock() {
		return
	}
	defer c.writeMu.Unlock()
	if pong := c.pongs.Swap(nil); pong != nil {
		// If the connection has ended, the next read reports it.
		_, _ = c.out.Write(appendFrame(nil, http2.FramePing, http2.FlagPingAck, 0, pong[:]))
		_ = c.out.Flush()
	}
}

// Sent returns the number of sent frames.
func (c *Conn) Sent() int64 { return c.sent.Load() }

// Ended returns a channel that is closed when the server has closed the connection. With NeverRead
// the channel is never closed.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Replies returns a copy of the replies so far.
func (c *Conn) Replies() Replies {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := Replies{Resets: map[string]int{}, Statuses: map[string]int{}}
	all.add(c.replies)
	return all
}

func (r *Replies) add(more Replies) {
	for code, n := range more.Resets {
		r.Resets[code] += n
	}
	for code, n := range more.Statuses {
		r.Statuses[code] += n
	}
	if more.GoAway != "" {
		r.GoAway = more.GoAway
	}
}

// slowReader reads one byte at a time.
type slowReader struct {
	io.Reader
	every time.Duration
}

func (s slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.every)
	return s.Reader.Read(p[:min(1, len(p))])
}

// read records received frames until the server closes the connection.
func (c *Conn) read() {
	defer close(c.ended)
	var from io.Reader = bufio.NewReaderSize(c.Conn, 64<<10)
	if c.manners.ReadEvery > 0 {
		from = slowReader{c.Conn, c.manners.ReadEvery}
	}
	in := http2.NewFramer(nil, from)
	in.SetReuseFrames()
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := in.ReadFrame()
		if err != nil {
			return
		}
		c.record(frame)
		if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() && !c.manners.IgnorePings {
			c.pong(ping.Data)
		}
	}
}

func (c *Conn) record(frame http2.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := frame.(type) {
	case *http2.RSTStreamFrame:
		c.replies.Resets[f.ErrCode.String()]++
	case *http2.GoAwayFrame:
		c.replies.GoAway = fmt.Sprintf("%v %s", f.ErrCode, f.DebugData())
	case *http2.SettingsFrame:
		if w, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.window.Store(int64(w))
		}
		c.greet.Do(func() { close(c.greeted) })
	case *http2.MetaHeadersFrame:
		for _, field := range f.RegularFields() {
			if field.Name == "grpc-status" {
				c.replies.Statuses[field.Value]++
			}
		}
	}
}

// Call sends a complete call on the given stream.
func (c *Conn) Call(stream uint32, message []byte) error {
	return errors.Join(c.Send(2, appendCall(nil, stream, block(shouldRateLimit), message)), c.Flush())
}

// Preface returns the first bytes of a connection: preface and SETTINGS.
func Preface() []byte { return appendSettings([]byte(http2.ClientPreface)) }

// CompleteCall returns all frames of a call.
func CompleteCall(stream uint32, message []byte) []byte {
	return appendCall(nil, stream, block(shouldRateLimit), message)
}
