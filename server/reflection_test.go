package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	delayed := make(chan struct{})
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{DrainDelay: time.Hour}, func(s *Server) {
		s.sleep = func(time.Duration) { <-delayed }
	})
	conn := r.dial(t)
	health := grpc_health_v1.NewHealthClient(conn)
	r.checkHealth(t, "at first", true)
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("Check(other) = %v, want NOT_FOUND", err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: answer.ServiceName},
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if err != nil || len(reply.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection of %s: %v, %v", answer.ServiceName, reply, err)
	}
	// On shutdown, the server first turns unhealthy while calls are still answered.
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("Watch() = %v, %v, want SERVING", got, err)
	}
	r.stop()
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("Watch() after the stop = %v, %v, want NOT_SERVING", got, err)
	}
	if code, _ := get(t, "http://"+r.addr["http"]+"/healthcheck"); code != http.StatusInternalServerError {
		t.Errorf("/healthcheck while draining is %d, want 500", code)
	}
	checkOK(t, conn)
	close(delayed)
	// A graceful stop would wait for the watch until the drain timeout.
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("Watch() at the end of the delay = %v, want UNAVAILABLE", err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the reflection stream stays open")
	}
}

// TestReflectionStreamsAreBounded opens one more reflection stream than allowed, each on its own
// connection.
func TestReflectionStreamsAreBounded(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{})
	reflect := func() (func() error, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := grpc_reflection_v1.NewServerReflectionClient(r.dial(t)).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
				MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
			})
			if err != nil && !errors.Is(err, io.EOF) { // EOF means that Recv returns the error
				return err
			}
			_, err = stream.Recv()
			return err
		}, cancel
	}
	first, cancelFirst := reflect()
	if err := first(); err != nil {
		t.Fatal(err)
	}
	for range maxConversations - 1 {
		request, _ := reflect()
		if err := request(); err != nil {
			t.Fatal(err)
		}
	}
	request, _ := reflect()
	if err := request(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream beyond the bound: %v, want RESOURCE_EXHAUSTED", err)
	}
	checkOK(t, r.dial(t))
	cancelFirst()
	for range 10_000 { // until the server has received the cancellation
		request, _ := reflect()
		if request() == nil {
			return
		}
	}
	t.Error("the slot of a closed stream is not released")
}
