package simulation

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// grpcConn is the client's side of an HTTP/2 connection with gRPC calls, as Envoy opens them. It
// checks that the server answers each stream at most once, and only streams that exist.
type grpcConn struct {
	conn      net.Conn
	pongDelay time.Duration // how late PINGs of the server are acknowledged
	pongs     chan struct{} // acknowledgements of PINGs of the client

	writing turn // while frames are written, and for the fields below
	out     bytes.Buffer
	framer  *http2.Framer
	encoder *hpack.Encoder
	fields  bytes.Buffer
	next    uint32 // the next stream

	mu       sync.Mutex
	window   int                    // bytes that may be sent on the connection
	streams  map[uint32]*grpcStream // open ones
	finished map[uint32]bool        // streams that have ended, with reset ones
	leaving  bool                   // after GOAWAY
	err      error                  // why the connection has ended
	violated string                 // the first violation of the protocol
	done     chan struct{}          // closed when the connection has ended
}

// grpcStream is a call. Its fields are written by the reader of the connection.
type grpcStream struct {
	body     []byte
	onData   func(message []byte) // of a bidirectional stream; nil collects one message
	status   string               // grpc-status
	message  string               // grpc-message
	err      error
	finished chan struct{}
}

var errGoingAway = errors.New("the server is going away")

// dialGRPC connects and sends the preface.
func dialGRPC(ctx context.Context, n *network, from, to string) (*grpcConn, error) {
	conn, err := n.dial(ctx, from, to)
	if err != nil {
		return nil, err
	}
	return newGRPC(conn, 0, 1<<20)
}

// newGRPC sends the preface on a new connection. Each stream has a window of the given size.
func newGRPC(conn net.Conn, pongDelay time.Duration, window uint32) (*grpcConn, error) {
	c := &grpcConn{
		conn: conn, pongDelay: pongDelay, pongs: make(chan struct{}, 1), writing: newTurn(), next: 1, window: 65535, streams: map[uint32]*grpcStream{}, finished: map[uint32]bool{}, done: make(chan struct{}),
	}
	c.framer = http2.NewFramer(&c.out, nil)
	c.encoder = hpack.NewEncoder(&c.fields)
	if err := c.write(func() {
		c.out.WriteString(http2.ClientPreface)
		_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		_ = c.framer.WriteWindowUpdate(0, 1<<24)
	}); err != nil {
		return nil, err
	}
	go c.read()
	return c, nil
}

// write writes the frames that do adds, in one write.
func (c *grpcConn) write(do func()) error {
	defer c.writing.acquire()()
	c.out.Reset()
	do()
	_, err := c.conn.Write(c.out.Bytes())
	return err
}

// open starts a call, with the given message if it is not nil; then the client's side ends.
func (c *grpcConn) open(path string, timeout time.Duration, message []byte, onData func([]byte)) (uint32, *grpcStream, error) {
	s := &grpcStream{onData: onData, finished: make(chan struct{})}
	id := uint32(0)
	var err error
	werr := c.write(func() {
		c.mu.Lock()
		switch {
		case c.err != nil:
			err = c.err
		case c.leaving:
			err = errGoingAway
		case c.window < len(message)+5:
			err = errors.New("no flow-control window")
		default:
			id = c.next
			c.next += 2
			c.window -= len(message) + 5
			c.streams[id] = s
		}
		c.mu.Unlock()
		if err != nil {
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
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields.Bytes(), EndHeaders: true})
		if message != nil {
			_ = c.framer.WriteData(id, onData == nil, prefixed(message))
		}
	})
	return id, s, errors.Join(err, werr)
}

// send sends a message of a bidirectional stream.
func (c *grpcConn) send(id uint32, message []byte) error {
	c.mu.Lock()
	open := c.streams[id] != nil && c.window >= len(message)+5
	if open {
		c.window -= len(message) + 5
	}
	c.mu.Unlock()
	if !open {
		return errors.New("the stream has ended, or there is no flow-control window")
	}
	return c.write(func() { _ = c.framer.WriteData(id, false, prefixed(message)) })
}

// ping sends a PING.
func (c *grpcConn) ping() error {
	return c.write(func() { _ = c.framer.WritePing(false, [8]byte{1}) })
}

func prefixed(message []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(b, message...)
}

// reset resets a stream, as Envoy does when a call has timed out.
func (c *grpcConn) reset(id uint32) {
	c.mu.Lock()
	delete(c.streams, id)
	c.finished[id] = true
	c.mu.Unlock()
	_ = c.write(func() { _ = c.framer.WriteRSTStream(id, http2.ErrCodeCancel) })
}

// callError is a gRPC status other than OK.
type callError struct{ status, message string }

func (e *callError) Error() string { return "grpc-status " + e.status + ": " + e.message }

// call makes a unary call and waits for its reply, until the timeout or the end of ctx.
func (c *grpcConn) call(ctx context.Context, path string, timeout time.Duration, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id, s, err := c.open(path, timeout, message, nil)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.finished:
	case <-ctx.Done():
		c.reset(id)
		return nil, context.Cause(ctx)
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case s.status != "0":
		return nil, &callError{s.status, s.message}
	case len(s.body) < 5 || int(binary.BigEndian.Uint32(s.body[1:])) != len(s.body)-5:
		return nil, fmt.Errorf("a body of %d bytes, which is not one message", len(s.body))
	}
	return s.body[5:], nil
}

// callProto makes a unary call. A reply that cannot be decoded is a violation.
func (c *grpcConn) callProto(ctx context.Context, path string, timeout time.Duration, request, reply proto.Message) error {
	b, err := c.call(ctx, path, timeout, mustMarshal(request))
	if err != nil {
		return err
	}
	if err = proto.Unmarshal(b, reply); err != nil {
		c.violation("a reply cannot be decoded: %v", err)
	}
	return err
}

func mustMarshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// close closes the connection.
func (c *grpcConn) close() { _ = c.conn.Close() }

// read processes frames until the connection ends.
func (c *grpcConn) read() {
	framer := http2.NewFramer(nil, c.conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			c.finish(err)
			return
		}
		c.process(f)
	}
}

// finish ends the connection.
func (c *grpcConn) finish(err error) {
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.failAfter(0, fmt.Errorf("the connection has ended: %w", err))
	close(c.done)
}

// failAfter fails the streams after the given one, which the server will not answer.
func (c *grpcConn) failAfter(last uint32, err error) {
	c.mu.Lock()
	var failed []*grpcStream
	for _, id := range sortedKeys(c.streams) {
		if id > last {
			failed = append(failed, c.streams[id])
			delete(c.streams, id)
			c.finished[id] = true
		}
	}
	c.mu.Unlock()
	for _, s := range failed {
		s.err = err
		close(s.finished)
	}
}

// violation records a violation of HTTP/2 or gRPC by the server.
func (c *grpcConn) violation(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.violated == "" {
		c.violated = fmt.Sprintf(format, args...)
	}
}

func (c *grpcConn) process(frame http2.Frame) {
	id := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = c.write(func() { _ = c.framer.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		c.processPing(f)
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
		c.failAfter(f.LastStreamID, errGoingAway)
	case *http2.RSTStreamFrame:
		if s := c.stream(f, true); s != nil && f.ErrCode != http2.ErrCodeNo {
			s.err = fmt.Errorf("the server has reset the stream: %v", f.ErrCode)
			close(s.finished)
		}
	case *http2.DataFrame:
		if s := c.stream(f, f.StreamEnded()); s != nil {
			s.receive(f.Data())
			if f.StreamEnded() {
				c.violation("stream %d ends without trailers", id)
				close(s.finished)
			}
		}
		_ = c.write(func() { _ = c.framer.WriteWindowUpdate(0, uint32(max(1, len(f.Data())))) })
	case *http2.MetaHeadersFrame:
		if s := c.stream(f, f.StreamEnded()); s != nil {
			for _, field := range f.Fields {
				switch field.Name {
				case "grpc-status":
					s.status = field.Value
				case "grpc-message":
					s.message = field.Value
				}
			}
			if f.StreamEnded() {
				close(s.finished)
			}
		}
	}
}

func (c *grpcConn) processPing(f *http2.PingFrame) {
	acknowledge := func() { _ = c.write(func() { _ = c.framer.WritePing(true, f.Data) }) }
	switch {
	case f.IsAck():
		select {
		case c.pongs <- struct{}{}:
		default:
		}
	case c.pongDelay > 0:
		time.AfterFunc(c.pongDelay, acknowledge)
	default:
		acknowledge()
	}
}

// receive appends a part of the body, and passes complete messages to onData.
func (s *grpcStream) receive(data []byte) {
	s.body = append(s.body, data...)
	for s.onData != nil && len(s.body) >= 5 {
		n := 5 + int(binary.BigEndian.Uint32(s.body[1:]))
		if len(s.body) < n {
			return
		}
		s.onData(s.body[5:n])
		s.body = append([]byte(nil), s.body[n:]...)
	}
}

// stream returns an open stream, and forgets it if the frame ends it. A frame of a stream that the
// client has reset is ignored; a frame of a stream that never existed or has been answered is a
// violation.
func (c *grpcConn) stream(frame http2.Frame, ends bool) *grpcStream {
	id := frame.Header().StreamID
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.ErrCode == http2.ErrCodeNo {
		return s // the server does not need the rest of a request that it has answered
	}
	if s == nil && !c.finished[id] && c.violated == "" {
		c.violated = fmt.Sprintf("%v, but the stream does not exist or has been answered", frame)
	}
	if ends {
		delete(c.streams, id)
	}
	return s
}
