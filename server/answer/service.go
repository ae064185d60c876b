package answer

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
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
	settings     Settings
	table        *limiter.Table
	decider      Decider
	decidesAsync bool // whether the decider may decide after its Decide has returned
	metrics      *telemetry.Metrics
	rules        atomic.Pointer[activeRules]
	live         *live.Recorder
	// now reads settings.Clock; nil without a clock.
	now           func() limiter.Time
	leases        *leases.Lessor
	panics        *telemetry.Panics     // set by [NewHandler]
	adds          additions             // additions to replies, from settings
	denied        *rules.DeniedResponse // copy of [Settings].DeniedResponse
	quotaExchange Exchange              // scratch of CountQuota
	notices       notices

	onRulesChangedMu sync.Mutex // protects onRulesChanged
	onRulesChanged   []func()   // called after the rules have changed
}

// activeRules is a rule set with the data that requests look up by it.
type activeRules struct {
	set   *descriptors.Set
	rows  *descriptors.Snapshot // rows of the tables that are loaded from files
	since time.Time             // time of activation
	// counters is parallel to set.Limits.
	counters *telemetry.Configured
	// partitions is parallel to set.Domains(). Nil is the shared partition.
	partitions []*limiter.Partition
	// labels is parallel to set.Domains(). It contains the values of the label domain in metrics.
	labels []string
	// live is parallel to set.Domains().
	live []*live.Domain
	// describesDenials reports whether something may be added to denials, reportsSoft whether replies
	// may name soft limits, and notices whether there are notices.
	describesDenials, reportsSoft, notices bool
}

// NewService returns a service without rules, which returns errNoRules until the first
// [Service.SetRules].
func NewService(settings Settings, table *limiter.Table, metrics *telemetry.Metrics) *Service {
	s := &Service{settings: settings, table: table, decider: tableDecider{table}, metrics: metrics}
	s.notices.dropped = metrics.NoticesDropped
	s.live = live.New(cmp.Or(settings.TopKeys, live.Hashed), table.Key(), settings.Namer)
	s.adds = settings.additions()
	if d := rules.DeniedPreset(settings.DeniedResponse); !d.IsNone() {
		s.denied = d
	}
	if settings.Decider != nil {
		s.decider = settings.Decider
		s.decidesAsync = true
	}
	if settings.ShadowMode {
		metrics.ShadowMode.Set(1)
	}
	if settings.CountsAlone() {
		metrics.CountsAlone.Set(1)
	}
	metrics.Conditions.WhileGrows(telemetry.MemoryFull, func() uint64 { return table.Stats().Evicted })
	if clock := settings.Clock; clock != nil {
		s.now = func() limiter.Time {
			now, _ := clock.Now()
			return now
		}
	}
	s.leases = leases.New(leases.Options{
		Grace: settings.LeaseGrace, Shared: s.decidesAsync, Now: s.now, Decider: s.decider, Plan: s.planByActiveRules,
		Panicked: func(value any) { s.panics.Report(value) }, Metrics: &metrics.Leases,
	})
	metrics.Rules.BeforeCollect(s.leases.Expire)
	return s
}

// SetRules is [Service.Activate] without table rows.
func (s *Service) SetRules(now limiter.Time, set *descriptors.Set) error {
	return s.Activate(now, set, nil)
}

// Activate atomically activates a rule set and the rows of tables, by table name, at the time now.
// It returns an error and changes nothing if there is not enough counter memory for the set's
// max_counters, or if the set has a choice and [Settings].NoChoices is not empty. The rows must fit
// the set. Activate must not be called concurrently with itself or with ActivateRows.
func (s *Service) Activate(now limiter.Time, set *descriptors.Set, rows map[string]*tables.Rows) error {
	if why := s.settings.NoChoices; why != "" {
		if err := set.CheckChoices(why); err != nil {
			return err
		}
	}
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
	var scratch []byte
	old := s.runtimeCounters()
	counters := s.metrics.Rules.Configure(labels, len(set.Limits), func(i int) telemetry.RuleLimit {
		l := set.Limits[i]
		key, key1End, key2End := s.settings.metricKeys().Append(scratch[:0], l.Rule, nil)
		scratch = key
		limit := telemetry.RuleLimit{Key: telemetry.NewRuleKey(labels[l.Rule.DomainIndex()], l.Label, key, key1End,
			key2End)}
		if !l.Rule.Unlimited {
			limit.Requests = uint64(l.RequestsPerUnit)
			limit.Window = l.Policy.Window
			limit.Leases = l.Policy.UsesLeases()
			limit.Penalty = l.Policy.Penalty != nil
			limit.Divided = l.Rule.Divided() != nil && !l.Rule.Shadow && !l.Rule.RuntimeMetric
		}
		return limit
	})
	for _, l := range set.Limits {
		if len(old) > 0 && (l.Rule.RuntimeMetric || l.Table != nil) {
			for _, c := range old[limitLabelOf(l)] {
				c.SetLimit(l.Index)
			}
		}
	}
	s.live.SetTime(time.Unix(0, int64(now)))
	s.replaceRows(rows)
	s.rules.Store(&activeRules{
		set: set, rows: set.Snapshot(s.settings.Tables), since: time.Unix(0, int64(now)).UTC(), counters: counters,
		partitions: partitions, labels: labels, live: s.live.SetRules(set),
		describesDenials: s.adds.denials || set.HasDeniedResponses(), reportsSoft: s.adds.soft && set.HasReports(), notices: set.HasNotices(),
	})
	s.leases.Review(true)
	s.onRulesChangedMu.Lock()
	changed := s.onRulesChanged
	s.onRulesChangedMu.Unlock()
	for _, f := range changed {
		f()
	}
	return nil
}

// ActivateRows atomically activates the rows of tables, by table name. The rows must fit the active
// rules.
func (s *Service) ActivateRows(rows map[string]*tables.Rows) {
	s.replaceRows(rows)
	s.updateRules(func(r *activeRules) { r.rows = r.set.Snapshot(s.settings.Tables) })
}

// replaceRows replaces the rows of tables. Requests see them once a new snapshot is active.
func (s *Service) replaceRows(rows map[string]*tables.Rows) {
	for name, r := range rows {
		e, _ := s.settings.Tables.Table(name) // the table exists
		e.Replace(r)
	}
}

// limitLabel identifies a limit across reloads, by the values of its labels in metrics.
type limitLabel struct{ domain, rule, label string }

func limitLabelOf(l *descriptors.Limit) limitLabel {
	return limitLabel{l.Rule.Domain(), l.Rule.Path(), l.Label}
}

// runtimeCounters returns the counters whose metric keys contain values of requests, by limit.
func (s *Service) runtimeCounters() map[limitLabel][]*telemetry.RuleCounters {
	rules := s.rules.Load()
	all := map[limitLabel][]*telemetry.RuleCounters{}
	s.metrics.Rules.EachRuntime(func(limit int, c *telemetry.RuleCounters) {
		if rules != nil && limit >= 0 && limit < len(rules.set.Limits) {
			name := limitLabelOf(rules.set.Limits[limit])
			all[name] = append(all[name], c)
		}
	})
	return all
}

// Rules returns the active rule set, or nil.
func (s *Service) Rules() *descriptors.Set {
	if r := s.rules.Load(); r != nil {
		return r.set
	}
	return nil
}

// OnRulesChanged registers a function that is called after each change of the rules.
func (s *Service) OnRulesChanged(changed func()) {
	s.onRulesChangedMu.Lock()
	defer s.onRulesChangedMu.Unlock()
	s.onRulesChanged = append(s.onRulesChanged, changed)
}

// Settings returns the settings of the service, which never change.
func (s *Service) Settings() *Settings { return &s.settings }

// Recorder returns the recorder of denied and unmatched requests.
func (s *Service) Recorder() *live.Recorder { return s.live }

// Metrics returns the metrics of the service.
func (s *Service) Metrics() *telemetry.Metrics { return s.metrics }

// Up reports whether the decider can be reached.
func (s *Service) Up() bool { return s.decider.Up() }

// DecidesAsync reports whether requests may be decided after [Service.Begin] has returned.
func (s *Service) DecidesAsync() bool { return s.decidesAsync }
