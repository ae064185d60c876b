package builtin

import (
	"bytes"
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

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// bridgedCall is a call of a method written for grpc-go. The method's handler runs in its own
// goroutine. It waits for the client's next message, of which one is read ahead. Once maxUnsent bytes
// are unsent, it waits for the client to extend its window.
//
// The connection calls the methods of [h2.StreamingCall] in its batches. The handler calls those of
// [grpc.ServerStream], which queue commands in the mailbox.
type bridgedCall struct {
	conn         *connection
	stream       uint32
	method       *bridgedMethod
	context      context.Context //nolint:containedctx // grpc.ServerStream has one
	cancel       context.CancelFunc
	messageReady chan struct{} // signals a message or the end of the request
	bytesSent    chan struct{} // signals that bytes were sent
	// task has a token from the receipt of a message until the reply to it is queued. It is nil for
	// services that are not ours, whose handlers may wait meanwhile.
	task *cpu.Task

	mu         sync.Mutex
	message    []byte // the next message, if hasMessage
	hasMessage bool
	endErr     error // returned after the last message: io.EOF, or an error
	unsent     int   // bytes that wait for a window
	header     metadata.MD
	headerSent bool
	trailer    metadata.MD
	finished   bool
}

var (
	_ h2.StreamingCall           = (*bridgedCall)(nil)
	_ grpc.ServerStream          = (*bridgedCall)(nil)
	_ grpc.ServerTransportStream = (*bridgedTransport)(nil)
)

// maxUnsent is how many bytes may wait for a window before the handler has to wait, as in grpc-go.
const maxUnsent = 64 << 10

func newBridgedCall(c *connection, call *h2.Call, m *bridgedMethod, complete bool) (*bridgedCall, error) {
	b := &bridgedCall{
		conn: c, stream: call.Stream, method: m,
		messageReady: make(chan struct{}, 1), bytesSent: make(chan struct{}, 1),
	}
	if m.own {
		b.task = c.Tokens.NewTask(cpu.Source{Kind: cpu.OtherCall, Address: access.AddressOfPeer(c.raw.RemoteAddr())})
	}
	incoming, err := metadataOf(call.Fields)
	if err != nil {
		return nil, err
	}
	if complete {
		b.message = bytes.Clone(call.Message)
		b.hasMessage = true
		b.endErr = io.EOF
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

// runHandler runs in the call's goroutine.
func (b *bridgedCall) runHandler() (err error) {
	m := b.method
	interceptors := b.conn.bridge.interceptors
	defer interceptors.Recover(&err) // for SendMsg, which they do not cover
	if m.stream != nil {
		return interceptors.Stream(m.server, b, &grpc.StreamServerInfo{
			FullMethod: m.path, IsClientStream: m.stream.ClientStreams, IsServerStream: m.stream.ServerStreams,
		}, m.stream.Handler)
	}
	reply, err := m.unary(m.server, b.context, b.RecvMsg, interceptors.Unary)
	if err != nil {
		return err
	}
	return b.SendMsg(reply)
}

func (b *bridgedCall) Receive(message []byte) {
	b.mu.Lock()
	b.message = bytes.Clone(message)
	b.hasMessage = true
	b.mu.Unlock()
	wake(b.messageReady)
}

func (b *bridgedCall) RequestEnded(s h2.Status) {
	end := io.EOF
	if code := codes.Code(s.Code); code != codes.OK {
		end = status.Error(code, s.Message)
	}
	b.mu.Lock()
	b.endErr = end
	b.mu.Unlock()
	wake(b.messageReady)
}

func (b *bridgedCall) Sent(n int) {
	b.mu.Lock()
	b.unsent -= n
	b.mu.Unlock()
	wake(b.bytesSent)
}

func (b *bridgedCall) Cancel() { b.cancel() }

// wake signals c, unless a signal is pending.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (b *bridgedCall) Context() context.Context { return b.context }

func (b *bridgedCall) RecvMsg(m any) error {
	message, err := b.nextMessage()
	if err == nil {
		err = encoding.GetCodecV2(protocodec.Name).Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, m)
		if err != nil {
			err = status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
		}
	}
	if err != nil && err != io.EOF { //nolint:errorlint // as it is, not wrapped
		b.finish(err) // as grpc-go does, whatever the handler returns
	}
	return err
}

func (b *bridgedCall) nextMessage() ([]byte, error) {
	b.task.Pause()
	for {
		b.mu.Lock()
		message := b.message
		end := b.endErr
		if b.hasMessage {
			b.message = nil
			b.hasMessage = false
			b.mu.Unlock()
			if end == nil {
				b.postCommand(func(c *h2.Conn, out []byte) []byte { return c.RequestMessage(out, b.stream) })
			}
			b.task.Resume()
			return message, nil
		}
		b.mu.Unlock()
		if end != nil {
			return nil, end
		}
		select {
		case <-b.messageReady:
		case <-b.context.Done():
			return nil, status.FromContextError(b.context.Err()).Err()
		}
	}
}

func (b *bridgedCall) SendMsg(m any) error {
	err := b.send(m)
	if err != nil {
		b.finish(err)
	}
	return err
}

func (b *bridgedCall) send(m any) error {
	data, err := encoding.GetCodecV2(protocodec.Name).Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	message := data.Materialize()
	data.Free()
	b.task.Pause()
	for {
		if err := b.context.Err(); err != nil {
			return status.FromContextError(err).Err()
		}
		if b.trySend(message) {
			return nil
		}
		select {
		case <-b.bytesSent:
		case <-b.context.Done():
		}
	}
}

// trySend queues a message, unless too many bytes are unsent.
func (b *bridgedCall) trySend(message []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unsent >= maxUnsent {
		return false
	}
	b.unsent += messagePrefix + len(message)
	b.sendHeaderLocked()
	b.postCommand(func(c *h2.Conn, out []byte) []byte { return c.Send(out, b.stream, message) })
	return true
}

// sendHeaderLocked sends the header, unless it was sent before.
func (b *bridgedCall) sendHeaderLocked() {
	if b.headerSent {
		return
	}
	b.headerSent = true
	fields := fieldsOf(b.header)
	b.postCommand(func(c *h2.Conn, out []byte) []byte { return c.SendHeader(out, b.stream, fields) })
}

// finish sends the status, unless one was sent. It cancels the handler's context, as grpc-go does.
func (b *bridgedCall) finish(err error) {
	b.task.Pause()
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
		b.sendHeaderLocked()
	}
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if details, err := proto.Marshal(p); err == nil {
			b.trailer = metadata.Join(b.trailer)
			b.trailer["grpc-status-details-bin"] = []string{string(details)}
		}
	}
	fields := fieldsOf(b.trailer)
	b.postCommand(func(c *h2.Conn, out []byte) []byte {
		return c.Finish(out, b.stream, h2.Status{Code: uint32(s.Code()), Message: s.Message()}, fields)
	})
	b.cancel()
}

// postCommand queues a function for the connection's next batch.
func (b *bridgedCall) postCommand(run func(c *h2.Conn, out []byte) []byte) {
	b.conn.postCompletion(bridgedCommand{b.conn, run})
}

// bridgedCommand is a function that a handler has queued.
type bridgedCommand struct {
	conn *connection
	run  func(c *h2.Conn, out []byte) []byte
}

func (a bridgedCommand) sendLocked() { a.conn.out.bytes = a.run(a.conn.h2, a.conn.out.bytes) }
func (bridgedCommand) dropLocked()   {}

func (b *bridgedCall) SetHeader(md metadata.MD) error { return b.setHeader(md, false) }

func (b *bridgedCall) SendHeader(md metadata.MD) error { return b.setHeader(md, true) }

func (b *bridgedCall) setHeader(md metadata.MD, send bool) error {
	if err := validateMetadata(md); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.headerSent || b.finished {
		return status.Error(codes.Internal, "the header has been sent already")
	}
	b.header = metadata.Join(b.header, md)
	if send {
		b.sendHeaderLocked()
	}
	return nil
}

// SetTrailer implements [grpc.ServerStream], whose method has no error.
func (b *bridgedCall) SetTrailer(md metadata.MD) { _ = b.setTrailer(md) }

func (b *bridgedCall) setTrailer(md metadata.MD) error {
	if err := validateMetadata(md); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trailer = metadata.Join(b.trailer, md)
	return nil
}

// bridgedTransport implements [grpc.SetHeader] and the like for a call.
type bridgedTransport bridgedCall

func (t *bridgedTransport) Method() string { return t.method.path }

func (t *bridgedTransport) SetHeader(md metadata.MD) error { return (*bridgedCall)(t).SetHeader(md) }

func (t *bridgedTransport) SendHeader(md metadata.MD) error { return (*bridgedCall)(t).SendHeader(md) }

func (t *bridgedTransport) SetTrailer(md metadata.MD) error { return (*bridgedCall)(t).setTrailer(md) }
