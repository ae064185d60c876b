package answer

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/leases"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// ServiceName is the gRPC service's full name.
const ServiceName = "envoy.service.ratelimit.v3.RateLimitService"

// Service answers requests. Its methods may be called concurrently.
type Service struct {
	settings Settings
	table    *limiter.Table
	decider  Decider
	later    bool // the decider may decide after its Decide has returned
	metrics  *telemetry.Metrics
	rules    atomic.Pointer[serving]
	live     *live.Live
	// now is settings.Clock's, nil without it.
	now    func() limiter.Time
	leases *leases.Lessor
	panics *telemetry.Panics // set by [NewHandler]
	quota  Exchange          // of CountQuota

	onServeMu sync.Mutex // guards onServe
	onServe   []func()   // called after the rules have changed
}

// serving is a rule set with what requests need beside it.
type serving struct {
	set   *descriptors.Set
	rows  *descriptors.Snapshot // of tables that have their rows from files
	since time.Time             // in force
	// counters are those of set.Limits, in their order.
	counters *telemetry.Configured
	// partitions is parallel to set.Domains(); nil is the common partition.
	partitions []*limiter.Partition
	// labels is parallel to set.Domains(): the domains' names in metrics.
	labels []string
	// live is parallel to set.Domains().
	live     []*live.Domain
	metadata map[*descriptors.Rule]*object
}

// NewService returns a service without rules: it answers errNoRules until the
// first [Service.Serve].
func NewService(settings Settings, table *limiter.Table, metrics *telemetry.Metrics) *Service {
	s := &Service{settings: settings, table: table, decider: memory{table}, metrics: metrics}
	s.live = live.New(cmp.Or(settings.TopKeys, live.Hashed), table.Key(), settings.Namer)
	if settings.Decider != nil {
		s.decider, s.later = settings.Decider, true
	}
	metrics.Conditions.WhileGrows(telemetry.MemoryFull, func() uint64 { return table.Stats().Evicted })
	if clock := settings.Clock; clock != nil {
		s.now = func() limiter.Time {
			now, _ := clock.Now()
			return now
		}
	}
	s.leases = leases.New(leases.Options{
		Grace: settings.LeaseGrace, Shared: s.later, Now: s.now, Decider: s.decider, Plan: s.planActive,
		Panicked: func(value any) { s.panics.Report(value) }, Metrics: &metrics.Leases,
	})
	metrics.Rules.BeforeCollect(s.leases.Expire)
	return s
}

// Serve is [Service.Activate] for rules without rows.
func (s *Service) Serve(now limiter.Time, set *descriptors.Set) error {
	return s.Activate(now, set, nil)
}

// Activate activates a rule set, together with rows of tables by the tables' names, at the time now and in one step: a request
// that begins later has all of them, an earlier one has none. If the memory of counters has no room for the set's max_counters,
// Activate returns an error and changes nothing. The rows must fit the set. It must not be called concurrently with itself or
// with ActivateRows.
func (s *Service) Activate(now limiter.Time, set *descriptors.Set, rows map[string]*tables.Rows) error {
	bounds := map[string]int64{}
	for _, domain := range set.Domains() {
		bounds[domain] = set.MaxCounters(domain)
	}
	reserved, err := s.table.Partitions(now, bounds)
	if err != nil {
		return fmt.Errorf("max_counters: %w: lower it, or raise --counter-memory", err)
	}
	set.Inherit(s.Rules())
	partitions := make([]*limiter.Partition, len(set.Domains()))
	for i, domain := range set.Domains() {
		partitions[i] = reserved[domain]
	}
	labels := make([]string, len(set.Domains()))
	for i, domain := range set.Domains() {
		labels[i] = descriptors.MetricDomain(domain)
	}
	metadata := map[*descriptors.Rule]*object{}
	for _, l := range set.Limits {
		if l.Rule.Metadata() != nil && metadata[l.Rule] == nil {
			metadata[l.Rule] = newObject(l.Rule.Metadata())
		}
	}
	var scratch []byte
	had := s.limitsOfRuntime()
	counters := s.metrics.Rules.Configure(labels, len(set.Limits), func(i int) telemetry.RuleLimit {
		l := set.Limits[i]
		key, key1End, key2End := s.settings.metricKeys().Append(scratch[:0], l.Rule, nil)
		scratch = key
		limit := telemetry.RuleLimit{Key: telemetry.NewRuleKey(labels[l.Rule.DomainIndex()], l.Label, key, key1End, key2End)}
		if !l.Rule.Unlimited {
			limit.Requests, limit.Window, limit.Leases = uint64(l.RequestsPerUnit), l.Policy.Window, l.Policy.UsesLeases()
			limit.Penalty = l.Policy.Penalty != nil
			limit.Divided = l.Rule.Divided() != nil && !l.Rule.Shadow && !l.Rule.RuntimeMetric
		}
		return limit
	})
	for _, l := range set.Limits {
		if len(had) > 0 && (l.Rule.RuntimeMetric || l.Table != nil) {
			for _, c := range had[labelOf(l)] {
				c.SetLimit(l.Index)
			}
		}
	}
	s.live.Tick(time.Unix(0, int64(now)))
	s.replaceRows(rows)
	s.rules.Store(&serving{set: set, rows: set.Snapshot(s.settings.Tables), since: time.Unix(0, int64(now)).UTC(), counters: counters, partitions: partitions, labels: labels, live: s.live.Serve(set), metadata: metadata})
	s.leases.Review(true)
	s.onServeMu.Lock()
	changed := s.onServe
	s.onServeMu.Unlock()
	for _, f := range changed {
		f()
	}
	return nil
}

// ActivateRows activates rows of tables by the tables' names, in one step for all tables. The rows must fit the active rules.
func (s *Service) ActivateRows(rows map[string]*tables.Rows) {
	s.replaceRows(rows)
	s.changeTables(func(r *serving) { r.rows = r.set.Snapshot(s.settings.Tables) })
}

// replaceRows replaces the rows of tables. Requests see them with the next snapshot.
func (s *Service) replaceRows(rows map[string]*tables.Rows) {
	for name, r := range rows {
		e, _ := s.settings.Tables.Table(name) // it has the name
		e.Replace(r)
	}
}

// limitLabel names a limit over loads, as metrics do.
type limitLabel struct{ domain, rule, label string }

func labelOf(l *descriptors.Limit) limitLabel {
	return limitLabel{l.Rule.Domain(), l.Rule.Path(), l.Label}
}

// limitsOfRuntime returns the counters whose keys hold values of requests, by their limits.
func (s *Service) limitsOfRuntime() map[limitLabel][]*telemetry.RuleCounters {
	rules, all := s.rules.Load(), map[limitLabel][]*telemetry.RuleCounters{}
	s.metrics.Rules.EachRuntime(func(limit int, c *telemetry.RuleCounters) {
		if rules != nil && limit >= 0 && limit < len(rules.set.Limits) {
			name := labelOf(rules.set.Limits[limit])
			all[name] = append(all[name], c)
		}
	})
	return all
}

// Rules returns the rule set in force, or nil.
func (s *Service) Rules() *descriptors.Set {
	if r := s.rules.Load(); r != nil {
		return r.set
	}
	return nil
}

// OnServe adds a function to those that are called after the rules have changed.
func (s *Service) OnServe(changed func()) {
	s.onServeMu.Lock()
	defer s.onServeMu.Unlock()
	s.onServe = append(s.onServe, changed)
}

// Settings returns the settings of the service, which do not change.
func (s *Service) Settings() *Settings { return &s.settings }

// Live returns the record of denied and unmatched requests.
func (s *Service) Live() *live.Live { return s.live }

// Metrics returns the metrics that requests are counted in.
func (s *Service) Metrics() *telemetry.Metrics { return s.metrics }

// Up reports whether what decides can be reached.
func (s *Service) Up() bool { return s.decider.Up() }

// DecidesLater reports whether requests may be decided after [Service.Begin] has returned.
func (s *Service) DecidesLater() bool { return s.later }
