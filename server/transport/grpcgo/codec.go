package grpcgo

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// codec passes rate-limit requests and quota reports through as bytes, and uses protobuf's codec
// for everything else, such as health and reflection.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*quotaBytes); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.bytes)}, nil // m is not used again
	}
	x, ok := v.(*answer.Exchange)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	// The transport may use the bytes until they are written, but x is reused before that.
	out := mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), x.Reply()...))}
	releaseExchange(x)
	return out, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*quotaBytes); ok {
		m.bytes = data.Materialize()
		return nil
	}
	x, ok := v.(*answer.Exchange)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	x.Request = x.Request[:0]
	for _, part := range data {
		x.Request = append(x.Request, part.ReadOnlyData()...)
	}
	return nil
}

// exchanges is the pool of the calls' exchanges.
var exchanges = sync.Pool{New: func() any { return new(answer.Exchange) }}

func releaseExchange(x *answer.Exchange) {
	if x.Reusable() {
		exchanges.Put(x)
	}
}

// serviceDesc replaces the generated description of RateLimitService, which would decode into
// protobuf messages.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: answer.ServiceName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "ShouldRateLimit",
		Handler: func(
			srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			limits, ok := srv.(*answer.Handler)
			if !ok {
				return nil, status.Errorf(codes.Internal, "%T does not answer rate-limit requests", srv)
			}
			x, _ := exchanges.Get().(*answer.Exchange)
			if err := decode(x); err != nil {
				return nil, err
			}
			x.Client = access.ClientFromContext(ctx)
			if err := limits.Answer(ctx, x, nil); err != nil {
				releaseExchange(x)
				return nil, err
			}
			return x, nil
		},
	}},
	Metadata: "envoy/service/ratelimit/v3/rls.proto",
}
