package server

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Errors of [Service.Answer], beside errMalformed, *boundError and *deniedError. Their texts are
// those of envoyproxy/ratelimit.
var (
	errEmptyDomain   = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
	errNoRules       = errors.New("no rate limit configuration loaded")
)

// Settings say how requests are answered. They are fixed for the life of a [Service]. Fields that
// are flags carry them as tags, as those of [Limits] do.
type Settings struct {
	ShadowMode     bool    `group:"decisions" help:"Let every request pass. Statuses, counting and metrics stay."`
	QuotaMode      bool    `group:"decisions" help:"Treat every descriptor as a quota: deny a request only when all are over limit."`
	NearLimitRatio float32 `group:"decisions" type:"ratio" default:"0.8" placeholder:"RATIO" help:"Share of a limit above which hits count as near_limit, 0 to 1. Default 0.8."`

	ResponseHeaders  bool    `group:"replies" help:"Add response headers with limit, remaining and reset."`
	Headers          Headers `embed:""`
	RetryAfterHeader bool    `group:"replies" help:"Add Retry-After to denials."`
	// RequestHeaders and RequestNames are ResponseHeaders and Headers of the request that Envoy forwards.
	RequestHeaders   bool           `group:"replies" help:"Have Envoy add headers with limit, remaining and reset to each request that it forwards."`
	RequestNames     RequestHeaders `embed:""`
	DynamicMetadata  bool           `group:"replies" help:"Describe request and matched metadata in the reply's dynamic metadata."`
	DecisionMetadata bool           `group:"replies" help:"Add the decisions to the dynamic metadata, under the key sluice."`

	NoMetricDots bool `group:"process" name:"sanitize-metric-dots" help:"In metrics, put _ for each dot of a descriptor's key or value, so that dots divide levels only."`

	// Clock gives the time of a request, and the time at which a denied group refunds what
	// it reserved; see limiter.Batch. Optional: by default the server makes a clock of its
	// own, and the refund has the time of the request.
	Clock *clock.Clock `kong:"-"`
	// Allow says which clients may ask for which domains. Optional: by default each client
	// may ask for each domain.
	Allow *AllowList `kong:"-"`
	// Decider decides in place of the table, maybe later, on counters that Namer names. Optional: by
	// default the table decides.
	Decider Decider            `kong:"-"`
	Namer   *descriptors.Namer `kong:"-"`
	// Bounds are the most that one request may hold.
	Bounds Bounds `embed:"" group:"bounds"`
}

func (s *Settings) metricKeys() descriptors.MetricKeys {
	return descriptors.MetricKeys{NoDots: s.NoMetricDots}
}

// Headers are the names of the response headers; an empty name leaves that
// header out.
type Headers struct {
	Limit     string `group:"replies" name:"limit-header" type:"header" default:"RateLimit-Limit" placeholder:"NAME" help:"Header with the limit. Default RateLimit-Limit."`
	Remaining string `group:"replies" name:"remaining-header" type:"header" default:"RateLimit-Remaining" placeholder:"NAME" help:"Header with what remains. Default RateLimit-Remaining."`
	Reset     string `group:"replies" name:"reset-header" type:"header" default:"RateLimit-Reset" placeholder:"NAME" help:"Header with the seconds until the reset. Default RateLimit-Reset."`
}

// RequestHeaders are the names of the headers of forwarded requests; an empty name leaves that header
// out.
type RequestHeaders struct {
	Limit     string `group:"replies" name:"request-limit-header" type:"header" default:"RateLimit-Limit" placeholder:"NAME" help:"With --request-headers, the header with the limit. Default RateLimit-Limit."`
	Remaining string `group:"replies" name:"request-remaining-header" type:"header" default:"RateLimit-Remaining" placeholder:"NAME" help:"The header with what remains. Default RateLimit-Remaining."`
	Reset     string `group:"replies" name:"request-reset-header" type:"header" default:"RateLimit-Reset" placeholder:"NAME" help:"The header with the seconds until the reset. Default RateLimit-Reset."`
}

// Service answers requests. Its methods may be called concurrently.
type Service struct {
	settings Settings
	table    *limiter.Table
	decider  Decider
	later    bool // the decider may decide after its Decide has returned
	metrics  *telemetry.Metrics
	rules    atomic.Pointer[serving]
	// now is settings.Clock's, nil without it.
	now func() limiter.Time
	// onServe is called after the rules have changed.
	onServe atomic.Pointer[func()]
}

// serving is a rule set with what requests need beside it.
type serving struct {
	set *descriptors.Set
	// counters are those of set.Limits, in their order.
	counters *telemetry.Configured
	// partitions is parallel to set.Domains(); nil is the common partition.
	partitions []*limiter.Partition
	// labels is parallel to set.Domains(): the domains' names in metrics.
	labels   []string
	metadata map[*descriptors.Rule]*object
}

// NewService returns a service without rules: it answers errNoRules until the
// first [Service.Serve].
func NewService(settings Settings, table *limiter.Table, metrics *telemetry.Metrics) *Service {
	s := &Service{settings: settings, table: table, decider: memory{table}, metrics: metrics}
	if settings.Decider != nil {
		s.decider, s.later = settings.Decider, true
	}
	if clock := settings.Clock; clock != nil {
		s.now = func() limiter.Time {
			now, _ := clock.Now()
			return now
		}
	}
	return s
}

// Serve puts a rule set in force at the time now for all requests that begin from then on. If the memory of
// counters has no room for the set's max_counters, it returns an error and changes nothing.
func (s *Service) Serve(now limiter.Time, set *descriptors.Set) error {
	bounds := map[string]int64{}
	for _, domain := range set.Domains() {
		bounds[domain] = set.MaxCounters(domain)
	}
	reserved, err := s.table.Partitions(now, bounds)
	if err != nil {
		return fmt.Errorf("max_counters: %w: lower it, or raise --counter-memory", err)
	}
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
	counters := s.metrics.Rules.Configure(labels, len(set.Limits), func(i int) telemetry.RuleLimit {
		l := set.Limits[i]
		key, key1End, key2End := s.settings.metricKeys().Append(scratch[:0], l.Rule, nil)
		scratch = key
		limit := telemetry.RuleLimit{Key: telemetry.NewRuleKey(labels[l.Rule.DomainIndex()], l.Label, key, key1End, key2End)}
		if !l.Rule.Unlimited {
			limit.Requests, limit.Window = uint64(l.RequestsPerUnit), l.Policy.Window
		}
		return limit
	})
	s.rules.Store(&serving{set: set, counters: counters, partitions: partitions, labels: labels, metadata: metadata})
	if changed := s.onServe.Load(); changed != nil {
		(*changed)()
	}
	return nil
}

// Rules returns the rule set in force, or nil.
func (s *Service) Rules() *descriptors.Set {
	if r := s.rules.Load(); r != nil {
		return r.set
	}
	return nil
}

// Call is the memory for answering one request. It is reused for later requests. The zero value
// is ready. One goroutine uses it at a time.
type Call struct {
	// client is the one that asks. It is set only where [Settings].Allow is.
	client   *client
	decoder  decoder
	plan     descriptors.Plan
	statuses []descriptorStatus
	reply    []byte
	passed   []*object // the metadata of descriptors that passed
	metric   []byte    // a metric key made of runtime values
	lookup   []byte    // scratch for looking it up
	over     bool
	rules    *serving // from Begin to Finish

	service *Service // whose decider decides later
	// undecided is set while a decider may have plan.Batch and plan.Names.
	undecided bool
	decided   chan error // of a goroutine that waits for the decision; nil until one may
}

// OverLimit reports whether the last answer was OVER_LIMIT.
func (c *Call) OverLimit() bool { return c.over }

// Answer answers one request at the time now. The request is the bytes of a RateLimitRequest, the
// reply those of a RateLimitResponse. The reply is a view of c's memory, valid until c is used
// again. The caller sends it after delay, which is at most budget, or calls [Service.Cancel]. An
// error means that there is no reply; the errors above are the reasons. With a store it waits for
// the store, with this goroutine.
func (s *Service) Answer(now limiter.Time, budget time.Duration, c *Call, request []byte) (reply []byte, delay time.Duration, err error) {
	if err := c.await(s.Begin(now, budget, c, request, c.waiting())); err != nil {
		return nil, 0, err
	}
	reply, delay = s.Finish(c)
	return reply, delay, nil
}

// Begin is the part of [Service.Answer] up to the decision. It reports whether that is done; if
// not, w.Decided is called with it, and nobody may use c or the request until then. [Service.Finish]
// is the rest, if there is no error.
func (s *Service) Begin(now limiter.Time, budget time.Duration, c *Call, request []byte, w limiter.Waiter) (done bool, err error) {
	c.decoder.reset()
	c.over = false
	if err := c.decoder.decode(request, &s.settings.Bounds); err != nil {
		return true, err
	}
	req := &c.decoder.req
	rules := s.rules.Load()
	switch {
	case len(req.Domain) == 0:
		return true, errEmptyDomain
	case s.settings.Allow != nil && !c.client.may(req.Domain):
		return true, denied(c.client, req.Domain)
	case len(req.Descriptors) == 0:
		return true, errNoDescriptors
	case rules == nil:
		return true, errNoRules
	}
	c.rules = rules

	s.plan(c, descriptors.Global{Quota: s.settings.QuotaMode}, budget)
	return s.decide(now, c, w)
}

// plan makes c's batch the charges of its request.
func (s *Service) plan(c *Call, global descriptors.Global, budget time.Duration) {
	c.rules.set.Plan(&c.plan, &c.decoder.req, global)
	b := &c.plan.Batch
	b.Budget, b.Partition, b.Clock = max(0, budget), nil, s.now
	if i := c.plan.DomainIndex; i >= 0 {
		b.Partition = c.rules.partitions[i]
	}
	if s.later {
		s.settings.Namer.Name(&c.plan, &c.decoder.req)
		b.Budget = max(1, b.Budget) // 0 would have it wait for the store as if it had no deadline
	}
}

// Finish is the part of [Service.Answer] from the decision on.
func (s *Service) Finish(c *Call) (reply []byte, delay time.Duration) {
	rules := c.rules
	c.rules = nil // so that calls that are kept do not keep old rules
	c.over = c.plan.Batch.Denied
	if c.over && s.settings.ShadowMode {
		c.over = false
		s.metrics.GlobalShadow.Inc()
	}
	c.fillStatuses()
	if counting {
		s.count(rules, c)
	}

	overall := byte(codeOK)
	if c.over {
		overall = codeOverLimit
	}
	b := c.reply[:0]
	b = append(b, 1<<3, overall) // overall_code
	for i := range c.statuses {
		b = appendStatus(b, &c.statuses[i])
	}
	if s.settings.ResponseHeaders || s.settings.RequestHeaders || s.settings.RetryAfterHeader {
		b = s.appendHeaders(b, c)
	}
	if s.settings.DynamicMetadata || s.settings.DecisionMetadata {
		b = s.appendMetadata(b, c, rules)
	}
	c.reply = b
	return b, c.plan.Batch.Wait
}

// Cancel cancels the turns of the last answer's charges that wait, when a client went away at the
// time now while its reply was held.
func (s *Service) Cancel(now limiter.Time, c *Call) {
	s.decider.Cancel(now, &c.plan.Batch, c.plan.Names)
}

// fillStatuses gives each descriptor of the request its status.
func (c *Call) fillStatuses() {
	c.statuses = c.statuses[:0]
	batch := &c.plan.Batch
	for i := range c.plan.Matches {
		m := &c.plan.Matches[i]
		st := descriptorStatus{code: codeOK}
		switch {
		case m.Count > 0:
			at := c.statusCharge(m)
			d := &batch.Decisions[at]
			if d.Over && batch.Charges[at].Mode.Denies() {
				st.code = codeOverLimit
			}
			st.limit = c.plan.Limits[at]
			st.remaining = uint32(min(d.Remaining, math.MaxUint32))
			st.resetSeconds = seconds(d.Reset)
		case m.Rule != nil && m.Rule.Unlimited:
			st.remaining = math.MaxUint32
		}
		c.statuses = append(c.statuses, st)
	}
}

// statusCharge returns which charge of a match gives the status. Of those that are over and
// not in shadow mode it is the one with the longest wait, else the one with the smallest
// remaining, and the first of equals.
func (c *Call) statusCharge(m *descriptors.Match) int {
	if m.Count == 1 {
		return m.First
	}
	over, least := -1, m.First
	for i := m.First; i < m.First+m.Count; i++ {
		d := &c.plan.Batch.Decisions[i]
		if d.Over && c.plan.Batch.Charges[i].Mode.Denies() && (over < 0 || c.wait(i) > c.wait(over)) {
			over = i
		}
		if d.Remaining < c.plan.Batch.Decisions[least].Remaining {
			least = i
		}
	}
	if over >= 0 {
		return over
	}
	return least
}

// wait is how long the hits of charge i have to wait. It is one window if they can never pass.
func (c *Call) wait(i int) time.Duration {
	if w := c.plan.Batch.Decisions[i].RetryAfter; w != limiter.Never {
		return w
	}
	return c.plan.Batch.Charges[i].Policy.Window
}

// seconds rounds up to whole seconds, at least 1.
func seconds(d time.Duration) uint64 {
	return uint64(max(1, (d+time.Second-1)/time.Second))
}

// appendHeaders appends the response headers and those of the forwarded request. They describe the last
// descriptor that is over its limit and not a quota. Without such, they describe the one with the least
// remaining, the first of equals.
func (s *Service) appendHeaders(b []byte, c *Call) []byte {
	var told *descriptorStatus
	var retry uint64
	least := uint32(math.MaxUint32)
	for i := range c.statuses {
		st := &c.statuses[i]
		if st.limit == nil {
			continue
		}
		if st.remaining < least {
			told, least = st, st.remaining
		}
		if st.code == codeOverLimit {
			retry = max(retry, st.resetSeconds)
			if rule := c.plan.Matches[i].Rule; !s.settings.QuotaMode && (rule == nil || !rule.Quota) {
				told, least = st, 0
			}
		}
	}
	if s.settings.ResponseHeaders && told != nil {
		b = told.appendHeaders(b, fieldResponseHeaders, &s.settings.Headers)
	}
	if s.settings.RetryAfterHeader && c.over && retry > 0 {
		b = appendHeader(b, fieldResponseHeaders, "Retry-After", retry)
	}
	if s.settings.RequestHeaders && told != nil {
		names := Headers(s.settings.RequestNames)
		b = told.appendHeaders(b, fieldRequestHeaders, &names)
	}
	return b
}
