package simulation

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

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

// reserves has assignments reserve a part of the limit after a suspension.
func reserves(part float64) act {
	return func(h *handmade) {
		assignRates(1)(h)
		h.quotas.ledger.reserved, h.quotas.ledger.samples = 10*part, 10
		h.quotas.ledger.checkReserved()
	}
}

// assignRates assigns rates per hour of a limit of 100 per second to Envoys.
func assignRates(rates ...quota.Rate) act {
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

// left checks the number of hits that are left at rest.
func left(n uint64) act { return func(h *handmade) { h.checkCounterAtRest(h.limit, ordersTenant, n) } }

// deadline checks a call whose deadline is some time from now.
func deadline(from time.Duration) act {
	return func(h *handmade) { h.checkDeadline("sluice-0", time.Now().Add(from)) }
}

func queued(n int) act { return func(h *handmade) { h.checkQueued(n) } }

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
}

// raise raises a condition, and may clear it.
func raise(clears bool) act {
	return func(h *handmade) {
		m, err := telemetry.New(telemetry.Options{})
		if err != nil {
			panic(err)
		}
		logger := m.Events.Watch(zap.NewNop())
		telemetry.Raise(logger, telemetry.StoreUnavailable, "store")
		if clears {
			logger.Info("store recovered", telemetry.Clear("store", telemetry.StoreUnavailable))
		}
		h.checkConditions("sluice-0", m)
	}
}
