package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Leases count the ends of leases, except expirations, which rules count. The fields may be used
// concurrently.
type Leases struct {
	// Done, Reset, Connection and Reload count released leases by the cause: the end call of a
	// stream, the reset of a call, the end of a client's last connection, and rules or rows without
	// their limit.
	Done, Reset, Connection, Reload prometheus.Counter
	// Stale and Foreign count releases without an effect: of leases that were released or expired
	// before, and of numbers that are not leases.
	Stale, Foreign prometheus.Counter
	// Reserved counts the hits that requests reserved, Settled those of them whose requests have
	// ended, and Cost the hits that were charged instead.
	Reserved, Settled, Cost prometheus.Counter
}

func newLeases(r *registry) Leases {
	released := r.counters("sluice_leases_released_total",
		"Leases that were released, by cause: Envoy's call at the end of a stream (done), the reset of the call that acquired them (reset), the end of all connections of an Envoy (connection), or a reload without their limit (reload).", "by")
	ignored := r.counters("sluice_leases_ignored_total",
		"Releases without an effect, by reason: the lease had been released or had expired (stale), or the number is not a lease (foreign).", "reason")
	hits := r.counters("sluice_reservation_hits_total",
		"Hits of reservations, by kind: reserved by all requests (reserved), reserved by the requests that have ended (settled), and charged at their ends instead (cost).", "kind")
	return Leases{
		Reserved: hits.WithLabelValues("reserved"), Settled: hits.WithLabelValues("settled"), Cost: hits.WithLabelValues("cost"),
		Done: released.WithLabelValues("done"), Reset: released.WithLabelValues("reset"),
		Connection: released.WithLabelValues("connection"), Reload: released.WithLabelValues("reload"),
		Stale: ignored.WithLabelValues("stale"), Foreign: ignored.WithLabelValues("foreign"),
	}
}

// AddLeases adds n, which may be negative, to the number of active leases of a limit.
func (c *RuleCounters) AddLeases(n int64) { c.activeLeases.Add(n) }

// CountExpired counts a lease of a limit that expired.
func (c *RuleCounters) CountExpired() { c.expired.Add(1) }

// CountReturned counts a lease that was returned at the end of its stream.
func (c *RuleCounters) CountReturned() { c.returned.Add(1) }

// CountCostDue counts a request whose cost is to be charged at the end of its stream: an admitted
// check with 0 hits, or the end of a reservation. leased is true if the request holds a lease of
// another limit, whose return shows that the stream has ended.
func (c *RuleCounters) CountCostDue(leased bool) {
	c.costsDue.Add(1)
	if leased {
		c.costsDueLeased.Add(1)
	}
}

// CountCost counts hits as the cost of an ended request, if any request had one to be charged then.
// Otherwise it costs a load.
func (c *RuleCounters) CountCost() {
	if c.costsDue.Load() > 0 {
		c.costsReceived.Add(1)
	}
}

// StreamEnds are counts of a limit that show whether Envoy reports the ends of streams. With a
// store, Expired includes leases that another process may have released.
type StreamEnds struct{ CostsDue, CostsDueLeased, CostsReceived, Returned, Expired uint64 }

// StreamEnds returns the current counts.
func (c *RuleCounters) StreamEnds() StreamEnds {
	return StreamEnds{
		CostsDue: c.costsDue.Load(), CostsDueLeased: c.costsDueLeased.Load(), CostsReceived: c.costsReceived.Load(),
		Returned: c.returned.Load(), Expired: c.expired.Load(),
	}
}

// BeforeCollect adds a function that is called before the counters of rules are read, to update
// them.
func (r *Rules) BeforeCollect(update func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = append(r.updates, update)
}

// leaseMetrics are the metrics of limits with leases or costs at the ends of streams. With a store
// leases are not counted, since another process may release them.
var leaseMetrics = []ruleMetric{
	{
		"sluice_leases_active",
		"Active leases of this process, that is requests in flight or reservations: neither released nor expired. Only without a store.",
		dto.MetricType_GAUGE,
		func(s *ruleSeries) (float64, bool) { return float64(s.counters.activeLeases.Load()), s.showsLeases() },
	},
	{
		"sluice_leases_expired_total",
		"Leases that expired because they were not released. Only without a store.",
		dto.MetricType_COUNTER,
		func(s *ruleSeries) (float64, bool) { return float64(s.counters.expired.Load()), s.showsLeases() },
	},
	{
		"sluice_costs_due_total",
		"Requests whose cost is to be charged at the end of their streams: admitted checks with 0 hits, and ended reservations. Absent before the first.",
		dto.MetricType_COUNTER,
		func(s *ruleSeries) (float64, bool) {
			due := s.counters.costsDue.Load()
			return float64(due), due > 0
		},
	},
	{
		"sluice_costs_received_total",
		"Charges with hits, except reservations and refunds, since the first request in sluice_costs_due_total. Absent before that.",
		dto.MetricType_COUNTER,
		func(s *ruleSeries) (float64, bool) {
			return float64(s.counters.costsReceived.Load()), s.counters.costsDue.Load() > 0
		},
	},
}

func (s *ruleSeries) showsLeases() bool {
	return s.counters.activeLeases.Load() > 0 || !s.stored && (s.limit.Leases || s.counters.expired.Load() > 0)
}
