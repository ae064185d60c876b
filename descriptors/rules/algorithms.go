package rules

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Defaults of the algorithms' fields.
const (
	defaultSubWindows = 10
	defaultSlack      = 10
	DefaultMaxWaiting = 100
)

// MaxMaxWait is the greatest max_wait, for which a reply may be delayed.
const MaxMaxWait = time.Minute

// algorithmInfo describes an algorithm. Functions may be nil.
type algorithmInfo struct {
	name        string
	letter      byte             // in the names of counters in a store
	perWindow   bool             // whether such a name ends with the start of the window
	maxRequests uint32           // maximum requests_per_unit
	maxReason   string           // reason for maxRequests, for errors
	fields      []algorithmField // fields that only this algorithm has
	// setPolicy sets the fields of p that belong to the algorithm.
	setPolicy func(p *limiter.Policy, l *Limit)
	// burst returns the number of hits that an idle bucket admits at once: the value of its first
	// field plus burstOffset. recovers is the verb of messages for the time until it admits the
	// same number again.
	burst       func(p *limiter.Policy) uint64
	burstOffset uint64
	recovers    string
	// scale returns p with the algorithm's fields adapted to its limit, which was the given number
	// before.
	scale func(p limiter.Policy, oldLimit uint32) limiter.Policy
}

// algorithmField is a field that only one algorithm has.
type algorithmField struct {
	name  string
	given func(w *DefaultFields) bool
	value func(p *limiter.Policy) any
}

// algorithms is indexed by limiter.Algorithm.
var algorithms = [...]algorithmInfo{
	0:                   {name: "unknown", maxRequests: math.MaxUint32},
	limiter.FixedWindow: {name: "fixed_window", letter: 'f', perWindow: true, maxRequests: math.MaxUint32},
	limiter.SlidingWindow: {
		name: "sliding_window", letter: 'r', maxRequests: math.MaxUint32,
		fields:    []algorithmField{{"sub_windows", func(w *DefaultFields) bool { return w.SubWindows != nil }, func(p *limiter.Policy) any { return p.SubWindows }}},
		setPolicy: func(p *limiter.Policy, l *Limit) { p.SubWindows = ValueOr(l.SubWindows, defaultSubWindows) },
	},
	limiter.SlidingLog: {
		name: "sliding_log", letter: 'l', maxRequests: limiter.MaxLog,
		maxReason: "because the time of each hit is stored; sliding_window has no such bound",
	},
	limiter.TokenBucket: {
		name: "token_bucket", letter: 't', maxRequests: math.MaxUint32,
		fields:    []algorithmField{{"burst", func(w *DefaultFields) bool { return w.Burst != nil }, func(p *limiter.Policy) any { return p.Burst }}},
		setPolicy: func(p *limiter.Policy, l *Limit) { p.Burst = ValueOr(l.Burst, max(1, l.RequestsPerUnit)) },
		burst:     func(p *limiter.Policy) uint64 { return uint64(p.Burst) }, recovers: "fill",
		scale: scaleBurst,
	},
	limiter.LeakyBucket: {
		name: "leaky_bucket", letter: 'k', maxRequests: math.MaxUint32,
		fields: []algorithmField{
			{"slack", func(w *DefaultFields) bool { return w.Slack != nil }, func(p *limiter.Policy) any { return p.Slack }},
			{"max_wait", func(w *DefaultFields) bool { return w.MaxWait != nil }, func(p *limiter.Policy) any { return p.MaxWait }},
			{"max_waiting", func(w *DefaultFields) bool { return w.MaxWaiting != nil }, func(p *limiter.Policy) any { return p.MaxWaiting }},
		},
		setPolicy: func(p *limiter.Policy, l *Limit) {
			p.Slack = ValueOr(l.Slack, defaultSlack)
			p.MaxWait = ValueOr(l.MaxWait, 0)
			p.MaxWaiting = ValueOr(l.MaxWaiting, DefaultMaxWaiting)
		},
		burst: func(p *limiter.Policy) uint64 { return uint64(p.Slack) + 1 }, burstOffset: 1, recovers: "recover",
		scale: func(p limiter.Policy, _ uint32) limiter.Policy {
			p.Slack = uint32(min(uint64(p.Slack), p.MaxHits()-1))
			return p
		},
	},
	limiter.Concurrency: {
		name: "concurrency", letter: 'p', maxRequests: limiter.MaxLog,
		maxReason: "because each running request holds a permit in memory",
	},
}

var _ [limiter.Algorithms]algorithmInfo = algorithms // fails to compile if one is missing

func infoOf(a limiter.Algorithm) *algorithmInfo {
	if int(a) >= len(algorithms) {
		a = 0
	}
	return &algorithms[a]
}

// AlgorithmNamed returns the algorithm with the given name. ok is false if there is none.
func AlgorithmNamed(name string) (a limiter.Algorithm, ok bool) {
	i := slices.Index(AlgorithmNames(), name) + 1
	return limiter.Algorithm(i), i > 0
}

// AlgorithmName is the inverse of [AlgorithmNamed].
func AlgorithmName(a limiter.Algorithm) string { return infoOf(a).name }

// AlgorithmNames returns the values of the field algorithm, in the order of the limiter's numbers.
func AlgorithmNames() []string {
	var names []string
	for i := range algorithms[1:] {
		names = append(names, algorithms[i+1].name)
	}
	return names
}

// AlgorithmFields returns the algorithm and its own fields, each after a comma. It is empty for the
// default, a fixed window, unless explicit is set.
func AlgorithmFields(p *limiter.Policy, explicit bool) string {
	if p.Algorithm <= limiter.FixedWindow && !explicit {
		return ""
	}
	r := infoOf(p.Algorithm)
	text := []byte(", algorithm: " + r.name)
	for _, w := range r.fields {
		text = fmt.Appendf(text, ", %s: %v", w.name, w.value(p))
	}
	return string(text)
}

// AppendKind appends the suffix of a counter's name in a store: algorithm, window and sub-windows.
// starts reports whether the store adds the start of the window.
func AppendKind(dst []byte, p *limiter.Policy) (name []byte, starts bool) {
	r := infoOf(p.Algorithm)
	dst = strconv.AppendInt(append(dst, r.letter), int64(p.Window/time.Second), 10)
	dst = appendCalendar(dst, p.Calendar)
	switch {
	case r.perWindow:
		dst = append(dst, '_')
	case p.SubWindows > 0:
		dst = strconv.AppendUint(append(dst, '.'), uint64(p.SubWindows), 10)
	}
	return dst, r.perWindow
}

// MaxRequests returns the greatest requests_per_unit of an algorithm.
func MaxRequests(a limiter.Algorithm) uint32 { return infoOf(a).maxRequests }

// Rescale sets the number and window of p and adapts the algorithm's fields. It returns false if
// the algorithm does not support the number.
func Rescale(p *limiter.Policy, number uint32, window time.Duration) bool {
	r := infoOf(p.Algorithm)
	before := p.Limit
	p.Limit = number
	p.Window = window
	if r.scale != nil && number <= r.maxRequests {
		*p = r.scale(*p, before)
	}
	return number <= r.maxRequests
}

// scaleBurst keeps the ratio of burst to limit, rounded up, within the bounds of p. If the limit
// was 0, the burst becomes the limit, as by default.
func scaleBurst(p limiter.Policy, oldLimit uint32) limiter.Policy {
	scaled := uint64(p.Limit)
	if oldLimit > 0 {
		scaled = (uint64(p.Burst)*uint64(p.Limit) + uint64(oldLimit) - 1) / uint64(oldLimit)
	}
	p.Burst = uint32(max(1, min(scaled, p.MaxHits(), math.MaxUint32)))
	return p
}

// RecoveryTime returns how long a used-up counter of p takes to equal a new one.
func RecoveryTime(p *limiter.Policy) time.Duration {
	hits := uint64(p.Limit)
	if burst := infoOf(p.Algorithm).burst; burst != nil {
		hits = burst(p)
	}
	if p.Limit == 0 || hits == uint64(p.Limit) {
		return p.Window
	}
	hi, lo := bits.Mul64(hits, uint64(p.Window))
	n, _ := bits.Div64(hi, lo, uint64(p.Limit)) // at most 2^60, see Policy.MaxHits
	return time.Duration(n)
}
