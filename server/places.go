package server

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxConversations is how many streams of a method may be open at once, on all connections, on which a
// client may send any number of messages. Of ours only reflection has such streams, for people who explore
// the service. Each can keep questions, and up to 64 KiB of answers that the client does not read.
const maxConversations = 16

// maxAllWatches is how many streams of any other method may be open at once, on all connections: only the
// server sends on them. Each has a goroutine.
const maxAllWatches = 1024

// mostOfOther is how many bytes a message to another service than RateLimitService may have. Health and
// reflection are asked with names. A health check that watches keeps its name for as long as it likes.
const mostOfOther = 4 << 10

// messageOfOther is the answer to a message that has more.
func messageOfOther(method string, size, most int) error {
	return status.Errorf(codes.ResourceExhausted, "the message has %d bytes: %s takes %d", size, method, most)
}

// boundUnary bounds the messages of other services' calls, over grpc-go.
func boundUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := checkMessage(info.FullMethod, request); err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

// boundStreams does the same for streams.
func boundStreams(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, boundStream{stream, info.FullMethod})
}

type boundStream struct {
	grpc.ServerStream
	method string
}

// RecvMsg implements [grpc.ServerStream].
func (s boundStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return checkMessage(s.method, m)
}

func checkMessage(method string, m any) error {
	if message, ok := m.(proto.Message); ok {
		if size := proto.Size(message); size > mostOfOther {
			return messageOfOther(method, size, mostOfOther)
		}
	}
	return nil
}

// places are for the streams that may be open at once. Each method has its own, so that the clients of
// one service leave those of others theirs. The zero value has all places free.
type places struct {
	mu    sync.Mutex
	taken map[string]int // by method
}

// take takes one of a method's places, which leave gives back.
func (p *places) take(method string, most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[method] >= most {
		return status.Errorf(codes.ResourceExhausted, "%s is in use: at most %d streams at once", method, most)
	}
	if p.taken == nil {
		p.taken = make(map[string]int)
	}
	p.taken[method]++
	return nil
}

func (p *places) leave(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[method]--
}

// mostStreams returns how many streams of a method may be open at once.
func mostStreams(conversation bool) int {
	if conversation {
		return maxConversations
	}
	return maxAllWatches
}

// bound rejects streams for which there is no place.
func (p *places) bound(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := p.take(info.FullMethod, mostStreams(info.IsClientStream)); err != nil {
		return err
	}
	defer p.leave(info.FullMethod)
	return handle(srv, stream)
}

// endWith ends the streams of other services, health's Watch and reflection, when draining is
// closed. A client can keep them open for any time, so a graceful stop would wait for them until
// its timeout. Their handlers end after the stream.
func endWith(draining <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		done := make(chan error, 1)
		go func() { done <- handle(srv, stream) }()
		select {
		case err := <-done:
			return err
		case <-draining:
			return status.Error(codes.Unavailable, "the server is shutting down")
		}
	}
}
