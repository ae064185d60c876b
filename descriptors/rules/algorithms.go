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

// The values of the algorithms' words for limits that do not have them.
const (
	defaultSubWindows = 10
	defaultSlack      = 10
	DefaultMaxWaiting = 100
)

// LongestMaxWait bounds how long a reply may be held.
const LongestMaxWait = time.Minute

// A row is what rules say of an algorithm. Functions that are nil do nothing.
type row struct {
	name   string
	letter byte   // of the names of its counters in a store
	starts bool   // there such a name ends in the start of the window
	most   uint32 // the greatest requests_per_unit, and why
	why    string
	words  []word // of its own
	// mean gives p what l's words mean.
	mean func(p *limiter.Policy, l *Limit)
	// burst returns how many hits a bucket takes at once: its first word, and so many more. They take
	// their time to fill it, or to come back.
	burst  func(p *limiter.Policy) uint64
	more   uint64
	toFill string
	// scale returns p, whose number was another, with words that fit its number.
	scale func(p limiter.Policy, was uint32) limiter.Policy
}

// A word is one of an algorithm's own.
type word struct {
	name  string
	given func(w *Words) bool
	value func(p *limiter.Policy) any
}

// rows has what is said of each algorithm.
var rows = [...]row{
	0:                   {name: "unknown", most: math.MaxUint32},
	limiter.FixedWindow: {name: "fixed_window", letter: 'f', starts: true, most: math.MaxUint32},
	limiter.SlidingWindow: {
		name: "sliding_window", letter: 'r', most: math.MaxUint32,
		words: []word{{"sub_windows", func(w *Words) bool { return w.SubWindows != nil }, func(p *limiter.Policy) any { return p.SubWindows }}},
		mean:  func(p *limiter.Policy, l *Limit) { p.SubWindows = Given(l.SubWindows, defaultSubWindows) },
	},
	limiter.SlidingLog: {
		name: "sliding_log", letter: 'l', most: limiter.MaxLog,
		why: "because the time of each hit is kept; sliding_window has no such bound",
	},
	limiter.TokenBucket: {
		name: "token_bucket", letter: 't', most: math.MaxUint32,
		words: []word{{"burst", func(w *Words) bool { return w.Burst != nil }, func(p *limiter.Policy) any { return p.Burst }}},
		mean:  func(p *limiter.Policy, l *Limit) { p.Burst = Given(l.Burst, max(1, l.RequestsPerUnit)) },
		burst: func(p *limiter.Policy) uint64 { return uint64(p.Burst) }, toFill: "fill",
		scale: scaleBurst,
	},
	limiter.LeakyBucket: {
		name: "leaky_bucket", letter: 'k', most: math.MaxUint32,
		words: []word{
			{"slack", func(w *Words) bool { return w.Slack != nil }, func(p *limiter.Policy) any { return p.Slack }},
			{"max_wait", func(w *Words) bool { return w.MaxWait != nil }, func(p *limiter.Policy) any { return p.MaxWait }},
			{"max_waiting", func(w *Words) bool { return w.MaxWaiting != nil }, func(p *limiter.Policy) any { return p.MaxWaiting }},
		},
		mean: func(p *limiter.Policy, l *Limit) {
			p.Slack, p.MaxWait, p.MaxWaiting = Given(l.Slack, defaultSlack), Given(l.MaxWait, 0), Given(l.MaxWaiting, DefaultMaxWaiting)
		},
		burst: func(p *limiter.Policy) uint64 { return uint64(p.Slack) + 1 }, more: 1, toFill: "come back",
		scale: func(p limiter.Policy, _ uint32) limiter.Policy {
			p.Slack = uint32(min(uint64(p.Slack), p.MaxHits()-1))
			return p
		},
	},
	limiter.Concurrency: {
		name: "concurrency", letter: 'p', most: limiter.MaxLog,
		why: "because each request that is held has a place of its own",
	},
}

var _ [limiter.Algorithms]row = rows // each has one

func rowOf(a limiter.Algorithm) *row {
	if int(a) >= len(rows) {
		a = 0
	}
	return &rows[a]
}

// AlgorithmNamed returns the algorithm of that name. Ok is false if there is none.
func AlgorithmNamed(name string) (a limiter.Algorithm, ok bool) {
	i := slices.Index(AlgorithmNames(), name) + 1
	return limiter.Algorithm(i), i > 0
}

// AlgorithmName is the inverse of [AlgorithmNamed].
func AlgorithmName(a limiter.Algorithm) string { return rowOf(a).name }

// AlgorithmNames returns the values that the word algorithm accepts, in the order of the limiter's numbers.
func AlgorithmNames() []string {
	var names []string
	for i := range rows[1:] {
		names = append(names, rows[i+1].name)
	}
	return names
}

// AlgorithmFields returns the algorithm and its own fields, each after a comma. It is empty for the default, a fixed window,
// unless explicit is set.
func AlgorithmFields(p *limiter.Policy, explicit bool) string {
	if p.Algorithm <= limiter.FixedWindow && !explicit {
		return ""
	}
	r := rowOf(p.Algorithm)
	text := []byte(", algorithm: " + r.name)
	for _, w := range r.words {
		text = fmt.Appendf(text, ", %s: %v", w.name, w.value(p))
	}
	return string(text)
}

// AppendKind appends what a counter of the policy holds, for its name in a store. Starts reports whether the store adds
// the start of the window.
func AppendKind(dst []byte, p *limiter.Policy) (name []byte, starts bool) {
	r := rowOf(p.Algorithm)
	dst = strconv.AppendInt(append(dst, r.letter), int64(p.Window/time.Second), 10)
	dst = appendCalendar(dst, p.Calendar)
	switch {
	case r.starts:
		dst = append(dst, '_')
	case p.SubWindows > 0:
		dst = strconv.AppendUint(append(dst, '.'), uint64(p.SubWindows), 10)
	}
	return dst, r.starts
}

// GreatestNumber is the greatest requests_per_unit of an algorithm.
func GreatestNumber(a limiter.Algorithm) uint32 { return rowOf(a).most }

// Renumber gives p another number of hits in another window, and fits its words to them. It reports false if the algorithm
// cannot have that number.
func Renumber(p *limiter.Policy, number uint32, window time.Duration) bool {
	r, was := rowOf(p.Algorithm), p.Limit
	p.Limit, p.Window = number, window
	if r.scale != nil && number <= r.most {
		*p = r.scale(*p, was)
	}
	return number <= r.most
}

// scaleBurst keeps the ratio of burst to limit, rounded up, and no more than a bucket of p may have. A
// limit that was 0 has no ratio, so the burst is the whole limit then, as by default.
func scaleBurst(p limiter.Policy, was uint32) limiter.Policy {
	scaled := uint64(p.Limit)
	if was > 0 {
		scaled = (uint64(p.Burst)*uint64(p.Limit) + uint64(was) - 1) / uint64(was)
	}
	p.Burst = uint32(max(1, min(scaled, p.MaxHits(), math.MaxUint32)))
	return p
}

// Backlog returns how long a used-up counter of p takes to equal a new one.
func Backlog(p *limiter.Policy) time.Duration {
	hits := uint64(p.Limit)
	if burst := rowOf(p.Algorithm).burst; burst != nil {
		hits = burst(p)
	}
	if p.Limit == 0 || hits == uint64(p.Limit) {
		return p.Window
	}
	hi, lo := bits.Mul64(hits, uint64(p.Window))
	n, _ := bits.Div64(hi, lo, uint64(p.Limit)) // at most 2^60, see Policy.MaxHits
	return time.Duration(n)
}
