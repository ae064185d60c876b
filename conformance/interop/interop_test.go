// Package interop runs gRPC's interoperability tests with sluice's transports.
package interop

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/sluice-ratelimit/sluice/conformance/transport"
)

// cases are from https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md, without
// those that need accounts, proxies, or compression, which Go's client does not implement.
var cases = []struct {
	name string
	run  func(context.Context, grpc_testing.TestServiceClient, *grpc.ClientConn)
}{
	{"empty_unary", calls(interop.DoEmptyUnaryCall)},
	{"large_unary", calls(interop.DoLargeUnaryCall)},
	{"client_streaming", calls(interop.DoClientStreaming)},
	{"server_streaming", calls(interop.DoServerStreaming)},
	{"ping_pong", calls(interop.DoPingPong)},
	{"empty_stream", calls(interop.DoEmptyStream)},
	{"timeout_on_sleeping_server", calls(interop.DoTimeoutOnSleepingServer)},
	{"cancel_after_begin", calls(interop.DoCancelAfterBegin)},
	{"cancel_after_first_response", calls(interop.DoCancelAfterFirstResponse)},
	{"status_code_and_message", calls(interop.DoStatusCodeAndMessage)},
	{"special_status_message", calls(interop.DoSpecialStatusMessage)},
	{"custom_metadata", calls(interop.DoCustomMetadata)},
	{"unimplemented_method", func(ctx context.Context, _ grpc_testing.TestServiceClient, conn *grpc.ClientConn) {
		interop.DoUnimplementedMethod(ctx, conn)
	}},
	{"unimplemented_service", func(ctx context.Context, _ grpc_testing.TestServiceClient, conn *grpc.ClientConn) {
		interop.DoUnimplementedService(ctx, grpc_testing.NewUnimplementedServiceClient(conn))
	}},
}

func calls(do func(context.Context, grpc_testing.TestServiceClient, ...grpc.CallOption)) func(context.Context, grpc_testing.TestServiceClient, *grpc.ClientConn) {
	return func(ctx context.Context, client grpc_testing.TestServiceClient, _ *grpc.ClientConn) { do(ctx, client) }
}

// A failing case exits its process, so each case runs in a separate process of this program, with
// these flags.
var (
	client = flag.Bool("client", false, "run the case named by -case against -addr, and no tests")
	named  = flag.String("case", "", "the case")
	addr   = flag.String("addr", "", "the server's host:port")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *client {
		os.Exit(runCase())
	}
	os.Exit(m.Run())
}

func runCase() int {
	conn, err := grpc.NewClient("passthrough:///"+*addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 1
	}
	defer conn.Close()
	for _, c := range cases {
		if c.name == *named {
			c.run(context.Background(), grpc_testing.NewTestServiceClient(conn), conn)
			return 0
		}
	}
	return 1
}

// patient replies to a stream without requests only when it is canceled. The case
// cancel_after_begin cancels such a stream and then closes it. A server that receives the close
// first could reply before the client checks for the cancellation.
type patient struct{ grpc_testing.TestServiceServer }

func (p patient) StreamingInputCall(stream grpc_testing.TestService_StreamingInputCallServer) error {
	return p.TestServiceServer.StreamingInputCall(&untilCancelled{TestService_StreamingInputCallServer: stream})
}

type untilCancelled struct {
	grpc_testing.TestService_StreamingInputCallServer

	some bool // whether a request was received
}

func (u *untilCancelled) Recv() (*grpc_testing.StreamingInputCallRequest, error) {
	request, err := u.TestService_StreamingInputCallServer.Recv()
	if errors.Is(err, io.EOF) && !u.some {
		<-u.Context().Done()
		return nil, u.Context().Err()
	}
	u.some = true
	return request, err
}

// TestInterop runs each case with each transport.
func TestInterop(t *testing.T) {
	for _, name := range transport.Names {
		t.Run(name, func(t *testing.T) {
			server, err := transport.Start(name, 0, func(s grpc.ServiceRegistrar) {
				grpc_testing.RegisterTestServiceServer(s, patient{interop.NewTestServer()})
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
			}()
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
					defer cancel()
					out, err := exec.CommandContext(ctx, os.Args[0], "-client", "-case", c.name, "-addr", server.Addr).CombinedOutput()
					if err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}
