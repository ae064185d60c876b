package answer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPanicCostsOneReply makes requests panic before they are matched, before they are charged, and
// afterwards. The call is answered, the process continues, and the panic is counted and logged
// without the request.
func TestPanicCostsOneReply(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	good := s.rules.Load()
	core, logs := observer.New(zap.ErrorLevel)
	h := NewHandler(s, zap.New(core), nil, false)
	x := &Exchange{Request: marshal(t, simpleRequest())}
	for i, faulty := range []*activeRules{
		{partitions: good.partitions, counters: good.counters, labels: good.labels}, // no set for matching
		{set: good.set, counters: good.counters, labels: good.labels},               // no partitions for charging
		{set: good.set, partitions: good.partitions, labels: good.labels},           // no counters for charged hits
	} {
		s.rules.Store(faulty)
		if err := h.Answer(t.Context(), x, nil); status.Code(err) != codes.Internal {
			t.Errorf("error is %v, want INTERNAL", err)
		}
		if got := testutil.ToFloat64(s.metrics.Panics); got != float64(i+1) || logs.Len() != 1 {
			t.Errorf("%v panics counted and %d logged, want %d and 1", got, logs.Len(), i+1)
		}
		s.rules.Store(good)
		if err := h.Answer(t.Context(), x, nil); err != nil || len(x.Reply()) == 0 {
			t.Errorf("the next request: %v, %x, want a reply", err, x.Reply())
		}
	}
}
