package grpcgo

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// decodedHeaders says how much grpc-go decodes of a call's headers: this many times
// --max-header-size. Of a call between the two bounds, only that call fails, here. Beyond the
// larger one, grpc-go resets the call if it has many small headers in one frame. Otherwise it
// closes the connection, with all other calls on it.
const decodedHeaders = 2

// headerBound is the bound on a call's headers.
type headerBound transport.Config

// inspect is called with the headers of each call before anything else is done for it. It rejects
// a call whose headers are too large. It deletes the headers that nobody reads: otherwise each of
// a thousand open calls of a client would keep its own.
//
// It implements [tap.ServerInHandle]. grpc-go calls it in the connection's reader, so it must be
// quick and must not wait.
func (b *headerBound) inspect(ctx context.Context, info *tap.Info) (context.Context, error) {
	size := 0
	for name, values := range info.Header {
		n := fieldSize(name, values)
		size += n
		if !b.KeepsHeaders && !(*transport.Config)(b).KeepsHeader([]byte(name), n) {
			delete(info.Header, name)
		}
	}
	if size <= int(b.Limits.MaxHeaderBytes) {
		return ctx, nil
	}
	return ctx, (*transport.Config)(b).HeadersTooLarge(size)
}

// fieldSize is what a header and its values take in the list of headers by RFC 9113, section
// 6.5.2.
func fieldSize(name string, values []string) int {
	n := 0
	for _, v := range values {
		n += len(name) + len(v) + 32
	}
	return n
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
		if size := proto.Size(message); size > transport.MostOfOther {
			return transport.MessageOfOther(method, size, transport.MostOfOther)
		}
	}
	return nil
}
