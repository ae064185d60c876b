package telemetry

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds on the series of rules. Hits beyond MaxConfigured and MaxRuntime count under the labels
// key1="other", rule="other" of their domain.
const (
	// MaxConfigured bounds the configured limits with series of their own.
	MaxConfigured = 10_000
	// MaxUnhit bounds the limits that have series before their first hit: most of a hundred
	// thousand rules are never hit.
	MaxUnhit   = 1_000
	MaxRuntime = 1_000
	// maxRuntimeKey bounds a runtime key, in bytes, since labels that contain request values could
	// be as long as a request.
	maxRuntimeKey = 512
)

const other = "other"

// RuleKey identifies the series of one limit. It is comparable.
type RuleKey struct {
	Domain string
	// Rule is the complete metric key without its domain, Key1 and Key2 are its first two levels,
	// empty if missing.
	Rule, Key1, Key2 string
	// Limit distinguishes the limits of a list; it is empty outside lists.
	Limit string
}

// NewRuleKey returns the key of the series for a metric key. key1End and key2End are the ends of
// its first and second level; key2End is 0 if it has one level.
func NewRuleKey(domain, limit string, key []byte, key1End, key2End int) RuleKey {
	k := RuleKey{Domain: domain, Rule: string(key), Limit: limit}
	k.Key1 = k.Rule[:key1End]
	if key2End > 0 {
		k.Key2 = k.Rule[key1End+1 : key2End]
	}
	return k
}

// RuleLimit is one configured limit.
type RuleLimit struct {
	Key RuleKey
	// Requests is the number of requests per Window. Window is 0 for an unlimited one.
	Requests uint64
	Window   time.Duration
	// Leases is true if the limit grants leases, Penalty if it has a penalty.
	Leases, Penalty bool
	// Divided is true if Envoys divide it.
	Divided bool
}

// RuleCounters count the hits of one limit. All methods may be called concurrently and cost one
// atomic addition for each number that is not 0.
type RuleCounters struct {
	overLimit, nearLimit, withinLimit, shadowMode, negativeHits atomic.Uint64
	// uncharged counts [Hits.Uncharged].
	uncharged atomic.Uint64
	// exceeded counts hits that turned out to exceed the limit after an outage of the store.
	exceeded atomic.Uint64
	// costsDue counts requests whose cost is to be charged at the end of their streams. It is in the
	// cache line of the hits, since each charge reads it.
	costsDue atomic.Uint64
	// activeLeases is the number of active leases, expired of expired ones, and returned of leases
	// that were returned at the end of their streams.
	activeLeases      atomic.Int64
	expired, returned atomic.Uint64
	// costsReceived counts the costs of such requests.
	costsReceived atomic.Uint64
	// costsDueLeased counts those requests in costsDue that hold a lease of another limit.
	costsDueLeased atomic.Uint64
	// penalties counts penalties that have started.
	penalties atomic.Uint64
	// otherHits are charged hits that are neither within nor over the limit; see [Hits].
	otherHits atomic.Uint64
	// assignedRatio is the part of the limit that is assigned to Envoys, in millionths. It saturates,
	// and is small so that the counters fit a size class of 128 bytes.
	assignedRatio atomic.Uint32
	// limit is the number of the configured limit of these hits, starting at 1, if the key contains
	// request values.
	limit atomic.Int32
}

// Hits are hits by outcome. Total also includes hits that are neither Within nor Over: the hits of a
// request that another limit denied, and the first part of denied hits that count. Uncharged is the
// part of these that does not count. Near is a part of the hits that are not Over, Shadow a part of
// Over. Negative are refunds, which are in no other number.
type Hits struct{ Total, Over, Near, Within, Uncharged, Shadow, Negative uint64 }

// Add counts h. Counters saturate at 2^64-1, since clients choose the numbers.
func (c *RuleCounters) Add(h Hits) {
	other := h.Total - min(h.Total, h.Within) - h.Uncharged
	add(&c.otherHits, other-min(other, h.Over)) // rarely any: the sum may have saturated
	add(&c.uncharged, h.Uncharged)
	add(&c.overLimit, h.Over)
	add(&c.nearLimit, h.Near)
	add(&c.withinLimit, h.Within)
	add(&c.shadowMode, h.Shadow)
	add(&c.negativeHits, h.Negative)
}

// Hits returns the current counts.
func (c *RuleCounters) Hits() Hits {
	h := Hits{
		Over: c.overLimit.Load(), Near: c.nearLimit.Load(), Within: c.withinLimit.Load(),
		Uncharged: c.uncharged.Load(), Shadow: c.shadowMode.Load(), Negative: c.negativeHits.Load(),
	}
	for _, n := range []uint64{h.Over, h.Within, h.Uncharged, c.otherHits.Load()} {
		if h.Total += n; h.Total < n {
			h.Total = math.MaxUint64
		}
	}
	return h
}

// CountExceeded counts hits that were admitted without the store and turned out to exceed the
// limit.
func (c *RuleCounters) CountExceeded(hits uint64) { add(&c.exceeded, hits) }

func add(c *atomic.Uint64, n uint64) {
	if n == 0 {
		return
	}
	if sum := c.Add(n); sum < n {
		c.Store(math.MaxUint64)
	}
}

func (c *RuleCounters) used() bool {
	h := c.Hits()
	return h.Total > 0 || h.Negative > 0
}

// Rules contains the counters of all rules. Configured rules keep theirs until [Rules.Configure] is
// called without them. Keys that contain request values share a pool of [MaxRuntime] while their
// domain is configured.
type Rules struct {
	tags prometheus.Labels // labels of every series

	mu         sync.Mutex
	configured map[RuleKey]configuredRule
	// omitted is the number of configured limits with hits and without series of their own.
	omitted int
	// overflow maps each configured domain to its counters for hits beyond the bounds. The map is
	// replaced under the lock and never modified.
	overflow atomic.Pointer[map[string]*RuleCounters]
	// runtime is read without the lock and replaced under it. See [RuleKey.text].
	runtime atomic.Pointer[map[string]*runtimeRule]
	// stored is true if there is a store, so that limits have a series for hits that exceeded them
	// during an outage.
	stored atomic.Bool
	// loads counts the calls of Configure. ended are series that ended with them, if keepsEnded is
	// set, the oldest first.
	loads      uint64
	ended      []*endedSeries
	keepsEnded bool
	// updates are called before each collection, without the lock.
	updates []func()
	// spill counts the decisions that were counted in overflow.
	spill atomic.Uint64
}

type configuredRule struct {
	counters *RuleCounters
	limit    RuleLimit
}

type runtimeRule struct {
	key      RuleKey
	counters *RuleCounters
	// alias is true if another series has the key and the counters. The lock guards it.
	alias bool
}

func newRules(tags prometheus.Labels) *Rules {
	r := &Rules{tags: tags}
	r.overflow.Store(&map[string]*RuleCounters{})
	r.runtime.Store(&map[string]*runtimeRule{})
	return r
}

// Configured are the counters of the configured limits. It may be used concurrently.
type Configured struct {
	rules *Rules
	limit func(i int) RuleLimit
	// counters contains nil for limits without series.
	counters []atomic.Pointer[RuleCounters]
}

// Get returns the counters of limit i. The first call for a limit may allocate and lock; later ones
// do neither.
func (c *Configured) Get(i int) *RuleCounters {
	if counters := c.counters[i].Load(); counters != nil {
		return counters
	}
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	l := c.limit(i)
	return c.rules.addSeriesLocked(&c.counters[i], l, c.rules.sharedLocked(l.Key))
}

// SetLimit records the configured limit of these hits, if their key contains request values. It
// costs a comparison.
func (c *RuleCounters) SetLimit(i int32) {
	if c.limit.Load() != i+1 {
		c.limit.Store(i + 1)
	}
}

// EachRuntime calls f with the counters of each key that contains request values, and the number of
// their limit, or -1 if none was recorded since the limits were configured. It also calls f with
// the overflow counters and -1.
func (r *Rules) EachRuntime(f func(limit int, c *RuleCounters)) {
	for _, c := range *r.overflow.Load() {
		f(-1, c)
	}
	for _, s := range *r.runtime.Load() {
		f(int(s.counters.limit.Load())-1, s.counters)
	}
}

// ExceededHits returns the count of [RuleCounters.CountExceeded].
func (c *RuleCounters) ExceededHits() uint64 { return c.exceeded.Load() }

// Existing returns the counters of limit i, or nil if it was not hit yet.
func (c *Configured) Existing(i int) *RuleCounters { return c.counters[i].Load() }

// Configure replaces the configured limits by n limits and returns their counters. limit returns a
// limit by its number. While the counters are in use, limit may be called, by one goroutine at a
// time. Limits with equal keys share counters and show the numbers of the first one. Keys that had
// series before keep their counters; series of other keys end. domains are all configured domains,
// including those without limits.
func (r *Rules) Configure(domains []string, n int, limit func(i int) RuleLimit) *Configured {
	r.mu.Lock()
	defer r.mu.Unlock()
	var before []ruleSeries
	if r.keepsEnded {
		before = r.seriesLocked()
	}
	old := r.configured
	overflow := make(map[string]*RuleCounters, len(domains))
	for _, d := range domains {
		overflow[d] = (*r.overflow.Load())[d]
		if overflow[d] == nil {
			overflow[d] = old[otherKey(d)].counters
		}
		if overflow[d] == nil {
			overflow[d] = &RuleCounters{}
		}
	}
	r.configured = map[RuleKey]configuredRule{}
	r.omitted = 0
	r.overflow.Store(&overflow)
	c := &Configured{rules: r, limit: limit, counters: make([]atomic.Pointer[RuleCounters], n)}
	for i := range n {
		if i >= MaxUnhit && len(old) == 0 && len(*r.runtime.Load()) == 0 {
			break // no other limit can have had a series
		}
		l := limit(i)
		was := r.sharedLocked(l.Key)
		if was == nil {
			was = old[l.Key].counters
		}
		if i < MaxUnhit || was != nil {
			r.addSeriesLocked(&c.counters[i], l, was)
		}
	}
	r.dropAliasesLocked()
	r.recordEndedLocked(before)
	return c
}

// addSeriesLocked sets and returns the counters of a configured limit: the previous ones, or new
// ones if previous is nil.
func (r *Rules) addSeriesLocked(at *atomic.Pointer[RuleCounters], l RuleLimit, previous *RuleCounters) *RuleCounters {
	c, ok := r.configured[l.Key]
	switch {
	case ok:
	case len(r.configured) < MaxConfigured:
		c = configuredRule{previous, l}
		if previous == nil {
			c.counters = &RuleCounters{}
		}
		r.configured[l.Key] = c
		if s := (*r.runtime.Load())[l.Key.text()]; s != nil {
			s.alias = true
		}
	default:
		c.counters = (*r.overflow.Load())[l.Key.Domain]
		if c.counters == nil { // the request started with rules that contain the domain
			c.counters = &RuleCounters{}
		}
		r.omitted++
	}
	at.Store(c.counters)
	return c.counters
}

// sharedLocked returns the counters of a series with key k that does not belong to a configured
// limit, or nil. Two series with the same labels cannot be exposed, so a configured limit with the
// key shares these counters.
func (r *Rules) sharedLocked(k RuleKey) *RuleCounters {
	if k == otherKey(k.Domain) {
		return (*r.overflow.Load())[k.Domain]
	}
	if known := *r.runtime.Load(); len(known) > 0 && known[k.text()] != nil {
		return known[k.text()].counters
	}
	return nil
}

// dropAliasesLocked removes from the runtime map the keys that configured rules have or had, and
// those of domains that are no longer configured. The next request then finds the counters of the
// configured rules.
func (r *Rules) dropAliasesLocked() {
	next := make(map[string]*runtimeRule)
	for text, s := range *r.runtime.Load() {
		s.counters.limit.Store(0) // the numbers of limits have changed
		if _, reachable := (*r.overflow.Load())[s.key.Domain]; reachable && !s.alias {
			next[text] = s
		}
	}
	r.runtime.Store(&next)
}

// configuredLocked returns the counters of the configured or overflow series with key k, or nil.
// Two series with the same labels cannot be exposed, so a runtime key k shares these counters.
func (r *Rules) configuredLocked(k RuleKey) *RuleCounters {
	if c, ok := r.configured[k]; ok {
		return c.counters
	}
	if k == otherKey(k.Domain) {
		return (*r.overflow.Load())[k.Domain]
	}
	return nil
}

func otherKey(domain string) RuleKey { return RuleKey{Domain: domain, Rule: other, Key1: other} }

// text returns the key of the runtime map.
func (k RuleKey) text() string { return k.Domain + "\x00" + k.Limit + "\x00" + k.Rule }

// Runtime returns the counters for a metric key that contains request values. key1End and key2End
// are the ends of the key's first and second level; key2End is 0 if it has one level. scratch is
// used to build the lookup key and is returned for the next call. A known key, or one beyond a
// bound, costs neither an allocation nor a lock.
func (r *Rules) Runtime(
	scratch []byte, domain, limit string, key []byte, key1End, key2End int,
) (*RuleCounters, []byte) {
	if len(key) > maxRuntimeKey {
		return r.otherSeries(domain), scratch
	}
	scratch = append(scratch[:0], domain...)
	scratch = append(append(scratch, 0), limit...)
	scratch = append(append(scratch, 0), key...)
	runtime := *r.runtime.Load()
	if s := runtime[string(scratch)]; s != nil {
		return s.counters, scratch
	}
	// Labels must be valid UTF-8.
	if len(runtime) >= MaxRuntime || !utf8.Valid(key) || !utf8.ValidString(limit) {
		return r.otherSeries(domain), scratch
	}
	return r.addRuntime(NewRuleKey(domain, limit, key, key1End, key2End)), scratch
}

func (r *Rules) addRuntime(k RuleKey) *RuleCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := *r.runtime.Load()
	if s := old[k.text()]; s != nil {
		return s.counters
	}
	if len(old) >= MaxRuntime {
		return r.otherSeries(k.Domain)
	}
	next := make(map[string]*runtimeRule, len(old)+1)
	maps.Copy(next, old)
	// A runtime key may equal a configured one: an override of values that have a rule of their
	// own.
	s := &runtimeRule{key: k, counters: r.configuredLocked(k)}
	if s.alias = s.counters != nil; !s.alias {
		s.counters = &RuleCounters{}
	}
	next[k.text()] = s
	r.runtime.Store(&next)
	return s.counters
}

// otherSeries returns the overflow counters of a domain.
func (r *Rules) otherSeries(domain string) *RuleCounters {
	r.spill.Add(1)
	if c := (*r.overflow.Load())[domain]; c != nil {
		return c
	}
	// The request started with rules that contain the domain; its series has ended.
	return &RuleCounters{}
}
