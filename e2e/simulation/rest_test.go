package simulation

import (
	"fmt"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// checkAtRest verifies what must be true when all requests have ended, and all faults.
func (w *world) checkAtRest() {
	for _, l := range w.limits {
		for _, tenant := range w.tenants {
			w.checkCounterAtRest(l, tenant)
		}
	}
	for _, r := range w.replicas {
		if codes := servertest.Conditions(r.daemon.Metrics); codes != "" {
			w.fail("%s: conditions at rest: %s", r.host, codes)
		}
		w.checkMetrics(r)
	}
}

// checkCounterAtRest verifies that a counter is as good as new, except for the leases of requests
// whose envoy could not report their end, or whose reply or end was forgotten.
func (w *world) checkCounterAtRest(l *limit, tenant string) {
	left, err := w.remaining(l, tenant)
	if err != nil {
		w.fail("a request at rest fails: %v", err)
		return
	}
	lost := uint64(0)
	for _, e := range w.ledger.of(l, tenant) {
		if e.endFailed || w.forgotten(e) {
			lost++
		}
	}
	whole, held := l.n, lost
	switch {
	case l.burst > 0:
		whole = l.burst
	case !l.grantsLeases():
		held = 0
	}
	if l.reserve > 0 { // the look-up has reserved hits, too
		whole, held = whole-l.reserve, held*l.reserve
	} else if l.algorithm != "concurrency" {
		held = 0
	}
	if left > whole || left+held < whole {
		w.fail("%s of %s has %d left at rest, want %d; at most %d may be held", l.key, tenant, left, whole, held)
	}
}

// forgotten reports whether the lease of a request may stay held: its connection broke with the reply,
// or with the news that its client had disconnected, or the store forgot its end in a failover.
func (w *world) forgotten(e *entry) bool {
	broken := w.during(e.sent, e.received.Add(10*time.Millisecond), func(f fault) bool {
		return f.host == e.replica && (f.kind == "reset" || f.kind == "kill" || f.kind == "restart")
	}) > 0
	failover := w.during(e.ending, e.ended, func(f fault) bool { return f.kind == "failover" }) > 0
	return e.outcome == unknown && broken || failover
}

// remaining returns the remaining hits of a counter.
func (w *world) remaining(l *limit, tenant string) (uint64, error) {
	e := w.envoys[0]
	q := &request{envoy: e, limit: l, tenant: tenant}
	reply, err := e.call(w.replicas[0].host, time.Hour, q.descriptor(0, false))
	if err != nil {
		return 0, fmt.Errorf("look up %s of %s: %w", l.key, tenant, err)
	}
	return uint64(reply.GetStatuses()[0].GetLimitRemaining()), nil
}

// never contains metrics that must stay 0: they count bugs of sluice, or attacks that do not occur.
var never = []string{
	"sluice_panics_total", "sluice_store_divergent_batches_total", "sluice_store_dropped_hits_total",
	"sluice_grpc_connections_closed_total flood", "sluice_grpc_connections_closed_total protocol",
	"sluice_grpc_connections_closed_total panic", "sluice_grpc_connections_closed_total memory",
	"sluice_delayed_responses_pending", "sluice_leases_ignored_total foreign",
}

// checkMetrics verifies that the counters of a replica are consistent.
func (w *world) checkMetrics(r *replica) {
	values := r.values()
	for _, name := range never {
		if values[name] != 0 && !w.isExpected(name) {
			w.fail("%s: %s is %v", r.host, name, values[name])
		}
	}
	for _, l := range w.limits {
		of := func(name string) float64 { return values["ratelimit_service_rate_limit_"+name+" "+domain+" "+l.key] }
		// Of a denied request with several hits, the first may fit; they are in neither metric.
		if total, rest := of("total_hits"), of("within_limit")+of("over_limit"); total < rest || total > rest && l.grantsLeases() {
			w.fail("%s: %s has %v hits, %v within the limit and %v over it", r.host, l.key, total, of("within_limit"), of("over_limit"))
		}
	}
}

// values returns the metrics of the current process. The names contain the values of the first two
// labels that are not empty.
func (p *process) values() map[string]float64 {
	families, err := p.daemon.Metrics.Registry.Gather()
	if err != nil {
		panic(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()+labels(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

func labels(m *dto.Metric) string {
	var b strings.Builder
	for i, l := range m.GetLabel() {
		if i < 2 && l.GetValue() != "" {
			b.WriteString(" " + l.GetValue())
		}
	}
	return b.String()
}
