package telemetry

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds on the series of rules. Beyond them hits count under the labels
// key1="other", rule="other" of their domain.
const (
	MaxConfigured = 10_000
	MaxRuntime    = 1_000
	// maxRuntimeKey bounds the bytes of one runtime key, since labels that hold
	// values of requests could be as long as a request.
	maxRuntimeKey = 512
)

const other = "other"

// RuleKey names the series of one limit. It is comparable.
type RuleKey struct {
	Domain string
	// Rule is the whole metric key without its domain, Key1 and Key2 its first
	// two levels, "" where there is none.
	Rule, Key1, Key2 string
	// Limit tells the limits of one list apart, "" outside lists.
	Limit string
}

// RuleCounters count the hits of one limit. All methods may be called
// concurrently and cost one atomic addition for each number that is not 0.
type RuleCounters struct {
	totalHits, overLimit, nearLimit, withinLimit, shadowMode atomic.Uint64
}

// Hits is how the hits of one decision split.
type Hits struct{ Total, Over, Near, Within, Shadow uint64 }

// Add counts h. Counters stop at 2^64-1 and never wrap around, since clients
// choose the numbers.
func (c *RuleCounters) Add(h Hits) {
	add(&c.totalHits, h.Total)
	add(&c.overLimit, h.Over)
	add(&c.nearLimit, h.Near)
	add(&c.withinLimit, h.Within)
	add(&c.shadowMode, h.Shadow)
}

func add(c *atomic.Uint64, n uint64) {
	if n == 0 {
		return
	}
	if sum := c.Add(n); sum < n {
		c.Store(math.MaxUint64)
	}
}

// Rules holds the counters of all rules. Configured rules keep theirs until
// [Rules.Configure] is called without them; keys that hold values of requests
// share a pool of [MaxRuntime] for the life of the process.
type Rules struct {
	mu         sync.Mutex
	configured map[RuleKey]*RuleCounters
	// overflow has one set of counters per configured domain, for whatever is
	// beyond the bounds. Domains are configured, so clients cannot add to it.
	overflow map[RuleKey]*RuleCounters
	// runtime is read without the lock and replaced under it. The text key is
	// domain, limit label and metric key joined by zero bytes.
	runtime    atomic.Pointer[map[string]*RuleCounters]
	runtimeKey map[*RuleCounters]RuleKey
	// spill counts the hits that went to overflow for want of room.
	spill atomic.Uint64
}

// NewRules returns an empty set, registered with reg.
func NewRules(reg prometheus.Registerer) *Rules {
	r := &Rules{overflow: map[RuleKey]*RuleCounters{}, runtimeKey: map[*RuleCounters]RuleKey{}}
	r.runtime.Store(&map[string]*RuleCounters{})
	reg.MustRegister(rulesCollector{r})
	return r
}

// Configure makes keys the configured series and returns their counters in
// order; equal keys share theirs. Counters of keys that were configured before
// go on from their values; series of keys that are no longer there end.
func (r *Rules) Configure(keys []RuleKey) []*RuleCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[RuleKey]*RuleCounters, len(r.configured)+len(r.runtimeKey))
	for c, k := range r.runtimeKey {
		known[k] = c
	}
	maps.Copy(known, r.configured)
	next := make(map[RuleKey]*RuleCounters, len(keys))
	overflow := make(map[RuleKey]*RuleCounters)
	out := make([]*RuleCounters, len(keys))
	for i, k := range keys {
		o := otherKey(k.Domain)
		if overflow[o] == nil {
			overflow[o] = keep(r.overflow, o)
		}
		switch {
		case next[k] != nil:
			out[i] = next[k]
		case len(next) < MaxConfigured:
			next[k] = keep(known, k)
			out[i] = next[k]
		default:
			out[i] = overflow[o]
		}
	}
	r.configured, r.overflow = next, overflow
	r.dropAliasesLocked()
	return out
}

// dropAliasesLocked leaves in the runtime map what has a series by it alone:
// the next request finds the counters of keys that are configured now.
func (r *Rules) dropAliasesLocked() {
	next := make(map[string]*RuleCounters)
	for text, c := range *r.runtime.Load() {
		k, ok := r.runtimeKey[c]
		if !ok {
			continue
		}
		if r.configured[k] != nil {
			delete(r.runtimeKey, c)
			continue
		}
		next[text] = c
	}
	r.runtime.Store(&next)
}

func keep(m map[RuleKey]*RuleCounters, k RuleKey) *RuleCounters {
	if c := m[k]; c != nil {
		return c
	}
	return &RuleCounters{}
}

func otherKey(domain string) RuleKey { return RuleKey{Domain: domain, Rule: other, Key1: other} }

// Runtime returns the counters for a metric key that holds values of a request.
// key1End and key2End are where the key's first and second level end, key2End 0
// if it has one level. scratch is used to build the look-up key and returned for
// the next call. A key that is known already costs no allocation.
func (r *Rules) Runtime(scratch []byte, domain, limit string, key []byte, key1End, key2End int) (*RuleCounters, []byte) {
	if len(key) > maxRuntimeKey {
		return r.spillTo(domain), scratch
	}
	scratch = append(scratch[:0], domain...)
	scratch = append(append(scratch, 0), limit...)
	scratch = append(append(scratch, 0), key...)
	if c := (*r.runtime.Load())[string(scratch)]; c != nil {
		return c, scratch
	}
	k := RuleKey{Domain: domain, Rule: string(key), Key1: string(key[:key1End]), Limit: limit}
	if key2End > 0 {
		k.Key2 = string(key[key1End+1 : key2End])
	}
	return r.addRuntime(string(scratch), k), scratch
}

func (r *Rules) addRuntime(text string, k RuleKey) *RuleCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := *r.runtime.Load()
	if c := old[text]; c != nil {
		return c
	}
	if len(old) >= MaxRuntime {
		return r.spillLocked(k.Domain)
	}
	next := make(map[string]*RuleCounters, len(old)+1)
	maps.Copy(next, old)
	// A runtime key may spell a configured one: an override of values that have a
	// rule of their own. Two series of one name cannot be exposed, so they share.
	c := r.configured[k]
	if c == nil {
		c = &RuleCounters{}
		r.runtimeKey[c] = k
	}
	next[text] = c
	r.runtime.Store(&next)
	return c
}

func (r *Rules) spillTo(domain string) *RuleCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spillLocked(domain)
}

// spillLocked returns the counters for what is beyond the bounds.
func (r *Rules) spillLocked(domain string) *RuleCounters {
	r.spill.Add(1)
	if c := r.overflow[otherKey(domain)]; c != nil {
		return c
	}
	// The domain has no configured limit, so Configure made none: one more for
	// each configured domain at most.
	c := &RuleCounters{}
	r.overflow[otherKey(domain)] = c
	return c
}

var ruleLabels = []string{"domain", "key1", "key2", "rule", "limit"}

func ruleDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("ratelimit_service_rate_limit_"+name, help, ruleLabels, nil)
}

var (
	totalHitsDesc   = ruleDesc("total_hits", "Hits that asked this limit.")
	overLimitDesc   = ruleDesc("over_limit", "Hits beyond the limit.")
	nearLimitDesc   = ruleDesc("near_limit", "Hits within the limit, above NEAR_LIMIT_RATIO of it.")
	withinLimitDesc = ruleDesc("within_limit", "Hits within the limit.")
	shadowModeDesc  = ruleDesc("shadow_mode", "Hits beyond a limit in shadow mode, which passed.")
	seriesDesc      = prometheus.NewDesc("sluice_rule_series", "Rules with series of their own, by where their names come from: configured or runtime.", []string{"kind"}, nil)
	spillDesc       = prometheus.NewDesc("sluice_rule_series_other_total", "Decisions counted under rule=\"other\" because the bound on runtime series is reached.", nil, nil)
)

type rulesCollector struct{ *Rules }

func (rulesCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{totalHitsDesc, overLimitDesc, nearLimitDesc, withinLimitDesc, shadowModeDesc, seriesDesc, spillDesc} {
		ch <- d
	}
}

func (c rulesCollector) Collect(ch chan<- prometheus.Metric) {
	type series struct {
		key      RuleKey
		counters *RuleCounters
	}
	c.mu.Lock()
	all := make([]series, 0, len(c.configured)+len(c.overflow)+len(c.runtimeKey))
	for k, counters := range c.configured {
		all = append(all, series{k, counters})
	}
	for k, counters := range c.overflow {
		// Empty until it is needed: most installations never see it.
		if _, taken := c.configured[k]; !taken && counters.totalHits.Load() > 0 {
			all = append(all, series{k, counters})
		}
	}
	runtime := 0
	for counters, k := range c.runtimeKey {
		all = append(all, series{k, counters})
		runtime++
	}
	configured := len(c.configured)
	c.mu.Unlock()

	for _, s := range all {
		labels := []string{s.key.Domain, s.key.Key1, s.key.Key2, s.key.Rule, s.key.Limit}
		for _, m := range []struct {
			desc  *prometheus.Desc
			value *atomic.Uint64
		}{
			{totalHitsDesc, &s.counters.totalHits},
			{overLimitDesc, &s.counters.overLimit},
			{nearLimitDesc, &s.counters.nearLimit},
			{withinLimitDesc, &s.counters.withinLimit},
			{shadowModeDesc, &s.counters.shadowMode},
		} {
			ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value.Load()), labels...)
		}
	}
	ch <- prometheus.MustNewConstMetric(seriesDesc, prometheus.GaugeValue, float64(configured), "configured")
	ch <- prometheus.MustNewConstMetric(seriesDesc, prometheus.GaugeValue, float64(runtime), "runtime")
	ch <- prometheus.MustNewConstMetric(spillDesc, prometheus.CounterValue, float64(c.spill.Load()))
}
