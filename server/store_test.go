package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// asyncStore decides asynchronously with the counters of a table: in random order and from its own
// goroutines. The time of each decision is noon, so that delays do not depend on the machine.
type asyncStore struct {
	table *limiter.Table
	// manual is true if decisions are only made by calls of decide.
	manual bool
	// atOnce is true if the decision is made before Decide returns.
	atOnce bool
	// err is the result instead of a decision, if it is not nil.
	err error
	// panics makes Decide panic before it has received the charges.
	panics bool
	down   atomic.Int64

	mu       sync.Mutex
	waiting  []func()
	deciding sync.WaitGroup
}

func (s *asyncStore) Decide(_ limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (bool, error) {
	if len(names) != len(b.Charges) || !strings.HasPrefix(string(names[0]), "p:s1{") {
		return true, fmt.Errorf("names are %q", names)
	}
	if s.panics {
		panic("a bug in the store")
	}
	decide := func() {
		if s.err == nil {
			s.table.Decide(noon, b)
		}
		w.Decided(s.err)
	}
	if s.atOnce {
		decided := make(chan struct{})
		s.deciding.Go(func() { decide(); close(decided) })
		<-decided
		return false, nil
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, decide)
	s.mu.Unlock()
	if !s.manual {
		s.deciding.Go(func() {
			for range rand.IntN(50) {
				runtime.Gosched()
			}
			s.decide(1)
		})
	}
	return false, nil
}

// decide makes n pending decisions, in random order.
func (s *asyncStore) decide(n int) {
	for range n {
		s.mu.Lock()
		i := rand.IntN(len(s.waiting))
		next := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.mu.Unlock()
		next()
	}
}

// await waits until n decisions are pending.
func (s *asyncStore) await(n int) {
	for {
		s.mu.Lock()
		got := len(s.waiting)
		s.mu.Unlock()
		if got == n {
			return
		}
		runtime.Gosched()
	}
}

func (s *asyncStore) Cancel(_ limiter.Time, b *limiter.Batch, _ [][]byte) {
	s.table.Cancel(noon, b)
}

func (s *asyncStore) Reset(_ context.Context, _ limiter.Time, _ *limiter.Batch, names [][]byte, i int) (uint64, error) {
	return uint64(len(names[i])), s.err
}

func (s *asyncStore) Up() bool { return s.down.Load() == 0 }

// serviceWithStore returns a service with the given rules whose decider is s.
func serviceWithStore(t *testing.T, s *asyncStore, rules string) *answer.Service {
	t.Helper()
	s.table = newTable(t)
	t.Cleanup(s.deciding.Wait)
	return serviceOn(t, s.table, answer.Settings{Decider: s, Namer: descriptors.NewNamer("p:", nil)}, rules)
}

// TestStoreDecidesAsynchronously sends requests on several connections, which a store decides in
// any order. Each call gets the reply to its own request, and the limit is enforced.
func TestStoreDecidesAsynchronously(t *testing.T) {
	const limit, callers, calls = 500, 8, 200
	for _, store := range []*asyncStore{{}, {atOnce: true}} {
		s := serviceWithStore(t, store, fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]}", limit))
		r := serve(t, s, Options{})
		client := rls.NewRateLimitServiceClient(r.dial(t))
		var admitted, remained atomic.Int64
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				for range calls {
					reply, err := client.ShouldRateLimit(t.Context(), simpleRequest())
					switch {
					case err != nil || len(reply.GetStatuses()) != 1:
						t.Errorf("a call got %v, %v", reply, err)
					case reply.GetOverallCode() == rls.RateLimitResponse_OK:
						admitted.Add(1)
						remained.Add(int64(reply.GetStatuses()[0].GetLimitRemaining()))
					}
				}
			})
		}
		calling.Wait()
		// Each admitted call has a different number of remaining hits, from limit-1 to 0.
		if got, sum := admitted.Load(), remained.Load(); got != limit || sum != limit*(limit-1)/2 {
			t.Errorf("%d calls were admitted, and the sum of their remaining hits is %d, want %d and %d", got, sum, limit, limit*(limit-1)/2)
		}
	}
}

// TestStoreWithoutDecision uses a store that fails or panics. Each failure affects one reply.
func TestStoreWithoutDecision(t *testing.T) {
	for _, test := range []struct {
		name  string
		store *asyncStore
		codes string
		want  codes.Code
		text  string
	}{
		{"failing", &asyncStore{err: errors.New("down")}, "compatible", codes.Unknown, "no decision by the store: down"},
		{"failing immediately", &asyncStore{err: errors.New("down"), atOnce: true}, "precise", codes.Unavailable, "no decision by the store: down"},
		{"panicking", &asyncStore{panics: true}, "compatible", codes.Internal, "internal error"},
	} {
		s := serviceWithStore(t, test.store, oneRule)
		r := serve(t, s, Options{StatusCodes: test.codes})
		client := rls.NewRateLimitServiceClient(r.dial(t))
		for range 3 {
			_, err := client.ShouldRateLimit(t.Context(), simpleRequest())
			if status.Code(err) != test.want || status.Convert(err).Message() != test.text {
				t.Errorf("%s: %v, want %v: %s", test.name, err, test.want, test.text)
			}
		}
		test.store.err, test.store.panics = nil, false
		checkOK(t, r.dial(t))
		failures, panics := testutil.ToFloat64(s.Metrics().StoreErrors), testutil.ToFloat64(s.Metrics().Panics)
		others := testutil.ToFloat64(s.Metrics().ServiceErrors)
		if failed := test.want != codes.Internal; failed && (failures != 3 || others != 0) || !failed && (panics != 3 || others != 3) {
			t.Errorf("%s: %v errors of the store, %v other errors and %v panics are counted", test.name, failures, others, panics)
		}
	}
}

// TestStoreDecisionsBelongToTheirRequests makes calls on one connection, which wait for a store
// while the next ones arrive. Each call must be counted under the value of its own request.
func TestStoreDecisionsBelongToTheirRequests(t *testing.T) {
	const calls = 50
	store := &asyncStore{manual: true}
	s := serviceWithStore(t, store, "{domain: d, descriptors: [{key: k, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}]}")
	r := serve(t, s, Options{})
	client := rls.NewRateLimitServiceClient(r.dial(t))
	var calling sync.WaitGroup
	for n := range calls {
		calling.Go(func() {
			request := simpleRequest()
			request.Descriptors[0].Entries[0].Value = fmt.Sprintf("value%02d", n)
			if _, err := client.ShouldRateLimit(t.Context(), request); err != nil {
				t.Error(err)
			}
		})
		store.await(n + 1) // the next request is read into the same buffer
	}
	store.decide(calls)
	calling.Wait()
	page := r.metricsPage(t)
	for n := range calls {
		if series := fmt.Sprintf(`rule="k_value%02d"} 1`, n); !strings.Contains(page, series) {
			t.Errorf("no series with %s", series)
			break
		}
	}
}

// TestDrainWaitsForStore stops a server while a store is deciding. All calls are answered,
// including those whose replies are delayed afterwards.
func TestDrainWaitsForStore(t *testing.T) {
	const calls = 20
	store := &asyncStore{manual: true}
	s := serviceWithStore(t, store, shaping)
	r := serve(t, s, Options{})
	client := rls.NewRateLimitServiceClient(r.dial(t))
	results := make(chan error, calls)
	for range calls {
		go func() {
			reply, err := client.ShouldRateLimit(t.Context(), simpleRequest())
			if err == nil && reply.GetOverallCode() != rls.RateLimitResponse_OK {
				err = errors.New("denied")
			}
			results <- err
		}()
	}
	store.await(calls)
	r.stop()
	for r.logs.FilterMessage("draining").Len() == 0 {
		runtime.Gosched()
	}
	store.decide(calls)
	for range calls {
		if err := <-results; err != nil {
			t.Errorf("a call that a store decided during the drain: %v", err)
		}
	}
}

// TestJSONWithStore sends a request to /json.
func TestJSONWithStore(t *testing.T) {
	s := serviceWithStore(t, &asyncStore{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]}")
	r := serve(t, s, Options{})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		const request = `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`
		if code, _ := send(t, http.MethodPost, "http://"+r.addr["http"]+"/json", request); code != want {
			t.Errorf("/json = %d, want %d", code, want)
		}
	}
}

// TestCountersOfTheStore looks up a counter.
func TestCountersOfTheStore(t *testing.T) {
	store := &asyncStore{}
	s := serviceWithStore(t, store, "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 9}}]}")
	r := serve(t, s, Options{})
	checkOK(t, r.dial(t))
	url := "http://" + r.addr["debug"] + "/counters?domain=d&descriptor=k=v"
	for _, test := range []struct {
		method, want string
		fail         error
	}{
		{http.MethodGet, `"used": 1`, nil},
		{http.MethodGet, `"error": "no decision by the store: down"`, errors.New("down")},
	} {
		store.err = test.fail
		code, body := send(t, test.method, url, "")
		if !strings.Contains(body, test.want) || (code == http.StatusServiceUnavailable) != (test.fail != nil) {
			t.Errorf("%s = %d, %s, want %s", test.method, code, body, test.want)
		}
	}
}

// TestRequestsWithoutChargesSkipStore sends requests without charges, which need no store.
func TestRequestsWithoutChargesSkipStore(t *testing.T) {
	s := serviceWithStore(t, &asyncStore{panics: true}, "{domain: d, descriptors: [{key: other, rate_limit: {unit: year, requests_per_unit: 1}}]}")
	var c answer.Exchange
	if _, _, err := s.Answer(noon, time.Minute, &c, marshal(t, simpleRequest())); err != nil {
		t.Errorf("a request that matches no rule: %v", err)
	}
}
