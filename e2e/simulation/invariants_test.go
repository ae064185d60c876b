package simulation

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// handmade is a world without parties, whose ledger is made by hand. Its limits are 3 per 10 s.
type handmade struct {
	*world

	limit *limit
}

func newHandmade(algorithm string) *handmade {
	l := &limit{key: algorithm, algorithm: algorithm, n: 3, window: 10 * time.Second}
	if strings.HasSuffix(algorithm, "bucket") {
		l.burst = 2
	}
	began := time.Unix(1_700_000_000, 0) // the start of a window
	return &handmade{&world{scenario: &scenario{limits: []*limit{l}, tenants: []string{"ann"}}, began: began, traffic: began}, l}
}

// add adds a request of one hit that is decided between the given second and 0.1 s later.
func (h *handmade) add(at float64, o outcome) *entry {
	sent := h.began.Add(time.Duration(at * float64(time.Second)))
	e := &entry{limit: h.limit, tenant: "ann", replica: "sluice-0", hits: 1, outcome: o, sent: sent, received: sent.Add(100 * time.Millisecond)}
	h.ledger.add(e)
	return e
}

// addRunning adds an admitted request that ends at the given second.
func (h *handmade) addRunning(at, ends float64) {
	e := h.add(at, admitted)
	e.ending = h.began.Add(time.Duration(ends * float64(time.Second)))
	e.ended = e.ending
}

// addManyRunning adds one request more than the limit, all running from a second on.
func (h *handmade) addManyRunning(at float64) {
	for range h.limit.n + 1 {
		h.addRunning(at, at+2)
	}
}

// addOutage lets the store be silent for a second. It is found to be available again within 4 s.
func (h *handmade) addOutage(at float64) {
	h.shared, h.fallback, h.processes = true, store.Local, []*process{{host: "sluice-0"}}
	f := fault{at: time.Duration(at * float64(time.Second)), kind: "silence", host: "store-0", d: time.Second}
	h.faults, h.faultEnds = []fault{f}, []time.Time{h.began.Add(f.at)}
}

// addWithoutStore adds four requests in the 7th second, when a replica has no store. All are at
// sluice-0.
func (h *handmade) addWithoutStore(o outcome, f store.Fallback, replica string) {
	h.addOutage(6)
	h.faults[0].host, h.fallback = replica, f
	h.addAll(o, 7, 7, 7, 7)
}

// addUnanswered adds a call whose deadline has passed.
func (h *handmade) addUnanswered(at float64) {
	e := h.add(at, unknown)
	e.replica, e.unanswered = "sluice-0", context.DeadlineExceeded
	h.callTimeout = time.Second
	h.checkAnswered()
}

// reserves has assignments reserve a part of the limit after a suspension.
func reserves(part float64) func(*handmade) {
	return func(h *handmade) {
		assignRates(1)(h)
		h.quotas.ledger.reserved, h.quotas.ledger.samples = 10*part, 10
		h.quotas.ledger.checkReserved()
	}
}

// assignRates assigns rates per hour of a limit of 100 per second to Envoys.
func assignRates(rates ...quota.Rate) func(*handmade) {
	return func(h *handmade) {
		h.began = time.Now()
		h.quota = &quotaPlan{envoys: len(rates), rates: []uint64{100}, demands: map[string][]demand{"steady": nil}}
		h.quotas = newQuotas(h.world)
		for i, rate := range rates {
			e, b := h.quotas.envoys[i], new(quotaBucket)
			b.Start(e.now())
			b.Apply(e.now(), &quota.Action{Kind: quota.Assign, TTL: time.Minute, Rate: rate, MaxTokens: 1})
			e.buckets["steady"] = b
			h.quotas.ledger.applied(e, "steady", b, 0)
		}
	}
}

func (h *handmade) addAll(o outcome, at ...float64) {
	for _, s := range at {
		h.add(s, o)
	}
}

// TestInvariantsCanFail breaks every invariant once. Without the change, the same ledger passes.
func TestInvariantsCanFail(t *testing.T) {
	atRest := func(algorithm string, left uint64) func(*handmade) {
		return func(h *handmade) { h.checkCounterAtRest(h.limit, "ann", left) }
	}
	checkHits := func(total, within float64) func(*handmade) {
		return func(h *handmade) {
			h.addAll(admitted, 0, 1)
			h.add(2, denied).hits = 3
			h.addAll(unknown, 3)
			const name = "ratelimit_service_rate_limit_"
			h.checkHits([]metrics{{name + "total_hits sim fixed_window": total, name + "within_limit sim fixed_window": within}})
		}
	}
	tests := []struct {
		name, algorithm, violation string
		passes, fails              func(*handmade)
	}{
		{
			"one hit too many in a fixed window", "fixed_window", "fixed_window of ann admitted 4 hits within 8.1s, at most 3 allowed",
			func(h *handmade) { h.addAll(admitted, 0, 7, 8, 12) }, func(h *handmade) { h.addAll(admitted, 0, 6, 7, 8) },
		},
		{
			"one hit too many in a sliding window", "sliding_window", "admitted 4 hits within 9.1s, at most 3 allowed",
			func(h *handmade) { h.addAll(admitted, 2, 7, 8, 12) }, func(h *handmade) { h.addAll(admitted, 3, 7, 8, 12) },
		},
		{
			"one hit too many in a sliding log", "sliding_log", "admitted 4 hits within 9.9s, at most 3 allowed",
			func(h *handmade) { h.addAll(admitted, 2.2, 7, 8, 12.1) }, func(h *handmade) { h.addAll(admitted, 2.3, 7, 8, 12.1) },
		},
		{
			"one hit too many in a token bucket", "token_bucket", "admitted 3 hits within 3.3s, at most 2 allowed",
			func(h *handmade) { h.addAll(admitted, 1, 1, 4.3) }, func(h *handmade) { h.addAll(admitted, 1, 1, 4.2) },
		},
		{
			"one hit too many in a leaky bucket", "leaky_bucket", "admitted 3 hits within 3.3s, at most 2 allowed",
			func(h *handmade) { h.addAll(admitted, 1, 1, 4.3) }, func(h *handmade) { h.addAll(admitted, 1, 1, 4.2) },
		},
		{
			"one request too many at the same time", "concurrency", "concurrency of ann has 4 requests at the same time",
			func(h *handmade) {
				for at := range 4 {
					h.addRunning(float64(at), float64(at)+2.5)
				}
			},
			func(h *handmade) {
				for at := range 4 {
					h.addRunning(float64(at), float64(at)+3.5)
				}
			},
		},
		{
			"one request too many at the same time, after an outage", "concurrency", "concurrency of ann has 4 requests at the same time",
			func(h *handmade) { h.addOutage(6); h.addManyRunning(8) }, func(h *handmade) { h.addOutage(0); h.addManyRunning(8) },
		},
		{
			"hits of a replica that has its store", "sliding_window", "admitted 4 hits within 100ms, at most 3 allowed",
			func(h *handmade) { h.addWithoutStore(admitted, store.Allow, "sluice-0") }, func(h *handmade) { h.addWithoutStore(admitted, store.Allow, "sluice-1") },
		},
		{
			"hits of one process too many", "sliding_window", "admitted 7 hits within 100ms, at most 6 allowed",
			func(h *handmade) { h.addWithoutStore(admitted, store.Local, "sluice-0"); h.addAll(admitted, 7, 7) },
			func(h *handmade) { h.addWithoutStore(admitted, store.Local, "sluice-0"); h.addAll(admitted, 7, 7, 7) },
		},
		{
			"a denial of a replica that has its store", "sliding_window", "denied 1 hits at 7s, although at most 0.0 of 3 may be used",
			func(h *handmade) { h.addWithoutStore(denied, store.Deny, "sluice-0") }, func(h *handmade) { h.addWithoutStore(denied, store.Deny, "sluice-1") },
		},
		{
			"one reservation too many", "token_bucket", "token_bucket of ann has 2 requests at the same time", // of two hits each
			func(h *handmade) { h.limit.reserve = 2; h.addRunning(1, 3); h.addRunning(2, 2.05); h.addRunning(3, 4) },
			func(h *handmade) { h.limit.reserve = 2; h.addRunning(1, 3); h.addRunning(2.5, 4) },
		},
		{
			"a denial too many in a fixed window", "fixed_window", "denied 1 hits at 12s, although at most 2.0 of 3 may be used",
			func(h *handmade) { h.addAll(admitted, 10, 10, 11); h.addAll(denied, 12) },
			func(h *handmade) { h.addAll(admitted, 9, 10, 11); h.addAll(denied, 12) },
		},
		{
			"a denial too many in a sliding window", "sliding_window", "denied 1 hits at 14s, although at most 2.0 of 3 may be used",
			func(h *handmade) { h.addAll(admitted, 3, 10, 11); h.addAll(denied, 12, 13.9) },
			func(h *handmade) { h.addAll(admitted, 2, 10, 11); h.addAll(denied, 12, 14) },
		},
		{
			"a denial too many in a token bucket", "token_bucket", "denied 1 hits at 4.5s, although at most 1.0 of 2 may be used",
			func(h *handmade) { h.addAll(admitted, 1, 1); h.addAll(denied, 4.3) },
			func(h *handmade) { h.addAll(admitted, 1, 1); h.addAll(denied, 4.5) },
		},
		{
			"an answer after its deadline", "fixed_window", "a call to sluice-0 ended",
			func(h *handmade) { h.checkDeadline("sluice-0", time.Now().Add(time.Hour)) },
			func(h *handmade) { h.checkDeadline("sluice-0", time.Now().Add(-time.Second)) },
		},
		{
			"a call without an answer", "fixed_window", "a call to sluice-0 at 8s was not answered although there was no fault",
			func(h *handmade) { h.addOutage(6); h.addUnanswered(8) }, func(h *handmade) { h.addOutage(0); h.addUnanswered(8) },
		},
		{
			"a rate too high", "fixed_window", "quota-1 gets 180001/h of steady, the sum is 360001, at most 360000 allowed",
			assignRates(180_000, 180_000), assignRates(180_000, 180_001),
		},
		{
			"an assignment for a stream that had ended", "fixed_window", "after a suspension, what Envoys have received reserves 0.89 of the limit",
			reserves(0.91), reserves(0.89),
		},
		{
			"messages that are queued for a client that does not read", "fixed_window", "3 messages were queued",
			func(h *handmade) { h.checkQueued(2) }, func(h *handmade) { h.checkQueued(3) },
		},
		{
			"an answer without a call", "fixed_window", "envoy-0: the server violates the protocol: [FrameHeader RST_STREAM",
			func(h *handmade) { resetStream(h, http2.ErrCodeNo) }, func(h *handmade) { resetStream(h, http2.ErrCodeCancel) },
		},
		{
			"a permit held at rest", "concurrency", "concurrency of ann has 2 left at rest, want 3; at most 0 may be held",
			atRest("concurrency", 3), atRest("concurrency", 2),
		},
		{
			"a hit left at rest", "token_bucket", "token_bucket of ann has 1 left at rest, want 2", atRest("token_bucket", 2), atRest("token_bucket", 1),
		},
		{
			"a permit too many at rest", "concurrency", "concurrency of ann has 4 left at rest, want 3", atRest("concurrency", 3), atRest("concurrency", 4),
		},
		{
			"a metric that goes back", "fixed_window", "sluice-0: sluice_calls_total method was 2 and is 1",
			func(h *handmade) {
				h.checkMonotone("sluice-0", metrics{"sluice_calls_total method": 2, "gauge": 2}, metrics{"sluice_calls_total method": 2, "gauge": 1})
			},
			func(h *handmade) {
				h.checkMonotone("sluice-0", metrics{"sluice_calls_total method": 2}, metrics{"sluice_calls_total method": 1})
			},
		},
		{
			"a metric that must be 0", "fixed_window", "sluice-0: sluice_panics_total is 1",
			func(h *handmade) { h.checkMetrics("sluice-0", metrics{"sluice_panics_total": 0}) },
			func(h *handmade) { h.checkMetrics("sluice-0", metrics{"sluice_panics_total": 1}) },
		},
		{
			"more hits within and over than in total", "fixed_window", "sluice-0: fixed_window has 3 hits, 2 within the limit and 2 over it",
			func(h *handmade) { h.checkMetrics("sluice-0", limitMetrics(3, 2, 1)) }, func(h *handmade) { h.checkMetrics("sluice-0", limitMetrics(3, 2, 2)) },
		},
		{"an answer that is not counted", "fixed_window", "the metrics have 4, 2 of them within the limit", checkHits(5, 2), checkHits(4, 2)},
		{"hits that nobody sent", "fixed_window", "the metrics have 7, 2 of them within the limit", checkHits(6, 2), checkHits(7, 2)},
		{"an admitted hit that is not within", "fixed_window", "the metrics have 5, 1 of them within the limit", checkHits(5, 3), checkHits(5, 1)},
		{
			"a condition that is still active", "fixed_window", "sluice-0: conditions at rest: store_unavailable",
			func(h *handmade) { raise(t, h, true) }, func(h *handmade) { raise(t, h, false) },
		},
	}
	for _, test := range tests {
		h := newHandmade(test.algorithm)
		test.passes(h)
		if h.ledger.check(h.world); len(h.failures) > 0 {
			t.Errorf("%s: the ledger without it fails: %q", test.name, h.failures)
		}
		h = newHandmade(test.algorithm)
		test.fails(h)
		if h.ledger.check(h.world); len(h.failures) != 1 || !strings.Contains(h.failures[0], test.violation) {
			t.Errorf("%s: reported %q, want one violation with %q", test.name, h.failures, test.violation)
		}
	}
}

func limitMetrics(total, within, over float64) metrics {
	const name = "ratelimit_service_rate_limit_"
	return metrics{name + "total_hits sim fixed_window": total, name + "within_limit sim fixed_window": within, name + "over_limit sim fixed_window": over}
}

// resetStream lets a server reset a stream that was not opened. A reset without an error is ignored.
func resetStream(h *handmade, code http2.ErrCode) {
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	c, err := h2client.New(here, h2client.Options{})
	if err == nil {
		err = http2.NewFramer(there, nil).WriteRSTStream(1, code)
	}
	if err != nil {
		panic(err)
	}
	_ = there.Close()
	<-c.Done
	h.checkProtocol("envoy-0", c)
}

// raise raises a condition, and may clear it.
func raise(t *testing.T, h *handmade, clears bool) {
	t.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	logger := m.Events.Watch(zap.NewNop())
	telemetry.Raise(logger, telemetry.StoreUnavailable, "store")
	if clears {
		logger.Info("store recovered", telemetry.Clear("store", telemetry.StoreUnavailable))
	}
	h.checkConditions("sluice-0", m)
}
