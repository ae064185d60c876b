package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// Bounds on the open streams of a method: the total of bidirectional streams, and the number of
// server streams per connection of the built-in transport.
const (
	maxConversations = 16
	maxWatches       = 64
)

// text is the message type of the test service.
type text = wrapperspb.StringValue

// callEvents records the calls of the test service.
type callEvents struct {
	began chan struct{}
	ended chan error // receives the cause of a call's context
	sent  chan int   // receives the number of messages that the stream "flood" has sent
}

// register registers a service with methods of all kinds.
func (d *callEvents) register(r grpc.ServiceRegistrar) {
	unary := func(ctx context.Context, request *text) (*text, error) {
		switch request.GetValue() {
		case "panic":
			panic("a bug")
		case "fail":
			s, err := status.New(codes.DataLoss, "lost: 100 %\n").WithDetails(durationpb.New(time.Second))
			if err != nil {
				return nil, err
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs("h", "3")); err != nil {
				return nil, err
			}
			return nil, s.Err()
		case "wait":
			d.began <- struct{}{}
			<-ctx.Done()
			d.ended <- ctx.Err()
			return nil, ctx.Err()
		case "metadata":
			in, _ := metadata.FromIncomingContext(ctx)
			p, _ := peer.FromContext(ctx)
			if err := grpc.SetHeader(ctx, metadata.Pairs("h", "1")); err != nil {
				return nil, err
			}
			if err := grpc.SendHeader(ctx, metadata.Pairs("h-bin", "\x00\xff")); err != nil {
				return nil, err
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs("h", "late")); err == nil {
				return nil, errors.New("a header is accepted after the header was sent")
			}
			if err := grpc.SetTrailer(ctx, metadata.Pairs("t", "2")); err != nil {
				return nil, err
			}
			if err := grpc.SetTrailer(ctx, metadata.Pairs("t", "\n")); err == nil {
				return nil, errors.New("an invalid trailer is accepted")
			}
			method, _ := grpc.Method(ctx)
			return &text{Value: fmt.Sprintf("%s %v %q %v", method, in["x"], in["y-bin"], p.Addr != nil)}, nil
		}
		return request, nil
	}
	streams := func(name string, client, server bool, handle func(grpc.ServerStream) error) grpc.StreamDesc {
		return grpc.StreamDesc{
			StreamName: name, ClientStreams: client, ServerStreams: server,
			Handler: func(_ any, s grpc.ServerStream) error { return handle(s) },
		}
	}
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Kinds", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			request := new(text)
			if err := decode(request); err != nil {
				return nil, err
			}
			return interceptor(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Kinds/Unary"}, func(ctx context.Context, request any) (any, error) {
				m, _ := request.(*text)
				return unary(ctx, m)
			})
		}}},
		Streams: []grpc.StreamDesc{
			streams("Server", false, true, d.serverStream),
			streams("Deaf", true, true, func(s grpc.ServerStream) error {
				err := s.RecvMsg(new(text))
				<-s.Context().Done()
				d.ended <- s.Context().Err()
				return err
			}),
			streams("Client", true, false, func(s grpc.ServerStream) error {
				all := ""
				for {
					m := new(text)
					switch err := s.RecvMsg(m); {
					case errors.Is(err, io.EOF):
						return s.SendMsg(&text{Value: all})
					case err != nil:
						return err
					}
					all += m.GetValue()
				}
			}),
			streams("Both", true, true, func(s grpc.ServerStream) error {
				for {
					m := new(text)
					switch err := s.RecvMsg(m); {
					case errors.Is(err, io.EOF):
						return nil
					case err != nil:
						return err
					case m.GetValue() == "panic":
						panic("a bug")
					case m.GetValue() == "wait":
						d.began <- struct{}{}
						<-s.Context().Done()
						d.ended <- s.Context().Err()
						return s.Context().Err()
					}
					if err := s.SendMsg(m); err != nil {
						return err
					}
				}
			}),
		},
	}, d)
}

func (d *callEvents) serverStream(s grpc.ServerStream) error {
	m := new(text)
	if err := s.RecvMsg(m); err != nil {
		return err
	}
	if m.GetValue() == "flood" {
		for i := range 1000 {
			if err := s.SendMsg(&text{Value: strings.Repeat("x", 10_000)}); err != nil {
				return err
			}
			d.sent <- i
		}
		return nil
	}
	if m.GetValue() == "watch" {
		<-s.Context().Done()
		return s.Context().Err()
	}
	for range 3 {
		if err := s.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// serveKinds runs a server with the test service.
func serveKinds(t *testing.T) (*running, *callEvents, *answer.Service) {
	t.Helper()
	d := &callEvents{began: make(chan struct{}, 100), ended: make(chan error, 100), sent: make(chan int, 1000)}
	s := service(t, answer.Settings{}, oneRule)
	return serve(t, s, Options{Register: d.register}), d, s
}

func sendMessage(t *testing.T, conn *grpc.ClientConn, message string, options ...grpc.CallOption) (string, error) {
	t.Helper()
	reply := new(text)
	err := conn.Invoke(t.Context(), "/test.Kinds/Unary", &text{Value: message}, reply, options...)
	return reply.GetValue(), err
}

// stream opens a stream of the test service.
func stream(t *testing.T, ctx context.Context, conn *grpc.ClientConn, method string) grpc.ClientStream { //nolint:revive // t is first everywhere
	t.Helper()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Kinds/"+method)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sendText(t *testing.T, s grpc.ClientStream, message string) {
	t.Helper()
	if err := s.SendMsg(&text{Value: message}); err != nil {
		t.Fatal(err)
	}
}

func recvText(s grpc.ClientStream) (string, error) {
	m := new(text)
	err := s.RecvMsg(m)
	return m.GetValue(), err
}
