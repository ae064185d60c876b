package h2client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Options configures a connection.
type Options struct {
	// Window is the number of bytes that the server may send on a stream.
	Window uint32
	// PongDelay is the time after which a PING of the server is acknowledged.
	PongDelay time.Duration
}

// Conn is a connection. Its methods are safe for concurrent use.
type Conn struct {
	// Pongs receives a value when the server has acknowledged a PING.
	Pongs chan struct{}
	// Done is closed when the connection has ended.
	Done chan struct{}

	conn      net.Conn
	pongDelay time.Duration

	// writing is full while frames are written. It guards the fields below. A mutex would stop the
	// time of a bubble of testing/synctest.
	writing chan struct{}
	out     bytes.Buffer
	framer  *http2.Framer
	encoder *hpack.Encoder
	fields  bytes.Buffer
	next    uint32 // stream

	mu       sync.Mutex
	changed  *sync.Cond // windows, or the state of a stream
	window   int        // bytes that may be sent on the connection
	initial  int        // bytes that may be sent on a stream; 0 before the server's SETTINGS
	streams  map[uint32]*Stream
	leaving  bool   // after GOAWAY
	err      error  // why the connection has ended
	violated string // first violation of the protocol
}

// ErrGoingAway is the error of a call that the server does not accept after GOAWAY.
var ErrGoingAway = errors.New("the server is going away")

// New sends the preface on a new connection.
func New(conn net.Conn, o Options) (*Conn, error) {
	c := &Conn{
		conn: conn, pongDelay: o.PongDelay, writing: make(chan struct{}, 1), next: 1, window: 65535, streams: map[uint32]*Stream{},
		Pongs: make(chan struct{}, 1), Done: make(chan struct{}),
	}
	c.changed = sync.NewCond(&c.mu)
	c.framer = http2.NewFramer(&c.out, nil)
	c.encoder = hpack.NewEncoder(&c.fields)
	if err := c.write(func() {
		c.out.WriteString(http2.ClientPreface)
		_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: o.Window})
		_ = c.framer.WriteWindowUpdate(0, 1<<24)
	}); err != nil {
		return nil, err
	}
	go c.read()
	return c, nil
}

// write writes the frames that add appends to c.out, in one write.
func (c *Conn) write(add func()) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.out.Reset()
	add()
	_, err := c.conn.Write(c.out.Bytes())
	return err
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.conn.Close() }

// Usable reports whether calls can be made.
func (c *Conn) Usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.leaving
}

// Violation returns the first violation of HTTP/2 or gRPC by the server, "" for none.
func (c *Conn) Violation() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.violated
}

func (c *Conn) violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violateLocked(format, args...)
}

func (c *Conn) violateLocked(format string, args ...any) {
	if c.violated == "" {
		c.violated = fmt.Sprintf(format, args...)
	}
}

// Ping sends a PING.
func (c *Conn) Ping() error { return c.write(func() { _ = c.framer.WritePing(false, [8]byte{1}) }) }

// SetWindow changes the number of bytes that the server may send on a stream.
func (c *Conn) SetWindow(bytes uint32) error {
	return c.write(func() { _ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: bytes}) })
}

// Open starts a call, with the given message, which must be small, if it is not nil. onMessage is
// called with the messages of the server on a bidirectional stream. If it is nil, the call is unary.
// A timeout of 0 is none.
func (c *Conn) Open(path string, timeout time.Duration, message []byte, onMessage func(*Stream, []byte)) (*Stream, error) {
	s := &Stream{conn: c, onMessage: onMessage, Done: make(chan struct{})}
	var refused error
	err := c.write(func() {
		if refused = c.register(s, message); refused != nil {
			return
		}
		c.fields.Reset()
		for _, f := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "sluice"}, {"te", "trailers"}, {"content-type", "application/grpc"},
		} {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		if timeout > 0 {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "grpc-timeout", Value: fmt.Sprint(timeout.Milliseconds(), "m")})
		}
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: c.fields.Bytes(), EndHeaders: true})
		if message != nil {
			_ = c.framer.WriteData(s.id, onMessage == nil, framed(message))
		}
	})
	return s, errors.Join(refused, err)
}

// register gives a stream its number. c.writing must be full.
func (c *Conn) register(s *Stream, message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 0
	if message != nil {
		size = len(framed(message))
	}
	switch {
	case c.err != nil:
		return c.err
	case c.leaving:
		return ErrGoingAway
	case c.window < size:
		return errors.New("no flow-control window")
	}
	s.id = c.next
	s.window = c.initial - size
	c.next += 2
	c.window -= size
	c.streams[s.id] = s
	return nil
}

// StatusError is a gRPC status other than OK.
type StatusError struct{ Status, Message string }

// Error returns the status and the message.
func (e *StatusError) Error() string { return "grpc-status " + e.Status + ": " + e.Message }

// Call makes a unary call and returns its reply. It waits until the timeout or the end of ctx. The
// error is a [*StatusError] if the server has answered with one.
func (c *Conn) Call(ctx context.Context, path string, timeout time.Duration, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := c.Open(path, timeout, message, nil)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.Done:
	case <-ctx.Done():
		s.Reset()
		return nil, context.Cause(ctx)
	}
	switch {
	case s.Err != nil:
		return nil, s.Err
	case s.Status != "0":
		return nil, &StatusError{s.Status, s.Message}
	case len(s.body) < 5 || int(binary.BigEndian.Uint32(s.body[1:])) != len(s.body)-5:
		return nil, fmt.Errorf("a body of %d bytes, which is not one message", len(s.body))
	}
	return s.body[5:], nil
}

// read processes frames until the connection ends.
func (c *Conn) read() {
	framer := http2.NewFramer(nil, c.conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f, err := framer.ReadFrame()
	for ; err == nil; f, err = framer.ReadFrame() {
		c.process(f)
	}
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.failAfter(0, fmt.Errorf("the connection has ended: %w", err))
	close(c.Done)
}

// failAfter fails the open streams after the given one, which the server will not answer.
func (c *Conn) failAfter(last uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		if s := c.streams[id]; s.state == open && id > last {
			s.state = ignored
			s.Err = err
			close(s.Done)
		}
	}
	c.changed.Broadcast()
}

func (c *Conn) process(frame http2.Frame) {
	id := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			c.applySettings(f)
			_ = c.write(func() { _ = c.framer.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		c.processPing(f)
	case *http2.WindowUpdateFrame:
		c.addWindow(id, int(f.Increment))
	case *http2.GoAwayFrame:
		c.mu.Lock()
		c.leaving = true
		c.mu.Unlock()
		c.failAfter(f.LastStreamID, ErrGoingAway)
	case *http2.RSTStreamFrame: // without an error, the server does not need the rest of a request that it has answered
		if f.ErrCode == http2.ErrCodeNo {
			return
		}
		if s := c.stream(f, true); s != nil {
			s.Err = fmt.Errorf("the server has reset the stream: %v", f.ErrCode)
			close(s.Done)
		}
	case *http2.DataFrame:
		if s := c.stream(f, f.StreamEnded()); s != nil {
			s.receive(f.Data())
			if f.StreamEnded() {
				c.violate("stream %d ends without trailers", id)
				close(s.Done)
			}
		}
		_ = c.write(func() { _ = c.framer.WriteWindowUpdate(0, uint32(max(1, len(f.Data())))) })
	case *http2.MetaHeadersFrame:
		if s := c.stream(f, f.StreamEnded()); s != nil {
			for _, field := range f.Fields {
				switch field.Name {
				case "grpc-status":
					s.Status = field.Value
				case "grpc-message":
					s.Message = field.Value
				}
			}
			if f.StreamEnded() {
				close(s.Done)
			}
		}
	}
}

// applySettings changes the windows of all streams.
func (c *Conn) applySettings(f *http2.SettingsFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.initial
	if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
		c.initial = int(size)
	} else if was == 0 {
		c.initial = 65535
	}
	for _, s := range c.streams {
		s.window += c.initial - was
	}
	c.changed.Broadcast()
}

func (c *Conn) addWindow(stream uint32, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[stream]; s != nil {
		s.window += bytes
	} else if stream == 0 {
		c.window += bytes
	}
	c.changed.Broadcast()
}

func (c *Conn) processPing(f *http2.PingFrame) {
	acknowledge := func() { _ = c.write(func() { _ = c.framer.WritePing(true, f.Data) }) }
	switch {
	case f.IsAck():
		select {
		case c.Pongs <- struct{}{}:
		default:
		}
	case c.pongDelay > 0:
		time.AfterFunc(c.pongDelay, acknowledge)
	default:
		acknowledge()
	}
}

// stream returns the open stream of a frame, which may end it. It returns nil for a stream that was
// abandoned. A frame of a stream that does not exist or has been answered is a violation.
func (c *Conn) stream(frame http2.Frame, ends bool) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[frame.Header().StreamID]
	switch {
	case s == nil || s.state == answered:
		c.violateLocked("%v, but the stream does not exist or has been answered", frame)
		return nil
	case s.state == ignored:
		return nil
	case ends:
		s.state = answered
		c.changed.Broadcast()
	}
	return s
}
