package server

import (
	"fmt"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// transportGRPC is the value of [Options].Transport for grpc-go.
const transportGRPC = "grpc-go"

// TestGRPCGoRepliesAreEqual makes the same calls over both transports and compares replies, codes,
// messages, headers and trailers.
func TestGRPCGoRepliesAreEqual(t *testing.T) {
	const limitPath, healthPath = "/" + answer.ServiceName + "/ShouldRateLimit", "/grpc.health.v1.Health/Check"
	request := func(change func(r *rls.RateLimitRequest)) []byte {
		r := simpleRequest()
		change(r)
		return marshal(t, r)
	}
	simple := marshal(t, simpleRequest())
	healthOf := func(name string) []byte { return marshal(t, &grpc_health_v1.HealthCheckRequest{Service: name}) }
	calls := []struct {
		name, path string
		message    []byte
		options    []grpc.CallOption
	}{
		{"admitted", limitPath, simple, nil},
		{"denied", limitPath, request(func(r *rls.RateLimitRequest) { r.HitsAddend = 1 << 30 }), nil},
		{"no domain", limitPath, nil, nil},
		{"no descriptors", limitPath, request(func(r *rls.RateLimitRequest) { r.Descriptors = nil }), nil},
		{"cut short", limitPath, simple[:len(simple)-1], nil},
		{"too many descriptors", limitPath, request(func(r *rls.RateLimitRequest) { r.Descriptors = many(1001) }), nil},
		{"a message that is too large", limitPath, request(func(r *rls.RateLimitRequest) { r.Domain = strings.Repeat("d", 5<<20) }), nil},
		{"another method", "/" + answer.ServiceName + "/Other", simple, nil},
		{"another service", "/x/y", simple, nil},
		{"healthy", healthPath, healthOf(answer.ServiceName), nil},
		{"health of another service", healthPath, healthOf("other"), nil},
	}
	got := map[string][]string{}
	for _, name := range []string{transportBuiltin, transportGRPC} {
		s := service(t, answer.Settings{}, oneRule)
		conn := serve(t, s, Options{Transport: name}).dial(t, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
		for _, call := range calls {
			var reply []byte
			var header, trailer metadata.MD
			err := conn.Invoke(t.Context(), call.path, call.message, &reply, append(call.options, grpc.Header(&header), grpc.Trailer(&trailer))...)
			if call.path == limitPath && err == nil {
				reply = withoutReset(t, reply)
			}
			header.Delete("content-type") // grpc-go repeats the content type of the request
			trailer.Delete("content-type")
			got[name] = append(got[name], fmt.Sprintf("%s: %q %v %v %v", call.name, reply, err, header, trailer))
		}
		if n := testutil.ToFloat64(s.Metrics().Rejected.Message); n != 1 {
			t.Errorf("over %s, %v messages were counted as too large, want 1", name, n)
		}
	}
	if diff := cmp.Diff(got[transportBuiltin], got[transportGRPC]); diff != "" {
		t.Errorf("replies over the built-in transport (-) and over grpc-go (+):\n%s", diff)
	}
}

// withoutReset returns a reply without the time until reset, which differs between two calls.
func withoutReset(t *testing.T, reply []byte) []byte {
	t.Helper()
	var m rls.RateLimitResponse
	if err := proto.Unmarshal(reply, &m); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.GetStatuses() {
		s.DurationUntilReset = nil
	}
	return marshal(t, &m)
}

// TestGRPCGoChecksClients connects over TLS with and without a certificate, without making a call.
func TestGRPCGoChecksClients(t *testing.T) {
	ca, files := serverFiles(t)
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{
		Transport: transportGRPC,
		TLS:       serverTLS(t, access.TLSOptions{Cert: files.Cert, Key: files.Key, CA: files.CA, PeerName: san}),
	})
	client := write(t, issue(t, ca, testcert.Leaf{Names: []string{san}}), ca.PEM)
	if err := r.request(t, clientTLS(t, access.TLSOptions{Cert: client.Cert, Key: client.Key, CA: files.CA})); err != nil {
		t.Errorf("a call with a certificate: %v", err)
	}
	if err := r.request(t, clientTLS(t, access.TLSOptions{CA: files.CA})); status.Code(err) != codes.Unavailable {
		t.Errorf("a call without a certificate: %v, want UNAVAILABLE", err)
	}
	if err := r.request(t, insecure.NewCredentials()); status.Code(err) != codes.Unavailable {
		t.Errorf("a call without TLS: %v, want UNAVAILABLE", err)
	}
}

// TestGRPCGoHasBounds exceeds the bounds of a connection, of a call and of headers.
func TestGRPCGoHasBounds(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{Transport: transportGRPC, Limits: transport.Limits{MaxConnections: 1, MaxHeaderBytes: 2 << 10}})
	conn := r.dial(t)
	checkOK(t, conn)
	awaitEnd(r.connect(t, ""))
	if got := gathered(t, s, "sluice_grpc_transport_info"); !cmp.Equal(got, map[string]float64{transportGRPC: 1}) {
		t.Errorf("sluice_grpc_transport_info is %v", got)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 3<<10))
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, simpleRequest()); err == nil {
		t.Error("a call with headers beyond --max-header-size succeeds")
	}
	checkOK(t, conn)
}
