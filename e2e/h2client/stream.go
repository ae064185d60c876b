package h2client

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2"
)

// Stream is a call.
type Stream struct {
	// Done is closed when the server has ended the call, or will not answer it. The fields below can
	// be read then.
	Done chan struct{}
	// Status is the grpc-status, and Message the grpc-message.
	Status, Message string
	// Err is the reason if the server has not answered.
	Err error

	conn      *Conn
	id        uint32
	body      []byte
	onMessage func(*Stream, []byte)
	window    int // bytes that may be sent
	state     state
}

type state int

const (
	open     state = iota
	answered       // completely
	ignored        // frames may still arrive, because the client or the server has abandoned the call
)

// framed returns a message with gRPC's length prefix.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// Send sends a message of a bidirectional stream. It waits for the windows of the server.
func (s *Stream) Send(message []byte) error {
	for rest := framed(message); len(rest) > 0; {
		n := s.reserveWindow(len(rest))
		if n == 0 {
			return errors.New("the stream has ended")
		}
		if err := s.conn.write(func() { _ = s.conn.framer.WriteData(s.id, false, rest[:n]) }); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// reserveWindow reserves up to most bytes of the windows, or returns 0 if the stream has ended.
func (s *Stream) reserveWindow(most int) int {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.state == open {
		if n := min(most, 16<<10, c.window, s.window); n > 0 {
			c.window -= n
			s.window -= n
			return n
		}
		c.changed.Wait()
	}
	return 0
}

// Reset resets the stream, as Envoy does when a call has timed out.
func (s *Stream) Reset() {
	s.conn.mu.Lock()
	s.state = ignored
	s.conn.mu.Unlock()
	_ = s.conn.write(func() { _ = s.conn.framer.WriteRSTStream(s.id, http2.ErrCodeCancel) })
}

// receive appends a part of the body, and passes complete messages to onMessage.
func (s *Stream) receive(data []byte) {
	s.body = append(s.body, data...)
	for s.onMessage != nil && len(s.body) >= 5 {
		n := 5 + int(binary.BigEndian.Uint32(s.body[1:]))
		if len(s.body) < n {
			return
		}
		s.onMessage(s, s.body[5:n])
		s.body = append([]byte(nil), s.body[n:]...)
	}
}
