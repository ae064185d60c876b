package server

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestTransportIsReported checks that the log and the metrics name the transport.
func TestTransportIsReported(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{})
	var transports []string
	for _, e := range r.logs.FilterMessage("listening").All() {
		if v, ok := e.ContextMap()["transport"].(string); ok {
			transports = append(transports, v)
		}
	}
	if !slices.Equal(transports, []string{transportBuiltin}) {
		t.Errorf("the log names the transports %q", transports)
	}
	want := map[string]float64{transportBuiltin: 1}
	if diff := cmp.Diff(want, gathered(t, s, "sluice_grpc_transport_info")); diff != "" {
		t.Errorf("sluice_grpc_transport_info: -want +got\n%s", diff)
	}
	if n := gathered(t, s, "sluice_grpc_connections"); n != nil {
		t.Errorf("sluice_grpc_connections is %v before the first connection", n)
	}
	conn := r.dial(t)
	checkOK(t, conn)
	if diff := cmp.Diff(want, gathered(t, s, "sluice_grpc_connections")); diff != "" {
		t.Errorf("sluice_grpc_connections: -want +got\n%s", diff)
	}
	_ = conn.Close()
	await(t, "no connection is open", func() bool { return gathered(t, s, "sluice_grpc_connections") == nil })
}
