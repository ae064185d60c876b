package grpcgo

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

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
