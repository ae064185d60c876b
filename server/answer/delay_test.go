package answer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// shaping admits one hit each 10 ms and delays up to 49 more.
const shaping = "{domain: d, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 0, max_wait: 1s, max_waiting: 49}}]}"

// outcome is the result of a call.
type outcome struct {
	after time.Duration
	over  bool
	err   error
}

// callAll makes n concurrent calls in a synctest bubble. It returns their outcomes in the order of
// their replies.
func callAll(ctx context.Context, t *testing.T, h *Handler, n int) []outcome {
	t.Helper()
	request := marshal(t, simpleRequest())
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var outcomes []outcome
	for range n {
		wg.Go(func() {
			x := &Exchange{Request: request}
			err := h.Answer(ctx, x, nil)
			o := outcome{after: time.Since(start), err: err}
			if err == nil {
				var reply rls.RateLimitResponse
				if err := proto.Unmarshal(x.Reply(), &reply); err != nil {
					t.Error(err)
				}
				o.over = reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, o)
		})
	}
	wg.Wait()
	return outcomes
}

func TestRepliesAreDelayed(t *testing.T) {
	s := service(t, Settings{}, shaping)
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(s, zap.NewNop(), nil, false)
		passed, denied := 0, 0
		for _, o := range callAll(t.Context(), t, h, 60) {
			if o.err != nil {
				t.Fatal(o.err)
			}
			if o.over {
				denied++
				if o.after != 0 {
					t.Errorf("a denial came after %v, want at once", o.after)
				}
				continue
			}
			if want := time.Duration(passed) * 10 * time.Millisecond; o.after != want {
				t.Errorf("call %d passed after %v, want %v", passed, o.after, want)
			}
			passed++
		}
		if passed != 50 || denied != 10 {
			t.Errorf("%d passed and %d were denied, want 50 and 10", passed, denied)
		}
		if got := testutil.ToFloat64(s.metrics.DelayedResponses); got != 49 {
			t.Errorf("%v calls waited, want 49", got)
		}
		if got := testutil.ToFloat64(s.metrics.PendingDelays); got != 0 {
			t.Errorf("%v calls wait still, want none", got)
		}
	})
}

func TestDelayFitsDeadline(t *testing.T) {
	s := service(t, Settings{}, shaping)
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(s, zap.NewNop(), nil, false)
		// The deadline allows delays of 10 and 20 ms.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond+deadlineMargin)
		defer cancel()
		passed := 0
		for _, o := range callAll(ctx, t, h, 10) {
			switch {
			case o.err != nil:
				t.Errorf("a call failed: %v", o.err)
			case !o.over:
				passed++
			case o.after != 0:
				t.Errorf("a denial came after %v, want at once", o.after)
			}
		}
		if passed != 3 {
			t.Errorf("%d calls passed, want 3", passed)
		}
	})
}

func TestCancelledDelayFreesItsSlot(t *testing.T) {
	s := service(t, Settings{}, shaping)
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(s, zap.NewNop(), nil, false)
		callAll(t.Context(), t, h, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var cancelled atomic.Int32
		go func() {
			err := h.Answer(ctx, &Exchange{Request: marshal(t, simpleRequest())}, nil)
			if status.Code(err) == codes.Canceled {
				cancelled.Add(1)
			}
		}()
		synctest.Wait()
		if got := testutil.ToFloat64(s.metrics.PendingDelays); got != 1 {
			t.Fatalf("%v calls wait, want 1", got)
		}
		cancel()
		synctest.Wait()
		if got := testutil.ToFloat64(s.metrics.CancelledDelays); cancelled.Load() != 1 || got != 1 {
			t.Errorf("%d calls ended as cancelled and %v were counted, want 1 and 1", cancelled.Load(), got)
		}
		// The next call gets the time of the cancelled one: after 10 ms, not 20.
		if o := callAll(t.Context(), t, h, 1)[0]; o.after != 10*time.Millisecond || o.over || o.err != nil {
			t.Errorf("the next call: %+v, want it to pass after 10ms", o)
		}
	})
}
