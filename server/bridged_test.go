package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	_ "google.golang.org/grpc/health" // enables health checks in clients
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

func TestBridgedUnary(t *testing.T) {
	r, _, s := serveKinds(t)
	conn := r.dial(t)
	for _, m := range []string{"", "hello", strings.Repeat("long", 200_000)} {
		if got, err := sendMessage(t, conn, m); got != m || err != nil {
			t.Errorf("%d bytes: the reply has %d, %v", len(m), len(got), err)
		}
	}
	var header, trailer metadata.MD
	_, err := sendMessage(t, conn, "fail", grpc.Header(&header))
	if h := header.Get("h"); len(h) != 1 || h[0] != "3" {
		t.Errorf("a failed call has the header %v", header)
	}
	if st := status.Convert(err); st.Code() != codes.DataLoss || st.Message() != "lost: 100 %\n" || len(st.Details()) != 1 {
		t.Errorf("the error is %v with the details %v", err, st.Details())
	}
	if _, err := sendMessage(t, conn, "panic"); status.Code(err) != codes.Internal || status.Convert(err).Message() != "internal error" {
		t.Errorf("a panic results in %v, want INTERNAL", err)
	}
	if n, logged := testutil.ToFloat64(s.Metrics().Panics), r.logs.FilterMessage(panicLine).Len(); n != 1 || logged != 1 {
		t.Errorf("%v panics are counted and %d logged, want one", n, logged)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", "1", "x", "2", "y-bin", "\x01\xfe")
	reply := new(text)
	if err := conn.Invoke(ctx, "/test.Kinds/Unary", &text{Value: "metadata"}, reply, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got, want := reply.GetValue(), `/test.Kinds/Unary [1 2] ["\x01\xfe"] true`; got != want {
		t.Errorf("the handler received %s, want %s", got, want)
	}
	if h, b, tr := header.Get("h"), header.Get("h-bin"), trailer.Get("t"); fmt.Sprintf("%q %q", h, b) != `["1"] ["\x00\xff"]` || tr[0] != "2" {
		t.Errorf("the client got the header %v and the trailer %v", header, trailer)
	}
}

func TestBridgedStreams(t *testing.T) {
	r, _, s := serveKinds(t)
	conn := r.dial(t)
	server := stream(t, t.Context(), conn, "Server")
	sendText(t, server, "a")
	if err := server.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := recvText(server); got != "a" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if _, err := recvText(server); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	client := stream(t, t.Context(), conn, "Client")
	var all strings.Builder
	for i := range 100 {
		m := strings.Repeat(strconv.Itoa(i%10), i*100)
		sendText(t, client, m)
		all.WriteString(m)
	}
	want := all.String()
	if err := client.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if got, err := recvText(client); got != want || err != nil {
		t.Fatalf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
	both := stream(t, t.Context(), conn, "Both")
	for i := range 100 {
		m := strconv.Itoa(i)
		sendText(t, both, m)
		if got, err := recvText(both); got != m || err != nil {
			t.Fatalf("got %q, %v, want %q", got, err, m)
		}
	}
	sendText(t, both, "panic")
	if _, err := recvText(both); status.Code(err) != codes.Internal {
		t.Errorf("a panic results in %v, want INTERNAL", err)
	}
	if n := testutil.ToFloat64(s.Metrics().Panics); n != 1 {
		t.Errorf("%v panics are counted, want one", n)
	}
	// Concurrent streams each keep their order.
	streams := make([]grpc.ClientStream, 10)
	for i := range streams {
		streams[i] = stream(t, t.Context(), conn, "Both")
	}
	for n := range 20 {
		for _, s := range streams {
			sendText(t, s, strconv.Itoa(n))
		}
	}
	for i, s := range streams {
		for n := range 20 {
			if got, err := recvText(s); got != strconv.Itoa(n) || err != nil {
				t.Fatalf("stream %d: got %q, %v, want %d", i, got, err, n)
			}
		}
	}
}

// TestBridgedCallsAreCancelled ends calls from the client's side. The contexts of their handlers
// are cancelled.
func TestBridgedCallsAreCancelled(t *testing.T) {
	r, d, _ := serveKinds(t)
	wait := func(ctx context.Context, conn *grpc.ClientConn, unary bool) {
		if unary {
			_ = conn.Invoke(ctx, "/test.Kinds/Unary", &text{Value: "wait"}, new(text))
			return
		}
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Kinds/Both")
		if err == nil {
			_ = s.SendMsg(&text{Value: "wait"})
			_, _ = recvText(s)
		}
	}
	for _, unary := range []bool{false, true} {
		var waiting sync.WaitGroup
		for _, closeConn := range []bool{false, true} {
			conn := r.dial(t)
			ctx, cancel := context.WithCancel(t.Context())
			waiting.Go(func() { wait(ctx, conn, unary) })
			if <-d.began; closeConn {
				_ = conn.Close()
			} else {
				cancel()
			}
			if err := <-d.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("unary %v, connection closed %v: the handler's context ends with %v", unary, closeConn, err)
			}
			waiting.Wait()
			cancel()
		}
		conn := r.dial(t)
		for timeout, began := 50*time.Millisecond, false; !began; timeout *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			wait(ctx, conn, unary)
			cancel()
			select {
			case <-d.began:
				began = true
				// The client also cancels, which may arrive first.
				if err := <-d.ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Errorf("unary %v, after the deadline: the handler's context ends with %v", unary, err)
				}
			default: // the deadline passed before the handler started
			}
		}
	}
}

// TestMalformedMessageCancels sends a message that cannot be decoded, which ends the call, to a
// handler that waits for its context.
func TestMalformedMessageCancels(t *testing.T) {
	r, d, _ := serveKinds(t)
	s := stream(t, t.Context(), r.dial(t), "Deaf")
	if err := s.SendMsg(wrapperspb.Bytes([]byte{0xff})); err != nil {
		t.Fatal(err)
	}
	if _, err := recvText(s); status.Code(err) != codes.Internal {
		t.Errorf("the call ends with %v, want INTERNAL", err)
	}
	if err := <-d.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ends with %v, want Canceled", err)
	}
}

// TestBridgedRepliesBlock checks that a handler blocks while the client does not read.
func TestBridgedRepliesBlock(t *testing.T) {
	r, d, _ := serveKinds(t)
	conn := r.dial(t, grpc.WithStaticStreamWindowSize(64<<10))
	s := stream(t, t.Context(), conn, "Server")
	sendText(t, s, "flood")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	// The window and the write buffer are 128 KiB.
	for range 10 {
		<-d.sent
	}
	checkOK(t, conn)
	if n := len(d.sent); n > 10 {
		t.Errorf("the handler has sent %d more messages of 10 KB, although the client has read none", n)
	}
	for range 1000 {
		if m, err := recvText(s); len(m) != 10_000 || err != nil {
			t.Fatalf("got %d bytes, %v", len(m), err)
		}
	}
	if _, err := recvText(s); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestUnknownMethods(t *testing.T) {
	r, _, _ := serveKinds(t)
	conn := r.dial(t)
	for path, want := range map[string]string{
		"/test.Kinds/Other":               "unknown method Other for service test.Kinds",
		"/test.Others/Unary":              "unknown service test.Others",
		"/a/b/c":                          "unknown service a/b",
		"/" + answer.ServiceName + "/":    "unknown method  for service " + answer.ServiceName,
		"/none":                           `malformed method name: "/none"`,
		"/grpc.health.v1.Health/Watches/": "unknown service grpc.health.v1.Health/Watches",
	} {
		err := conn.Invoke(t.Context(), path, &text{}, new(text))
		if s := status.Convert(err); s.Code() != codes.Unimplemented || s.Message() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestWatchesAreBounded opens one more watch than a connection may have.
func TestWatchesAreBounded(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{Transport: transportBuiltin})
	conn := r.dial(t)
	watch := func() (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		return cancel, err
	}
	cancelFirst, err := watch()
	for range maxWatches - 1 {
		if err == nil {
			_, err = watch()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a watch beyond the bound: %v, want RESOURCE_EXHAUSTED", err)
	}
	checkOK(t, conn)
	cancelFirst()
	for range 10_000 { // until the server has received the cancellation
		if _, err := watch(); err == nil {
			return
		}
	}
	t.Error("the slot of a closed stream is not released")
}

// TestMethodsHaveSeparateStreamBounds opens the maximum number of streams of one service. Streams
// of other methods are unaffected.
func TestMethodsHaveSeparateStreamBounds(t *testing.T) {
	r, _, _ := serveKinds(t)
	conn := r.dial(t)
	for range maxConversations {
		s := stream(t, t.Context(), conn, "Both")
		sendText(t, s, "taken")
		if _, err := recvText(s); err != nil {
			t.Fatal(err)
		}
	}
	for range maxWatches {
		s := stream(t, t.Context(), conn, "Server")
		sendText(t, s, "watch")
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	reflection, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := reflection.Recv(); err != nil {
		t.Errorf("reflection with %d open streams of another service: %v", maxConversations, err)
	}
	health, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = health.Recv()
	}
	if err != nil {
		t.Errorf("a health watch with %d open streams of another service: %v", maxWatches, err)
	}
}

// TestReflectionDescribesTheServices sends grpcurl's requests to list and to describe, in both
// versions of reflection.
func TestReflectionDescribesTheServices(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	conn := r.dial(t)
	for _, method := range []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"} {
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		reflect := func(request *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
			answer := new(grpc_reflection_v1.ServerReflectionResponse) // both versions have the same encoding
			if err := errors.Join(s.SendMsg(request), s.RecvMsg(answer)); err != nil {
				t.Fatal(err)
			}
			return answer
		}
		var names []string
		for _, s := range reflect(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		}).GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		want := []string{answer.ServiceName, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
		symbols := []string{answer.ServiceName + ".ShouldRateLimit", "envoy.service.ratelimit.v3.RateLimitRequest"}
		if newQuotas != nil {
			want = slices.Insert(want, 0, quota.ServiceName)
			symbols = append(symbols, quota.ServiceName+"."+quota.MethodName)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s lists %q, want %q", method, names, want)
		}
		for _, symbol := range append(want, symbols...) {
			answer := reflect(&grpc_reflection_v1.ServerReflectionRequest{
				MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
			})
			if len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
				t.Errorf("%s does not describe %s: %v", method, symbol, answer)
			}
		}
		if answer := reflect(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "other"},
		}); codes.Code(answer.GetErrorResponse().GetErrorCode()) != codes.NotFound {
			t.Errorf("%s of an unknown symbol: %v, want NOT_FOUND", method, answer)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(new(grpc_reflection_v1.ServerReflectionResponse)); !errors.Is(err, io.EOF) {
			t.Errorf("%s ends with %v, want EOF", method, err)
		}
	}
}

// TestClientsCheckTheHealth has grpc-go's client watch the health of each of its connections. The
// client sends calls only while the server is healthy.
func TestClientsCheckTheHealth(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	conn := r.dial(t, grpc.WithDefaultServiceConfig(
		`{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"ServiceName": "`+answer.ServiceName+`"}}`,
	))
	await := func(health string, reached func(state connectivity.State) bool) {
		for state := conn.GetState(); !reached(state); state = conn.GetState() {
			if !conn.WaitForStateChange(t.Context(), state) {
				t.Fatalf("the client does not notice that the server is %s", health)
			}
		}
	}
	ready := func(state connectivity.State) bool { return state == connectivity.Ready }
	checkOK(t, conn)
	await("healthy", ready) // a call may succeed before the state changes
	r.health.setServing(false)
	await("unhealthy", func(state connectivity.State) bool { return !ready(state) })
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), simpleRequest()); status.Code(err) != codes.Unavailable {
		t.Errorf("a call to an unhealthy server: %v, want UNAVAILABLE from the client library", err)
	}
	r.health.setServing(true)
	await("healthy again", ready)
	checkOK(t, conn)
}
