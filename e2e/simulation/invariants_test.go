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
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestInvariantsCanFail breaks every invariant once. Without the change, the same ledger passes.
func TestInvariantsCanFail(t *testing.T) {
	shadow := rule(func(o *orderRule) { o.shadow = true })
	penalty := rule(func(o *orderRule) { o.penalty = 3 * time.Second })
	type acts = []act
	for _, test := range []struct {
		kind, algorithm, violation string // kind is that of orders, or empty
		passes, fails              acts
	}{
		// Limits admit too much.
		{"", "fixed_window", "fixed_window of ann admitted 4 hits within 8.1s, at most 3 allowed", acts{admit(0, 7, 8, 12)}, acts{admit(0, 6, 7, 8)}},
		{"", "sliding_window", "admitted 4 hits within 9.1s, at most 3 allowed", acts{admit(2, 7, 8, 12)}, acts{admit(3, 7, 8, 12)}},
		{"", "sliding_log", "admitted 4 hits within 9.9s, at most 3 allowed", acts{admit(2.2, 7, 8, 12.1)}, acts{admit(2.3, 7, 8, 12.1)}},
		{"", "token_bucket", "admitted 3 hits within 3.3s, at most 2 allowed", acts{admit(1, 1, 4.3)}, acts{admit(1, 1, 4.2)}},
		{"", "leaky_bucket", "admitted 3 hits within 3.3s, at most 2 allowed", acts{admit(1, 1, 4.3)}, acts{admit(1, 1, 4.2)}},
		{"", "concurrency", "concurrency of ann has 4 requests at the same time", acts{fourRun(0, 1, 2.5)}, acts{fourRun(0, 1, 3.5)}},
		{"", "concurrency", "concurrency of ann has 4 requests at the same time", acts{outage(6), fourRun(8, 0, 2)}, acts{outage(0), fourRun(8, 0, 2)}},
		{ // a replica that has its store
			"", "sliding_window", "admitted 4 hits within 100ms, at most 3 allowed",
			acts{withoutStore(admitted, store.Allow, "sluice-0")},
			acts{withoutStore(admitted, store.Allow, "sluice-1")},
		},
		{ // one process too many
			"", "sliding_window", "admitted 7 hits within 100ms, at most 6 allowed",
			acts{withoutStore(admitted, store.Local, "sluice-0"), admit(7, 7)},
			acts{withoutStore(admitted, store.Local, "sluice-0"), admit(7, 7, 7)},
		},
		{ // reservations of two hits each
			"", "token_bucket", "token_bucket of ann has 2 requests at the same time",
			acts{reserve(2), runs(1, 3), runs(2, 2.05), runs(3, 4)},
			acts{reserve(2), runs(1, 3), runs(2.5, 4)},
		},

		// Limits deny too much.
		{"", "fixed_window", "denied 1 hits at 12s, although at most 2.0 of 3 may be used", acts{admit(10, 10, 11), deny(12)}, acts{admit(9, 10, 11), deny(12)}},
		{"", "sliding_window", "denied 1 hits at 14s, although at most 2.0 of 3 may be used", acts{admit(3, 10, 11), deny(12, 13.9)}, acts{admit(2, 10, 11), deny(12, 14)}},
		{"", "token_bucket", "denied 1 hits at 4.5s, although at most 1.0 of 2 may be used", acts{admit(1, 1), deny(4.3)}, acts{admit(1, 1), deny(4.5)}},
		{"", "fixed_window", "blocks of ann admitted 2 hits", acts{blocksOf, admit(0, 1, 2), deny(3)}, acts{blocksOf, admit(0, 1), deny(3)}},
		{ // a replica that has its store
			"", "sliding_window", "denied 1 hits at 7s, although at most 0.0 of 3 may be used",
			acts{withoutStore(denied, store.Deny, "sluice-0")},
			acts{withoutStore(denied, store.Deny, "sluice-1")},
		},

		// Calls.
		{"", "fixed_window", "a call to sluice-0 ended", acts{deadline(time.Hour)}, acts{deadline(-time.Second)}},
		{"", "fixed_window", "a call to sluice-0 at 8s was not answered although there was no fault", acts{outage(6), unanswered(8)}, acts{outage(0), unanswered(8)}},
		{
			"", "fixed_window", "envoy-0: the server violates the protocol: [FrameHeader RST_STREAM",
			acts{resetStream(http2.ErrCodeNo)},
			acts{resetStream(http2.ErrCodeCancel)},
		},

		// At rest, and metrics.
		{"", "concurrency", "concurrency of ann has 2 left at rest, want 3; at most 0 may be held", acts{left(3)}, acts{left(2)}},
		{"", "concurrency", "concurrency of ann has 4 left at rest, want 3", acts{left(3)}, acts{left(4)}},
		{"", "token_bucket", "token_bucket of ann has 1 left at rest, want 2", acts{left(2)}, acts{left(1)}},
		{"", "fixed_window", "sluice-0: conditions at rest: store_unavailable", acts{raise(true)}, acts{raise(false)}},
		{"", "fixed_window", "sluice-0: sluice_calls_total method was 2 and is 1", acts{monotone(2, 1)}, acts{monotone(1, 2)}},
		{"", "fixed_window", "sluice-0: sluice_panics_total is 1", acts{panics(0)}, acts{panics(1)}},
		{"", "fixed_window", "sluice-0: fixed_window has 3 hits, 2 within the limit and 2 over it", acts{consistent(3, 2, 1)}, acts{consistent(3, 2, 2)}},
		{"", "fixed_window", "the metrics have 4, 2 of them within the limit", acts{counted(5, 2)}, acts{counted(4, 2)}}, // an answer is not counted
		{"", "fixed_window", "the metrics have 7, 2 of them within the limit", acts{counted(6, 2)}, acts{counted(7, 2)}}, // more than were sent
		{"", "fixed_window", "the metrics have 5, 1 of them within the limit", acts{counted(5, 3)}, acts{counted(5, 1)}},

		// Orders.
		{"table", "sliding_window", "admitted 4 hits within", acts{change("row", 4, 0, 5), admit(1, 2, 3, 4)}, acts{change("row", 4, 0, 0.5), admit(1, 2, 3, 4)}},
		{
			"table", "sliding_window", "denied 1 hits at 4s without a reason",
			acts{change("row", 2, 0, 3), admit(1, 2), deny(4)},
			acts{change("row", 2, 0, 2.8), admit(1, 2), deny(4)},
		},
		{ // the first hits were returned, because the other limit denied them
			"group", "token_bucket", "denied 1 hits at 2s without a reason",
			acts{admit(1), add(refunded, 1.5), deny(2)},
			acts{admit(1), add(refunded, 0.5), deny(2)},
		},
		{
			"refunded", "fixed_window", "admitted 4 hits within",
			acts{admit(1, 2, 3, 4), change("refund", 1, 3.5, 3.6)},
			acts{admit(1, 2, 3, 4), change("refund", 1, 5, 6)},
		},
		{ // before the interval, but in its window
			"refunded", "fixed_window", "admitted 4 hits within",
			acts{blocks, change("refund", 1, 0.5, 0.6), admit(1, 2, 3, 4)},
			acts{blocks, change("refund", 1, -0.6, -0.5), admit(1, 2, 3, 4)},
		},
		{
			"refunded", "fixed_window", "admitted 4 hits within",
			acts{blocks, change("refund", 1, 0.5, 0.6), admit(1, 2, 3, 4)},
			acts{change("refund", 1, 0.5, 0.6), admit(1, 2, 3, 4)},
		},
		{
			"reset", "fixed_window", "denied 1 hits at 6s without a reason",
			acts{admit(1, 2, 3), change("reset", 0, 4, 5), deny(6)},
			acts{admit(1, 2, 3), change("reset", 0, 4, 4.8), deny(6)},
		},
		{
			"shadow", "fixed_window", "the rule shadow, which only counts, denied a request at 2s",
			acts{shadow, admit(1, 1, 1, 1)},
			acts{shadow, admit(1, 1, 1), deny(2)},
		},
		{
			"removed", "fixed_window", "sluice-0 denied a request at 3s, although it has no rule for removed",
			acts{change("rule", 0, 2, 3.001), admit(1, 1, 1), deny(3)},
			acts{change("rule", 0, 2, 4), admit(1, 1, 1), deny(3)},
		},
		{
			"penalty", "fixed_window", "penalty admitted a request at 11s, although it denied one at 9s and has a penalty of 3s",
			acts{penalty, admit(1, 1, 1, 12), deny(9, 11)},
			acts{penalty, admit(1, 1, 1, 11), deny(9)},
		},
		{"delayed", "leaky_bucket", "admitted 3 hits within", acts{delayed(24.36)}, acts{delayed(24.2)}}, // the last is due 10/3 s after the second
		{
			"delayed", "leaky_bucket", "the response to a request at 21.2s came at 24.6s, but was due before 24.3",
			acts{delayed(24.36)},
			acts{delayed(24.6)},
		},
	} {
		for _, fails := range []bool{false, true} {
			h, all := newHandmade(test.kind, test.algorithm), test.passes
			if fails {
				all = test.fails
			}
			for _, do := range all {
				do(h)
			}
			h.ledger.check(h.world)
			h.orders.check()
			if fails && (len(h.failures) != 1 || !strings.Contains(h.failures[0], test.violation)) || !fails && len(h.failures) > 0 {
				t.Errorf("%s, %s: reported %q (%t), want %q", test.kind, test.algorithm, h.failures, fails, test.violation)
			}
		}
	}
}

// handmade is a world without parties, whose ledger is made by hand. Its limit is 3 per 10 s.
type handmade struct {
	*world

	limit *limit
	kind  *orderKind    // of all requests, with only one rule; nil for none
	takes time.Duration // until the response to a request
}

// An act changes a handmade world. Its times are seconds after the start of a window.
type act func(*handmade)

func newHandmade(kind, algorithm string) *handmade {
	l := &limit{key: algorithm, algorithm: algorithm, n: 3, window: 10 * time.Second}
	if strings.HasSuffix(algorithm, "bucket") {
		l.burst = 2
	}
	began := time.Unix(1_700_000_000, 0) // the start of a window
	w := &world{scenario: &scenario{limits: []*limit{l}, tenants: []string{ordersTenant}, callTimeout: time.Second}, began: began, traffic: began}
	h := &handmade{world: w, limit: l, takes: 100 * time.Millisecond}
	w.orders = &orders{world: w}
	if kind != "" {
		h.kind = &orderKind{name: kind, rules: []*orderRule{{key: kind, limits: w.limits}}}
		h.limits, h.takes, w.orders.kinds = nil, 10*time.Millisecond, []*orderKind{h.kind}
	}
	return h
}

func (h *handmade) at(seconds float64) time.Time {
	return h.began.Add(time.Duration(seconds * float64(time.Second)))
}

func (h *handmade) add(at float64, o outcome) *entry {
	sent := h.at(at)
	e := &entry{limit: h.limit, tenant: ordersTenant, replica: "sluice-0", hits: 1, outcome: o, sent: sent, received: sent.Add(h.takes)}
	h.ledger.add(e)
	return e
}

// add adds requests of one hit.
func add(o outcome, at ...float64) act {
	return func(h *handmade) {
		for _, s := range at {
			h.add(s, o)
		}
	}
}

func admit(at ...float64) act { return add(admitted, at...) }
func deny(at ...float64) act  { return add(denied, at...) }

// runs adds an admitted request that ends at a time.
func runs(at, ends float64) act {
	return func(h *handmade) {
		e := h.add(at, admitted)
		e.ending, e.ended = h.at(ends), h.at(ends)
	}
}

// reserve lets each request reserve hits.
func reserve(n uint64) act { return func(h *handmade) { h.limit.reserve = n } }

// fourRun adds one request more than the limit. Each lasts for the given seconds, and the next one is sent
// an interval later.
func fourRun(first, interval, lasts float64) act {
	return func(h *handmade) {
		for i := range 4 {
			at := first + float64(i)*interval
			runs(at, at+lasts)(h)
		}
	}
}

// change adds a change of the rule between two times.
func change(kind string, n uint64, from, to float64) act {
	return func(h *handmade) {
		h.orders.note(h.kind.rules[0], ruleChange{kind: kind, replica: "sluice-0", n: n, ok: true, from: h.at(from), to: h.at(to), active: h.at(from), until: h.at(to)})
	}
}

// blocks lets replicas use blocks.
func blocks(h *handmade) { h.blocks = "auto" }

// blocksOf lets replicas use blocks of the limit.
func blocksOf(h *handmade) {
	blocks(h)
	h.limit.key = "blocks"
	h.rules = yamlOf(h.limits)
}

// rule changes the rule.
func rule(change func(*orderRule)) act { return func(h *handmade) { change(h.kind.rules[0]) } }

// delayed adds two requests in the 21st second, and a third whose response comes at the given time.
func delayed(at float64) act {
	return func(h *handmade) {
		h.kind.waits, h.callTimeout = 5*time.Second, 10*time.Second
		admit(21, 21)(h)
		h.add(21.2, admitted).received = h.at(at)
	}
}

// outage lets the store be silent for a second. It is found to be available again within 4 s.
func outage(at float64) act {
	return func(h *handmade) {
		h.shared, h.fallback, h.processes = true, store.Local, []*process{{host: "sluice-0"}}
		h.faults, h.faultEnds = []fault{{at: h.at(at).Sub(h.began), kind: "silence", host: "store-0", d: time.Second}}, []time.Time{h.at(at)}
	}
}

// withoutStore adds four requests at sluice-0 in the 7th second, when a replica has no store.
func withoutStore(o outcome, f store.Fallback, replica string) act {
	return func(h *handmade) {
		outage(6)(h)
		h.faults[0].host, h.fallback = replica, f
		add(o, 7, 7, 7, 7)(h)
	}
}

// unanswered adds a call whose deadline has passed.
func unanswered(at float64) act {
	return func(h *handmade) {
		h.add(at, unknown).unanswered = context.DeadlineExceeded
		h.checkAnswered()
	}
}

// left checks the number of hits that are left at rest.
func left(n uint64) act { return func(h *handmade) { h.checkCounterAtRest(h.limit, ordersTenant, n) } }

// deadline checks a call whose deadline is some time from now.
func deadline(from time.Duration) act {
	return func(h *handmade) { h.checkDeadline("sluice-0", time.Now().Add(from)) }
}

// monotone checks that a counter and a gauge, which were 2, are not less.
func monotone(counter, gauge float64) act {
	return func(h *handmade) {
		h.checkMonotone("sluice-0", metrics{"sluice_calls_total method": 2, "gauge": 2}, metrics{"sluice_calls_total method": counter, "gauge": gauge})
	}
}

func panics(n float64) act {
	return func(h *handmade) { h.checkMetrics("sluice-0", metrics{"sluice_panics_total": n}) }
}

// limitMetrics returns metrics of the limit.
func limitMetrics(total, within, over float64) metrics {
	const name = "ratelimit_service_rate_limit_"
	return metrics{name + "total_hits sim fixed_window": total, name + "within_limit sim fixed_window": within, name + "over_limit sim fixed_window": over}
}

// consistent checks whether metrics are consistent.
func consistent(total, within, over float64) act {
	return func(h *handmade) { h.checkMetrics("sluice-0", limitMetrics(total, within, over)) }
}

// counted checks metrics after two admitted hits, three that were denied and one without an answer.
func counted(total, within float64) act {
	return func(h *handmade) {
		admit(0, 1)(h)
		h.add(2, denied).hits = 3
		h.add(3, unknown)
		h.checkHits([]metrics{limitMetrics(total, within, 0)})
	}
}

// resetStream lets a server reset a stream that was not opened. A reset without an error is ignored.
func resetStream(code http2.ErrCode) act {
	return func(h *handmade) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		c := mustHave(h2client.New(here, h2client.Options{}))
		panicOn(http2.NewFramer(there, nil).WriteRSTStream(1, code))
		_ = there.Close()
		<-c.Done
		h.checkProtocol("envoy-0", c)
	}
}

// raise raises a condition, and may clear it.
func raise(clears bool) act {
	return func(h *handmade) {
		m := mustHave(telemetry.New(telemetry.Options{}))
		logger := m.Events.Watch(zap.NewNop())
		telemetry.Raise(logger, telemetry.StoreUnavailable, "store")
		if clears {
			logger.Info("store recovered", telemetry.Clear("store", telemetry.StoreUnavailable))
		}
		h.checkConditions("sluice-0", m)
	}
}
