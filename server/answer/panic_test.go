package answer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPanicCostsOneReply breaks the service's state. The call is answered, the process continues,
// and the panic is counted and logged without the request.
func TestPanicCostsOneReply(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	decider := s.decider
	s.decider = nil
	core, logs := observer.New(zap.ErrorLevel)
	h := NewHandler(s, zap.New(core), nil, false)
	x := &Exchange{Request: marshal(t, simpleRequest())}
	if err := h.Answer(t.Context(), x, nil); status.Code(err) != codes.Internal {
		t.Errorf("error is %v, want INTERNAL", err)
	}
	if got := testutil.ToFloat64(s.metrics.Panics); got != 1 || logs.Len() != 1 {
		t.Errorf("%v panics counted and %d logged, want 1 and 1", got, logs.Len())
	}
	s.decider = decider
	if err := h.Answer(t.Context(), x, nil); err != nil || len(x.Reply()) == 0 {
		t.Errorf("the next request: %v, %x, want a reply", err, x.Reply())
	}
}
