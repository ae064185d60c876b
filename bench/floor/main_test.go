package main

import (
	"net"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestFloorAnswers checks that grpc-go's client accepts the replies.
func TestFloorAnswers(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	cc, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	client := rls.NewRateLimitServiceClient(cc)
	for range 3 {
		response, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d"})
		if err != nil || response.GetOverallCode() != rls.RateLimitResponse_OK || len(response.GetStatuses()) != 1 {
			t.Fatalf("answer %v, %v, want OK with one status", response, err)
		}
	}
}

// TestAnswerInPieces splits the input at each byte.
func TestAnswerInPieces(t *testing.T) {
	in := append([]byte(nil), ack...)
	in[4] = 0                                                             // SETTINGS
	in = append(in, "\x00\x00\x08\x06\x00\x00\x00\x00\x00"+"12345678"...) // PING
	in = append(in, "\x00\x00\x02\x01\x04\x00\x00\x00\x03"+"hh"...)       // HEADERS
	in = append(in, "\x00\x00\x01\x00\x01\x00\x00\x00\x03"+"d"...)        // DATA with END_STREAM
	complete, used := answer(nil, in)
	if want := len(ack) + 17 + len(reply); used != len(in) || len(complete) != want {
		t.Fatalf("%d bytes used of %d, %d answered, want %d", used, len(in), len(complete), want)
	}
	for cut := range in {
		out, n := answer(nil, in[:cut])
		if out, m := answer(out, in[n:]); string(out) != string(complete) || n+m != len(in) {
			t.Errorf("cut at %d: %q, want %q", cut, out, complete)
		}
	}
}
