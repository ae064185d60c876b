package telemetry

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
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

// RuleLimit is one configured limit.
type RuleLimit struct {
	Key RuleKey
	// Requests in Window is what it grants. Window is 0 if it is unlimited.
	Requests uint64
	Window   time.Duration
}

// RuleCounters count the hits of one limit. All methods may be called
// concurrently and cost one atomic addition for each number that is not 0.
type RuleCounters struct {
	totalHits, overLimit, nearLimit, withinLimit, shadowMode, negativeHits atomic.Uint64
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
// [Rules.Configure] is called without them; keys that hold values of requests
// share a pool of [MaxRuntime], for as long as their domain is configured.
type Rules struct {
	mu         sync.Mutex
	configured map[RuleKey]configuredRule
	// omitted is how many configured limits have no series of their own.
	omitted int
	// overflow has the counters of each configured domain, by its name, for
	// whatever is beyond the bounds. Written under the lock, the map never.
	overflow atomic.Pointer[map[string]*RuleCounters]
	// runtime is read without the lock and replaced under it. The text key is
	// domain, limit label and metric key joined by zero bytes.
	runtime    atomic.Pointer[map[string]*RuleCounters]
	runtimeKey map[*RuleCounters]RuleKey
	// spill counts the decisions that went to overflow because there was no room.
	spill atomic.Uint64
}

type configuredRule struct {
	counters *RuleCounters
	limit    RuleLimit
}

// newRules returns an empty set, registered with m.
func newRules(m *Metrics) *Rules {
	r := &Rules{runtimeKey: map[*RuleCounters]RuleKey{}}
	r.overflow.Store(&map[string]*RuleCounters{})
	r.runtime.Store(&map[string]*RuleCounters{})
	m.Register(rulesCollector{r})
	return r
}

// Configure makes limits the configured series and returns their counters in
// order; those of equal keys share theirs and show the first one's numbers.
// Counters of keys that were configured before go on from their values; series of
// keys that are no longer there end. Domains are all that are configured, those
// without limits too.
func (r *Rules) Configure(domains []string, limits []RuleLimit) []*RuleCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[RuleKey]*RuleCounters, len(r.configured)+len(r.runtimeKey))
	for c, k := range r.runtimeKey {
		known[k] = c
	}
	for k, c := range r.configured {
		known[k] = c.counters
	}
	overflow := make(map[string]*RuleCounters, len(domains))
	for _, d := range domains {
		overflow[d] = (*r.overflow.Load())[d]
		if overflow[d] == nil {
			overflow[d] = known[otherKey(d)]
		}
		if overflow[d] == nil {
			overflow[d] = &RuleCounters{}
		}
		// A rule may be called other; then it is one series with what is beyond the
		// bounds.
		known[otherKey(d)] = overflow[d]
	}
	next := make(map[RuleKey]configuredRule, len(limits))
	out := make([]*RuleCounters, len(limits))
	r.omitted = 0
	for i, l := range limits {
		c, ok := next[l.Key]
		switch {
		case ok:
		case len(next) < MaxConfigured:
			c = configuredRule{known[l.Key], l}
			if c.counters == nil {
				c.counters = &RuleCounters{}
			}
			next[l.Key] = c
		default:
			c.counters = overflow[l.Key.Domain]
			r.omitted++
		}
		out[i] = c.counters
	}
	r.configured = next
	r.overflow.Store(&overflow)
	r.dropAliasesLocked()
	return out
}

// dropAliasesLocked deletes from the runtime map the keys that configured rules have
// now, and those of domains that are no longer configured. So the next request finds
// the counters of the configured rules.
func (r *Rules) dropAliasesLocked() {
	next := make(map[string]*RuleCounters)
	for text, c := range *r.runtime.Load() {
		k, ok := r.runtimeKey[c]
		if !ok {
			continue
		}
		_, reachable := (*r.overflow.Load())[k.Domain]
		if !reachable || r.takenLocked(k) != nil {
			delete(r.runtimeKey, c)
			continue
		}
		next[text] = c
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
	if c := runtime[string(scratch)]; c != nil {
		return c, scratch
	}
	// A value that is not UTF-8 cannot be a label.
	if len(runtime) >= MaxRuntime || !utf8.Valid(key) {
		return r.other(domain), scratch
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
		return r.other(k.Domain)
	}
	next := make(map[string]*RuleCounters, len(old)+1)
	maps.Copy(next, old)
	// A runtime key may spell a configured one: an override of values that have a
	// rule of their own.
	c := r.takenLocked(k)
	if c == nil {
		c = &RuleCounters{}
		r.runtimeKey[c] = k
	}
	next[text] = c
	r.runtime.Store(&next)
	return c
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
