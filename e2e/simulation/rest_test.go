package simulation

import (
	"context"
	"strings"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// checkAtRest verifies what must be true when all requests have ended, and all faults.
func (w *world) checkAtRest() {
	for _, l := range w.limits {
		for _, tenant := range w.tenants {
			if left, ok := w.remaining(domain, l.key, tenant); ok {
				w.checkCounterAtRest(l, tenant, left)
			}
		}
	}
	for _, r := range w.replicas {
		w.checkConditions(r.host, r.daemon.Metrics)
		w.checkMetrics(r.host, r.values())
	}
	var all []metrics
	for _, p := range w.processes {
		all = append(all, p.values())
	}
	w.checkHits(all)
}

// checkConditions verifies that every condition was cleared when its cause was over.
func (w *world) checkConditions(host string, m *telemetry.Metrics) {
	if codes := w.unexpected(servertest.Conditions(m)); codes != "" {
		w.fail("%s: conditions at rest: %s", host, codes)
	}
}

// checkCounterAtRest verifies that a counter is as good as new, except for the leases of requests
// whose envoy could not report their end, or whose reply or end was forgotten.
func (w *world) checkCounterAtRest(l *limit, tenant string, left uint64) {
	lost := uint64(0)
	for _, e := range w.ledger.of(l, tenant) {
		restarted := !w.shared && e.received.Before(w.replica(e.replica).started) // which releases leases (docs/state-file.md)
		if !restarted && (e.endFailed || w.forgotten(e)) {
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
	if l.reserve > 0 {
		held *= l.reserve
	} else if l.algorithm != "concurrency" {
		if held = min(l.waiting, 1); l.maxWait > w.callTimeout-4*maxLatency {
			held = l.waiting // the call may have no time to wait; otherwise intervals are rounded up
		}
	}
	if left > whole || left+held < whole {
		w.fail("%s of %s has %d left at rest, want %d; at most %d may be held", l.key, tenant, left, whole, held)
	}
}

// forgotten reports whether the lease of a request may stay held: its connection broke with the reply,
// or with the report that its client had disconnected; the store forgot its end in a failover; or its
// replica was killed in an outage, before it could report the lease or the end to the store
// (docs/failure-modes.md, "Requests in flight").
func (w *world) forgotten(e *entry) bool {
	broken := w.during(e.sent, e.received.Add(10*time.Millisecond), func(f fault) bool {
		return f.host == e.replica && (f.kind == "reset" || effectsOf[f.kind].starts)
	}) > 0
	failover := w.during(e.ending, e.ended, func(f fault) bool { return f.isFailover() }) > 0
	return e.outcome == unknown && broken || failover ||
		w.killedInOutage(e.replica, e.sent, e.received) || w.killedInOutage(e.endReplica, e.ending, e.ended)
}

// killedInOutage reports whether a replica was killed soon after an interval in which the store may
// have been unavailable.
func (w *world) killedInOutage(replica string, from, to time.Time) bool {
	return w.during(from, to, func(f fault) bool { return effectsOf[f.kind].outage && w.affects(f, replica) }) > 0 &&
		w.during(from, to.Add(10*time.Second), func(f fault) bool { return f.kind == "kill" && f.host == replica }) > 0
}

// remaining returns the remaining hits of a counter.
func (w *world) remaining(domain, key, tenant string) (left uint64, ok bool) {
	request := &rls.RateLimitRequest{Domain: domain, Descriptors: []*rlcommon.RateLimitDescriptor{newDescriptor(key, tenant, 0, false)}}
	reply, err := w.envoys[0].call(w.replicas[0].host, time.Hour, request)
	if err != nil {
		w.fail("a request at rest for %s of %s fails: %v", key, tenant, err)
		return 0, false
	}
	return uint64(reply.GetStatuses()[0].GetLimitRemaining()), true
}

// never contains metrics that must stay 0: they count bugs of sluice, or attacks that do not occur.
var never = []string{
	"sluice_panics_total", "sluice_store_divergent_batches_total", "sluice_store_dropped_hits_total",
	"sluice_grpc_connections_closed_total flood", "sluice_grpc_connections_closed_total protocol",
	"sluice_grpc_connections_closed_total panic", "sluice_grpc_connections_closed_total memory",
	"sluice_delayed_responses_pending", "sluice_leases_ignored_total foreign",
}

// metrics are the metrics of a process. The names contain the values of the first two labels that are
// not empty.
type metrics map[string]float64

// ofLimit returns a metric of a limit.
func (m metrics) ofLimit(name string, l *limit) float64 {
	return m["ratelimit_service_rate_limit_"+name+" "+domain+" "+l.key]
}

// checkMetrics verifies that the metrics of a replica are consistent.
func (w *world) checkMetrics(host string, values metrics) {
	for _, name := range never {
		if values[name] != 0 && !w.isExpected(name) {
			w.fail("%s: %s is %v", host, name, values[name])
		}
	}
	for _, l := range w.limits {
		total, within, over := values.ofLimit("total_hits", l), values.ofLimit("within_limit", l), values.ofLimit("over_limit", l)
		// Of a denied request with several hits, the first may fit; they are in neither metric.
		if total < within+over || total > within+over && l.grantsLeases() {
			w.fail("%s: %s has %v hits, %v within the limit and %v over it", host, l.key, total, within, over)
		}
	}
}

// checkHits verifies that the processes have counted each answered request once, and no other hits.
func (w *world) checkHits(all []metrics) {
	for _, l := range w.limits {
		if l.reserve > 0 {
			continue // costs are hits, too
		}
		var total, within float64
		for _, m := range all {
			total, within = total+m.ofLimit("total_hits", l), within+m.ofLimit("within_limit", l)
		}
		var sent, answered, admits float64
		for _, e := range w.ledger.entries {
			if e.limit != l {
				continue
			}
			sent += float64(e.hits)
			if e.outcome == admitted || e.outcome == denied {
				answered += float64(e.hits)
			}
			if e.outcome == admitted {
				admits += float64(e.hits)
			}
		}
		if total < answered || total > sent || within < admits {
			w.fail("%s: %v hits were sent, %v answered and %v admitted; the metrics have %v, %v of them within the limit", l.key, sent, answered, admits, total, within)
		}
	}
}

// watchMetrics verifies until ctx ends that no counter goes back.
func (w *world) watchMetrics(ctx context.Context) {
	before := map[*process]metrics{}
	for sleep(ctx, 10*time.Second) {
		for _, r := range w.replicas {
			if p := r.process; p.daemon != nil {
				now := p.values()
				w.checkMonotone(r.host, before[p], now)
				before[p] = now
			}
		}
	}
}

// checkMonotone verifies that no counter is less than before.
func (w *world) checkMonotone(host string, before, now metrics) {
	for _, name := range sortedKeys(before) {
		if counter, _, _ := strings.Cut(name, " "); strings.HasSuffix(counter, "_total") || strings.HasPrefix(counter, "ratelimit_service_rate_limit_") {
			if removed := strings.Contains(name, " "+ordersDomain+" removed"); !removed && now[name] < before[name] {
				w.fail("%s: %s was %v and is %v", host, name, before[name], now[name])
			}
		}
	}
}

// values returns the metrics of the process.
func (p *process) values() metrics {
	values := metrics{}
	for _, f := range mustHave(p.daemon.Metrics.Registry.Gather()) {
		for _, m := range f.GetMetric() {
			names := []string{f.GetName()}
			for i, l := range m.GetLabel() {
				if i < 2 && l.GetValue() != "" {
					names = append(names, l.GetValue())
				}
			}
			values[strings.Join(names, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}
