package builtin

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// bridged is a call of a method that is written for grpc-go. The method's handler runs in a goroutine
// of its own and waits here: for the client's next message, of which one is read ahead, or for the
// client to take what was sent, of which mostAhead may wait.
//
// The connection calls the methods of [h2.Conversation], in its turns. The handler calls those of
// [grpc.ServerStream], which leave what they want in the connection's inbox.
type bridged struct {
	conn    *connection
	stream  uint32
	method  *bridgedMethod
	context context.Context //nolint:containedctx // grpc.ServerStream has one
	cancel  context.CancelFunc
	arrived chan struct{} // holds one if something has come
	left    chan struct{} // holds one if something has left

	mu       sync.Mutex
	message  []byte // the next one, if there is one
	has      bool
	end      error // after the last one: io.EOF, or why there are no more
	ahead    int   // bytes that were sent and that no window has taken
	header   metadata.MD
	headed   bool // the header is out
	trailer  metadata.MD
	finished bool
}

var (
	_ h2.Conversation            = (*bridged)(nil)
	_ grpc.ServerStream          = (*bridged)(nil)
	_ grpc.ServerTransportStream = (*bridgedTransport)(nil)
)

// mostAhead is how many bytes of replies may wait for a window before the handler waits, as in grpc-go.
const mostAhead = 64 << 10

func newBridged(c *connection, call *h2.Call, m *bridgedMethod, whole bool) (*bridged, error) {
	b := &bridged{
		conn: c, stream: call.Stream, method: m,
		arrived: make(chan struct{}, 1), left: make(chan struct{}, 1),
	}
	incoming, err := metadataOf(call.Fields)
	if err != nil {
		return nil, err
	}
	if whole {
		if b.message, err = b.plain(call.Message, call.Encoding != ""); err != nil {
			return nil, err
		}
		call.Inflated = uint32(len(b.message)) //nolint:gosec // a message is smaller
		b.has, b.end = true, io.EOF
	}
	ctx := peer.NewContext(context.Background(), c.peer())
	ctx = metadata.NewIncomingContext(ctx, incoming)
	ctx = grpc.NewContextWithServerTransportStream(ctx, (*bridgedTransport)(b))
	if call.HasTimeout {
		b.context, b.cancel = context.WithTimeout(ctx, call.Timeout)
	} else {
		b.context, b.cancel = context.WithCancel(ctx)
	}
	return b, nil
}

// run is the call's goroutine.
func (b *bridged) run() { b.finish(b.handle()) }

func (b *bridged) handle() (err error) {
	m, others := b.method, b.conn.bridge.others
	defer others.Recover(&err) // interceptors are not around the messages
	if m.stream != nil {
		return others.Stream(m.server, b, &grpc.StreamServerInfo{
			FullMethod: m.path, IsClientStream: m.stream.ClientStreams, IsServerStream: m.stream.ServerStreams,
		}, m.stream.Handler)
	}
	reply, err := m.unary(m.server, b.context, b.RecvMsg, others.Unary)
	if err != nil {
		return err
	}
	return b.SendMsg(reply)
}

func (b *bridged) Receive(message []byte, compressed bool) {
	plain, err := b.plain(message, compressed)
	b.mu.Lock()
	if err == nil {
		b.message, b.has = plain, true
	} else {
		b.end = err
	}
	b.mu.Unlock()
	wake(b.arrived)
}

// plain returns a copy of a message, decompressed. It is called in turns, and not by the goroutines of calls,
// of which there may be a thousand: see inflate.
func (b *bridged) plain(message []byte, compressed bool) ([]byte, error) {
	if !compressed {
		return bytes.Clone(message), nil
	}
	z, err := b.conn.inflateLocked(message, cmp.Or(b.method.mostMessage, b.conn.Limits.MaxMessageBytes))
	if err != nil {
		return nil, err
	}
	defer z.release()
	return bytes.Clone(z.out), nil
}

func (b *bridged) End(s h2.Status) {
	end := io.EOF
	if code := codes.Code(s.Code); code != codes.OK {
		end = status.Error(code, s.Message)
	}
	b.mu.Lock()
	if b.end == nil { // else a message before could not be inflated
		b.end = end
	}
	b.mu.Unlock()
	wake(b.arrived)
}

func (b *bridged) Sent(n int) {
	b.mu.Lock()
	b.ahead -= n
	b.mu.Unlock()
	wake(b.left)
}

func (b *bridged) Cancel() { b.cancel() }

// wake tells the one that waits for c.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (b *bridged) Context() context.Context { return b.context }

func (b *bridged) RecvMsg(m any) error {
	message, err := b.next()
	if err == nil {
		err = encoding.GetCodecV2(protocodec.Name).Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, m)
		if err != nil {
			err = status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
		}
	}
	if err != nil && err != io.EOF { //nolint:errorlint // as it is, not wrapped
		b.finish(err) // as grpc-go does, whatever the handler makes of it
	}
	return err
}

// next waits for a message.
func (b *bridged) next() ([]byte, error) {
	for {
		b.mu.Lock()
		message, end := b.message, b.end
		if b.has {
			b.message, b.has = nil, false
			b.mu.Unlock()
			if end == nil {
				b.post(func(c *h2.Conn, out []byte) []byte { return c.Want(out, b.stream) })
			}
			return message, nil
		}
		b.mu.Unlock()
		if end != nil {
			return nil, end
		}
		select {
		case <-b.arrived:
		case <-b.context.Done():
			return nil, status.FromContextError(b.context.Err()).Err()
		}
	}
}

func (b *bridged) SendMsg(m any) error {
	err := b.send(m)
	if err != nil {
		b.finish(err)
	}
	return err
}

func (b *bridged) send(m any) error {
	data, err := encoding.GetCodecV2(protocodec.Name).Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	message := data.Materialize()
	data.Free()
	for {
		if err := b.context.Err(); err != nil {
			return status.FromContextError(err).Err()
		}
		if b.sendNow(message) {
			return nil
		}
		select {
		case <-b.left:
		case <-b.context.Done():
		}
	}
}

// sendNow sends a message, unless too much waits for a window.
func (b *bridged) sendNow(message []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ahead >= mostAhead {
		return false
	}
	b.ahead += messagePrefix + len(message)
	b.headLocked()
	b.post(func(c *h2.Conn, out []byte) []byte { return c.Send(out, b.stream, message) })
	return true
}

// headLocked sends the header, if it is not out.
func (b *bridged) headLocked() {
	if b.headed {
		return
	}
	b.headed = true
	fields := fieldsOf(b.header)
	b.post(func(c *h2.Conn, out []byte) []byte { return c.Head(out, b.stream, fields) })
}

// finish sends how the call has ended, if that is not out. The handler's context is done then, as in grpc-go.
func (b *bridged) finish(err error) {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	b.finished = true
	if len(b.header) > 0 {
		b.headLocked()
	}
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if details, err := proto.Marshal(p); err == nil {
			b.trailer = metadata.Join(b.trailer)
			b.trailer["grpc-status-details-bin"] = []string{string(details)}
		}
	}
	fields := fieldsOf(b.trailer)
	b.post(func(c *h2.Conn, out []byte) []byte {
		return c.Finish(out, b.stream, h2.Status{Code: uint32(s.Code()), Message: s.Message()}, fields)
	})
	b.cancel()
}

// post has something done in the connection's next turn.
func (b *bridged) post(do func(c *h2.Conn, out []byte) []byte) {
	b.conn.finish(bridgedAct{b.conn, do})
}

// bridgedAct is something that a handler wants to be done.
type bridgedAct struct {
	conn *connection
	do   func(c *h2.Conn, out []byte) []byte
}

func (a bridgedAct) sendLocked() { a.conn.out.bytes = a.do(a.conn.h2, a.conn.out.bytes) }
func (bridgedAct) dropLocked()   {}

func (b *bridged) SetHeader(md metadata.MD) error { return b.setHeader(md, false) }

func (b *bridged) SendHeader(md metadata.MD) error { return b.setHeader(md, true) }

func (b *bridged) setHeader(md metadata.MD, send bool) error {
	if err := validate(md); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.headed || b.finished {
		return status.Error(codes.Internal, "the header has been sent already")
	}
	b.header = metadata.Join(b.header, md)
	if send {
		b.headLocked()
	}
	return nil
}

func (b *bridged) SetTrailer(md metadata.MD) { _ = b.setTrailer(md) } // it has no way to say so

func (b *bridged) setTrailer(md metadata.MD) error {
	if err := validate(md); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trailer = metadata.Join(b.trailer, md)
	return nil
}

// bridgedTransport is the call for [grpc.SetHeader] and the like.
type bridgedTransport bridged

func (t *bridgedTransport) Method() string { return t.method.path }

func (t *bridgedTransport) SetHeader(md metadata.MD) error { return (*bridged)(t).SetHeader(md) }

func (t *bridgedTransport) SendHeader(md metadata.MD) error { return (*bridged)(t).SendHeader(md) }

func (t *bridgedTransport) SetTrailer(md metadata.MD) error { return (*bridged)(t).setTrailer(md) }
