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
}

// Conn is a connection. Its methods are safe for concurrent use.
type Conn struct {
	// Done is closed when the connection has ended.
	Done chan struct{}

	conn net.Conn

	// writing is full while frames are written. It guards the fields below. A mutex would stop the
	// time of a bubble of testing/synctest.
	writing chan struct{}
	out     bytes.Buffer
	framer  *http2.Framer
	encoder *hpack.Encoder
	fields  bytes.Buffer
	next    uint32 // stream

	mu       sync.Mutex
	window   int // bytes that may be sent on the connection
	streams  map[uint32]*stream
	leaving  bool   // after GOAWAY
	err      error  // why the connection has ended
	violated string // first violation of the protocol
}

// ErrGoingAway is the error of a call that the server does not accept after GOAWAY.
var ErrGoingAway = errors.New("the server is going away")

// New sends the preface on a new connection.
func New(conn net.Conn, o Options) (*Conn, error) {
	c := &Conn{
		conn: conn, writing: make(chan struct{}, 1), next: 1, window: 65535, streams: map[uint32]*stream{}, Done: make(chan struct{}),
	}
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

// stream is a unary call.
type stream struct {
	// done is closed when the server has ended the call, or will not answer it. The fields below can
	// be read then.
	done            chan struct{}
	status, message string // grpc-status and grpc-message
	err             error  // why the server has not answered

	id    uint32
	body  []byte
	state state
}

type state int

const (
	open     state = iota
	answered       // completely
	ignored        // frames may still arrive, because the client or the server has abandoned the call
)

// open starts a call with the given message, which must be small.
func (c *Conn) open(path string, timeout time.Duration, message []byte) (*stream, error) {
	s := &stream{done: make(chan struct{})}
	var refused error
	err := c.write(func() {
		framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		if refused = c.register(s, len(framed)); refused != nil {
			return
		}
		c.fields.Reset()
		for _, f := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", path},
			{":authority", "sluice"},
			{"te", "trailers"},
			{"content-type", "application/grpc"},
			{"grpc-timeout", fmt.Sprint(timeout.Milliseconds(), "m")},
		} {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: c.fields.Bytes(), EndHeaders: true})
		_ = c.framer.WriteData(s.id, true, framed)
	})
	return s, errors.Join(refused, err)
}

// register gives a stream its number. c.writing must be full.
func (c *Conn) register(s *stream, size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.leaving:
		return ErrGoingAway
	case c.window < size:
		return errors.New("no flow-control window")
	}
	s.id = c.next
	c.next += 2
	c.window -= size
	c.streams[s.id] = s
	return nil
}

// reset resets a stream, as Envoy does when a call has timed out.
func (c *Conn) reset(s *stream) {
	c.mu.Lock()
	s.state = ignored
	c.mu.Unlock()
	_ = c.write(func() { _ = c.framer.WriteRSTStream(s.id, http2.ErrCodeCancel) })
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
	s, err := c.open(path, timeout, message)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		c.reset(s)
		return nil, context.Cause(ctx)
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case s.status != "0":
		return nil, &StatusError{s.status, s.message}
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
			s.err = err
			close(s.done)
		}
	}
}

func (c *Conn) process(frame http2.Frame) {
	id := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = c.write(func() { _ = c.framer.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = c.write(func() { _ = c.framer.WritePing(true, f.Data) })
		}
	case *http2.WindowUpdateFrame:
		if id == 0 {
			c.mu.Lock()
			c.window += int(f.Increment)
			c.mu.Unlock()
		}
	case *http2.GoAwayFrame:
		c.mu.Lock()
		c.leaving = true
		c.mu.Unlock()
		c.failAfter(f.LastStreamID, ErrGoingAway)
	case *http2.RSTStreamFrame: // without an error, the server does not need the rest of a request that it has answered
		if f.ErrCode == http2.ErrCodeNo {
			return
		}
		if s := c.streamOf(f, true); s != nil {
			s.err = fmt.Errorf("the server has reset the stream: %v", f.ErrCode)
			close(s.done)
		}
	case *http2.DataFrame:
		if s := c.streamOf(f, f.StreamEnded()); s != nil {
			s.body = append(s.body, f.Data()...)
			if f.StreamEnded() {
				c.violate("stream %d ends without trailers", id)
				close(s.done)
			}
		}
		_ = c.write(func() { _ = c.framer.WriteWindowUpdate(0, uint32(max(1, len(f.Data())))) })
	case *http2.MetaHeadersFrame:
		if s := c.streamOf(f, f.StreamEnded()); s != nil {
			for _, field := range f.Fields {
				switch field.Name {
				case "grpc-status":
					s.status = field.Value
				case "grpc-message":
					s.message = field.Value
				}
			}
			if f.StreamEnded() {
				close(s.done)
			}
		}
	}
}

// streamOf returns the open stream of a frame, which may end it. It returns nil for a stream that was
// abandoned. A frame of a stream that does not exist or has been answered is a violation.
func (c *Conn) streamOf(frame http2.Frame, ends bool) *stream {
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
	}
	return s
}
