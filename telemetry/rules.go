package telemetry

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// The bounds on the series of rules. Beyond MaxConfigured and MaxRuntime hits count under
// the labels key1="other", rule="other" of their domain.
const (
	// MaxConfigured bounds the configured limits with series of their own.
	MaxConfigured = 10_000
	// MaxUnhit bounds those that have series before their first hit. The others get
	// theirs with it: of a hundred thousand rules most are never hit.
	MaxUnhit   = 1_000
	MaxRuntime = 1_000
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

// NewRuleKey returns the key of the series for a metric key. Key1End and key2End are where
// its first and second level end, key2End 0 if it has one level.
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
	// Requests in Window is what it grants. Window is 0 if it is unlimited.
	Requests uint64
	Window   time.Duration
	// Leases says that it gives leases, and Penalty that who is denied is denied for longer.
	Leases, Penalty bool
	// Divided says that Envoys divide it.
	Divided bool
}

// RuleCounters count the hits of one limit. All methods may be called
// concurrently and cost one atomic addition for each number that is not 0.
type RuleCounters struct {
	totalHits, overLimit, nearLimit, withinLimit, shadowMode, negativeHits atomic.Uint64
	// exceeded are hits that turned out to be beyond the limit when a store was back.
	exceeded atomic.Uint64
	// held is how many leases are out, and expired how many have run out.
	held    atomic.Int64
	expired atomic.Uint64
	// penalties is how many have begun.
	penalties atomic.Uint64
	// inForce is the part of a limit that Envoys may act by, in millionths.
	inForce atomic.Int64
	// limit is the number of the configured limit whose hits these are, from 1, of a key that holds values of
	// requests.
	limit atomic.Int32
}

// Hits is how the hits of one decision split. Negative are those of a refund, in
// no other number.
type Hits struct{ Total, Over, Near, Within, Shadow, Negative uint64 }

// Add counts h. Counters stop at 2^64-1 and never wrap around, since clients
// choose the numbers.
func (c *RuleCounters) Add(h Hits) {
	add(&c.totalHits, h.Total)
	add(&c.overLimit, h.Over)
	add(&c.nearLimit, h.Near)
	add(&c.withinLimit, h.Within)
	add(&c.shadowMode, h.Shadow)
	add(&c.negativeHits, h.Negative)
}

// Counted returns what was counted so far.
func (c *RuleCounters) Counted() Hits {
	return Hits{
		Total: c.totalHits.Load(), Over: c.overLimit.Load(), Near: c.nearLimit.Load(), Within: c.withinLimit.Load(),
		Shadow: c.shadowMode.Load(), Negative: c.negativeHits.Load(),
	}
}

// Exceeded counts hits that were admitted without a store and turned out to be beyond the limit.
func (c *RuleCounters) Exceeded(hits uint64) { add(&c.exceeded, hits) }

func add(c *atomic.Uint64, n uint64) {
	if n == 0 {
		return
	}
	if sum := c.Add(n); sum < n {
		c.Store(math.MaxUint64)
	}
}

// used reports whether anything was counted.
func (c *RuleCounters) used() bool { return c.totalHits.Load() > 0 || c.negativeHits.Load() > 0 }

// Rules holds the counters of all rules. Configured rules keep theirs until
// [Rules.Configure] is called without them. Keys that hold values of requests
// share a pool of [MaxRuntime], for as long as their domain is configured.
type Rules struct {
	mu         sync.Mutex
	configured map[RuleKey]configuredRule
	// omitted is how many configured limits were hit and have no series of their own.
	omitted int
	// overflow has the counters of each configured domain, by its name, for
	// whatever is beyond the bounds. Written under the lock, the map never.
	overflow atomic.Pointer[map[string]*RuleCounters]
	// runtime is read without the lock and replaced under it. See [RuleKey.text].
	runtime atomic.Pointer[map[string]*runtimeRule]
	// stored is whether a store may be away, so that limits show what was admitted beyond them then.
	stored atomic.Bool
	// loads counts the calls of Configure. ended are series that ended with them, if keepsEnded, the oldest first.
	loads      uint64
	ended      []*endedSeries
	keepsEnded bool
	// updates are called before each reading, without the lock.
	updates []func()
	// spill counts the decisions that went to overflow because there was no room.
	spill atomic.Uint64
}

type configuredRule struct {
	counters *RuleCounters
	limit    RuleLimit
}

type runtimeRule struct {
	key      RuleKey
	counters *RuleCounters
	// alias says that another series has the key and the counters. It is read and
	// written under the lock.
	alias bool
}

func newRules() *Rules {
	r := &Rules{}
	r.overflow.Store(&map[string]*RuleCounters{})
	r.runtime.Store(&map[string]*runtimeRule{})
	return r
}

// Configured are the counters of the configured limits. Any number of goroutines may use
// them.
type Configured struct {
	rules *Rules
	limit func(i int) RuleLimit
	// counters has nil for limits that have no series yet.
	counters []atomic.Pointer[RuleCounters]
}

// Of returns the counters of limit i. The first call for a limit may allocate and take a
// lock, later ones do neither.
func (c *Configured) Of(i int) *RuleCounters {
	if counters := c.counters[i].Load(); counters != nil {
		return counters
	}
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	l := c.limit(i)
	return c.rules.beginLocked(&c.counters[i], l, c.rules.sharedLocked(l.Key))
}

// OfLimit notes which configured limit's hits these are, if their key holds values of requests. It costs a comparison.
func (c *RuleCounters) OfLimit(i int32) {
	if c.limit.Load() != i+1 {
		c.limit.Store(i + 1)
	}
}

// EachRuntime calls f with the counters of each key that holds values of requests, and the limit that they are of: -1 if
// none was noted since the limits were configured. It also calls f with the counters of what is beyond the bounds, which are
// of no limit.
func (r *Rules) EachRuntime(f func(limit int, c *RuleCounters)) {
	for _, c := range *r.overflow.Load() {
		f(-1, c)
	}
	for _, s := range *r.runtime.Load() {
		f(int(s.counters.limit.Load())-1, s.counters)
	}
}

// ExceededHits returns what [RuleCounters.Exceeded] has counted.
func (c *RuleCounters) ExceededHits() uint64 { return c.exceeded.Load() }

// Begun returns the counters of limit i, or nil if it was not hit yet.
func (c *Configured) Begun(i int) *RuleCounters { return c.counters[i].Load() }

// Configure makes n limits the configured ones and returns their counters. Limit returns
// each by its number. It may be called for as long as the counters are used, by one
// goroutine at a time. Limits of equal keys share their counters and show the first one's
// numbers. Counters of keys that had series before go on from their values; series of keys
// that are no longer there end. Domains are all that are configured, those without limits
// too.
func (r *Rules) Configure(domains []string, n int, limit func(i int) RuleLimit) *Configured {
	r.mu.Lock()
	defer r.mu.Unlock()
	var before []ruleSeries
	if r.keepsEnded {
		before = r.seriesLocked()
	}
	old, overflow := r.configured, make(map[string]*RuleCounters, len(domains))
	for _, d := range domains {
		overflow[d] = (*r.overflow.Load())[d]
		if overflow[d] == nil {
			overflow[d] = old[otherKey(d)].counters
		}
		if overflow[d] == nil {
			overflow[d] = &RuleCounters{}
		}
	}
	r.configured, r.omitted = map[RuleKey]configuredRule{}, 0
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
			r.beginLocked(&c.counters[i], l, was)
		}
	}
	r.dropAliasesLocked()
	r.endLocked(before)
	return c
}

// beginLocked gives a configured limit its counters: those that it had, if that is not nil.
func (r *Rules) beginLocked(at *atomic.Pointer[RuleCounters], l RuleLimit, had *RuleCounters) *RuleCounters {
	c, ok := r.configured[l.Key]
	switch {
	case ok:
	case len(r.configured) < MaxConfigured:
		c = configuredRule{had, l}
		if had == nil {
			c.counters = &RuleCounters{}
		}
		r.configured[l.Key] = c
		if s := (*r.runtime.Load())[l.Key.text()]; s != nil {
			s.alias = true
		}
	default:
		c.counters = (*r.overflow.Load())[l.Key.Domain]
		if c.counters == nil { // the request began with rules that had the domain
			c.counters = &RuleCounters{}
		}
		r.omitted++
	}
	at.Store(c.counters)
	return c.counters
}

// sharedLocked returns the counters of a series that is not a configured limit's, but has
// the key k, or nil. Two series of one name cannot be exposed, so a limit shares it.
func (r *Rules) sharedLocked(k RuleKey) *RuleCounters {
	if k == otherKey(k.Domain) {
		return (*r.overflow.Load())[k.Domain]
	}
	if known := *r.runtime.Load(); len(known) > 0 && known[k.text()] != nil {
		return known[k.text()].counters
	}
	return nil
}

// dropAliasesLocked deletes from the runtime map the keys that configured rules have
// now or had before, and those of domains that are no longer configured. So the next
// request finds the counters of the configured rules.
func (r *Rules) dropAliasesLocked() {
	next := make(map[string]*runtimeRule)
	for text, s := range *r.runtime.Load() {
		s.counters.limit.Store(0) // limits have other numbers now
		if _, reachable := (*r.overflow.Load())[s.key.Domain]; reachable && !s.alias {
			next[text] = s
		}
	}
	r.runtime.Store(&next)
}

// takenLocked returns the counters of the series that has k without a request, or
// nil. Two series of one name cannot be exposed, so a runtime key shares it.
func (r *Rules) takenLocked(k RuleKey) *RuleCounters {
	if c, ok := r.configured[k]; ok {
		return c.counters
	}
	if k == otherKey(k.Domain) {
		return (*r.overflow.Load())[k.Domain]
	}
	return nil
}

func otherKey(domain string) RuleKey { return RuleKey{Domain: domain, Rule: other, Key1: other} }

// text is how the runtime map spells a key.
func (k RuleKey) text() string { return k.Domain + "\x00" + k.Limit + "\x00" + k.Rule }

// Runtime returns the counters for a metric key that holds values of a request.
// key1End and key2End are where the key's first and second level end, key2End 0
// if it has one level. scratch is used to build the look-up key and returned for
// the next call. A key that is known already, or that has no room, costs neither
// an allocation nor a lock.
func (r *Rules) Runtime(scratch []byte, domain, limit string, key []byte, key1End, key2End int) (*RuleCounters, []byte) {
	if len(key) > maxRuntimeKey {
		return r.other(domain), scratch
	}
	scratch = append(scratch[:0], domain...)
	scratch = append(append(scratch, 0), limit...)
	scratch = append(append(scratch, 0), key...)
	runtime := *r.runtime.Load()
	if s := runtime[string(scratch)]; s != nil {
		return s.counters, scratch
	}
	// A text that is not UTF-8 cannot be a label.
	if len(runtime) >= MaxRuntime || !utf8.Valid(key) || !utf8.ValidString(limit) {
		return r.other(domain), scratch
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
		return r.other(k.Domain)
	}
	next := make(map[string]*runtimeRule, len(old)+1)
	maps.Copy(next, old)
	// A runtime key may spell a configured one: an override of values that have a
	// rule of their own.
	s := &runtimeRule{key: k, counters: r.takenLocked(k)}
	if s.alias = s.counters != nil; !s.alias {
		s.counters = &RuleCounters{}
	}
	next[k.text()] = s
	r.runtime.Store(&next)
	return s.counters
}

// other returns the counters for what is beyond the bounds.
func (r *Rules) other(domain string) *RuleCounters {
	r.spill.Add(1)
	if c := (*r.overflow.Load())[domain]; c != nil {
		return c
	}
	// The request began with rules that had the domain; its series has ended.
	return &RuleCounters{}
}
