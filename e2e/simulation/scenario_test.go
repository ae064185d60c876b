package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/store"
)

const domain = "sim"

// limit is a rule with one limit. Each tenant has a counter.
type limit struct {
	key       string // of the rule, and the name of the limit
	algorithm string
	n         uint64
	window    time.Duration // in seconds
	fields    string        // further fields
	burst     uint64        // of token_bucket; of leaky_bucket, slack + 1 + waiting
	waiting   uint64        // hits whose response is delayed
	maxWait   time.Duration // for how long
	reserve   uint64        // amount
	parts     int           // sub-windows, if not 10
	maxCost   uint64        // hits of a request; 0 for mostly 1
	demand    float64       // requests per second and tenant
	lasts     float64       // mean duration of a request in seconds
	changes   []ruleChange  // that an operator makes
}

func (l *limit) grantsLeases() bool { return l.algorithm == "concurrency" || l.reserve > 0 }

// part returns the length of a sub-window.
func (l *limit) part() time.Duration { return l.window / time.Duration(cmp.Or(l.parts, 10)) }

// cost returns the hits of a request.
func (l *limit) cost(r *rand.Rand) uint64 {
	switch {
	case l.maxCost > 0:
		return 1 + r.Uint64N(l.maxCost)
	case r.IntN(20) == 0 && !l.grantsLeases():
		return 1 + r.Uint64N(3)
	}
	return 1
}

func (l *limit) yaml(name string) string {
	return fmt.Sprintf("{ unit: second, unit_multiplier: %d, requests_per_unit: %d, name: %s, algorithm: %s%s }\n", l.window/time.Second, l.n, name, l.algorithm, l.fields)
}

// scenario is a run as a seed determines it.
type scenario struct {
	seed         uint64
	offset       time.Duration // of the start
	duration     time.Duration // of the traffic
	grace        time.Duration // until everything must be at rest
	replicas     int
	envoys       int
	shared       bool   // counters in a store
	topology     string // of the store
	stateFiles   bool
	fallback     store.Fallback
	storeTimeout time.Duration
	callTimeout  time.Duration
	limits       []*limit
	tenants      []string
	rules        string
	changedRules string // of a reload
	faults       []fault
	attacks      []attack
	blocks       string // --store-blocks
	maxCounters  int    // of [domain] at the start; 0 for none
}

// newScenario returns the scenario of a seed.
func newScenario(seed uint64) *scenario {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &scenario{
		seed: seed, offset: time.Duration(r.Int64N(int64(time.Hour))), duration: 60 * time.Second, grace: 20 * time.Second,
		replicas: 1 + r.IntN(3), envoys: 1 + r.IntN(3), shared: r.IntN(3) > 0,
		fallback:     []store.Fallback{store.Local, store.Local, store.Local, store.Error, store.Allow, store.Deny}[r.IntN(6)],
		storeTimeout: []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second}[r.IntN(3)],
		callTimeout:  []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}[r.IntN(4)],
		tenants:      []string{"ann", "bob"}[:1+r.IntN(2)],
	}
	if !c.shared {
		c.replicas = 1
		c.stateFiles = r.IntN(2) == 0
	}
	c.chooseLimits(r)
	c.chooseFaults(r)
	c.chooseBounds()
	c.chooseTopology()
	c.chooseBlocks()
	c.chooseAttacks()
	return c
}

// newLimit returns a limit of 3 to n per some seconds.
func newLimit(r *rand.Rand, key, algorithm string, n uint64, seconds ...int) *limit {
	l := &limit{key: key, algorithm: algorithm, n: 3 + r.Uint64N(n-2), window: time.Duration(seconds[r.IntN(len(seconds))]) * time.Second}
	rate := float64(l.n) / l.window.Seconds()
	l.demand = min((0.5+2*r.Float64())*rate, max(5, 1.3*rate)) // more requests only take CPU time
	mean := uint64(1)
	if r.IntN(2) == 0 && !slices.Contains([]string{"concurrency", "reserve", "delayed", "penalty"}, key) {
		l.maxCost = []uint64{5, 25, 100}[r.IntN(3)]
		mean = (l.maxCost + 1) / 2
		l.n *= mean
	}
	switch algorithm {
	case "sliding_window":
		l.parts = 2 + r.IntN(9)
		l.fields = fmt.Sprintf(", sub_windows: %d", l.parts)
	case "token_bucket":
		l.burst = 1 + r.Uint64N(2*l.n)
		l.fields = fmt.Sprintf(", burst: %d", l.burst)
	case "leaky_bucket":
		l.burst = mean * (1 + r.Uint64N(5))
		l.fields = fmt.Sprintf(", slack: %d", l.burst-1)
	}
	return l
}

func (c *scenario) chooseLimits(r *rand.Rand) {
	algorithms := []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "reserve"}
	r.Shuffle(len(algorithms), func(i, j int) { algorithms[i], algorithms[j] = algorithms[j], algorithms[i] })
	for _, a := range algorithms[:2+r.IntN(2)] {
		l := newLimit(r, a, a, 14, 1, 2, 5, 10)
		switch a {
		case "leaky_bucket":
			if wait := uint64(r.IntN(3)); wait > 0 { // at most the hits of as many tenths of a window
				l.maxWait = time.Duration(wait) * l.window / 10
				l.fields += fmt.Sprintf(", max_wait: %v", l.maxWait)
				l.waiting = min(l.n*wait/10, 100) // the default of max_waiting
				l.burst += l.waiting
			}
		case "concurrency":
			l.window = 10 * time.Minute
			l.lasts = 0.2 + r.Float64()
			l.demand = min((0.5+2*r.Float64())*float64(l.n)/l.lasts, 8)
		case "reserve":
			l.algorithm, l.reserve, l.n = "token_bucket", 5+r.Uint64N(20), 100+r.Uint64N(200)
			l.burst = l.n
			l.lasts = 0.2 + r.Float64()
			l.demand = min((0.5+2*r.Float64())*float64(l.n/l.reserve)/l.window.Seconds(), 8)
			l.fields = fmt.Sprintf(", reserve: { amount: %d, ttl: 600s, unsettled: keep }", l.reserve)
		}
		c.limits = append(c.limits, l)
		if l.burst > 0 { // after an outage it is charged at most its size and the refill of a window (docs/store.md)
			c.grace = max(c.grace, l.window+time.Duration(l.burst)*l.window/time.Duration(l.n)+recovery)
		}
	}
	c.rules = yamlOf(c.limits)
	lower := *c.limits[0] // a reload changes the first limit, and adds a rule
	lower.n = max(1, lower.n/2)
	c.changedRules = yamlOf(append([]*limit{&lower, {key: "new", algorithm: "fixed_window", n: 1, window: time.Second}}, c.limits[1:]...))
}

// chooseBlocks adds a limit with so many requests that replicas charge its hits in blocks.
func (c *scenario) chooseBlocks() {
	r := rand.New(rand.NewPCG(c.seed, 6))
	if !c.shared || c.topology == cluster || c.topology == perSecond || r.IntN(6) > 0 {
		return
	}
	l := &limit{key: "blocks", algorithm: "fixed_window", window: time.Duration(1+r.IntN(3)) * time.Second}
	if others := []string{"sliding_window", "token_bucket", "leaky_bucket"}; r.IntN(2) == 0 {
		l.algorithm = others[r.IntN(len(others))]
	}
	rate := float64(25*c.replicas) * (1 + r.Float64())
	l.n, l.demand = uint64(rate*l.window.Seconds()), rate*(0.7+r.Float64())/float64(len(c.tenants))
	if r.IntN(2) == 0 { // none above a tenth of the limit
		l.maxCost = []uint64{10, 50, 100}[r.IntN(3)]
		l.n *= (l.maxCost + 1) / 2
	}
	if r.IntN(2) == 0 {
		c.faults = nil
	}
	switch l.algorithm {
	case "sliding_window":
		l.fields = ", sub_windows: 2"
	case "token_bucket":
		l.burst = l.n
	case "leaky_bucket":
		l.burst = l.n
		l.fields = fmt.Sprintf(", slack: %d", l.n-1)
	}
	c.blocks, c.limits = store.BlocksAuto, append(c.limits, l)
	c.rules += ruleOf(l)
	c.changedRules += ruleOf(l)
}

// yamlOf returns a rule file.
func yamlOf(limits []*limit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for _, l := range limits {
		b.WriteString(ruleOf(l))
	}
	return b.String()
}

func ruleOf(l *limit) string {
	return fmt.Sprintf("  - key: %s\n    rate_limit: %s", l.key, l.yaml(l.key))
}
