package main

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A policy is one of sluice's algorithms with what it needs besides numbers.
type policy struct {
	name string
	// with returns the algorithm's policy of so many hits per window, all of
	// which may come at once.
	with func(limit uint32, window time.Duration) limiter.Policy
	// maxLimit is the greatest limit.
	maxLimit uint32
	// oneWord says that a counter is a single word.
	oneWord bool
	// fast says that it shall be faster than x/time/rate when the time is given.
	fast bool
}

// reference is the algorithm that peers are compared with: most of them are one.
const reference = "sluice, token bucket"

var policies = []policy{
	{
		name: "fixed window", oneWord: true, fast: true, maxLimit: math.MaxUint32,
		with: func(limit uint32, window time.Duration) limiter.Policy {
			return limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: window}
		},
	},
	{
		name: "token bucket", oneWord: true, fast: true, maxLimit: math.MaxUint32,
		with: func(limit uint32, window time.Duration) limiter.Policy {
			return limiter.Policy{Algorithm: limiter.TokenBucket, Limit: limit, Window: window, Burst: limit}
		},
	},
	{
		name: "leaky bucket", oneWord: true, fast: true, maxLimit: math.MaxUint32,
		with: func(limit uint32, window time.Duration) limiter.Policy {
			return limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: limit, Window: window, Slack: limit - 1}
		},
	},
	{
		name: "sliding window, ring of ten", fast: true, maxLimit: math.MaxUint32,
		with: func(limit uint32, window time.Duration) limiter.Policy {
			return limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: limit, Window: window, SubWindows: 10}
		},
	},
	{
		name: "sliding log", maxLimit: limiter.MaxLog,
		with: func(limit uint32, window time.Duration) limiter.Policy {
			return limiter.Policy{Algorithm: limiter.SlidingLog, Limit: limit, Window: window}
		},
	},
}

func (p *policy) title() string { return "sluice, " + p.name }

// works returns an error if a table does not decide by p: then there is nothing
// to be measured.
func (p *policy) works() error {
	const limit = 10
	counts := p.with(limit, limit*time.Second)
	if err := counts.Validate(); err != nil {
		return err
	}
	t, err := p.newTable(counts, limit)
	if err != nil {
		return err
	}
	// All hits come just before a window ends, and one just after it: of these
	// algorithms the fixed window alone admits that one.
	edge := limiter.Time(1_700_000_000 * time.Second)
	b := &limiter.Batch{Charges: []limiter.Charge{{ID: identity.ID{Hi: 1 << 8, Lo: 1}, Policy: &counts, Hits: limit}}}
	t.Decide(edge-limiter.Time(time.Second/10), b)
	if b.Denied {
		return fmt.Errorf("a new counter denies %d hits, its limit", limit)
	}
	b.Charges[0].Hits = 1
	t.Decide(edge+limiter.Time(time.Second/10), b)
	if over := counts.Algorithm != limiter.FixedWindow; b.Denied != over {
		return fmt.Errorf("hit %d within 0.2s around a window's end: denied is %v, want %v", limit+1, b.Denied, over)
	}
	return nil
}

// policyFor returns the policy for a setting.
func (p *policy) policyFor(s setting) limiter.Policy {
	switch {
	case s.purpose == denying:
		return p.with(1, rarely)
	case s.purpose == lasting:
		return p.with(10, 24*time.Hour)
	case p.maxLimit == math.MaxUint32:
		return p.with(math.MaxUint32, 24*time.Hour)
	case s.counters > 1000: // so that a million of them fit into the memory
		return p.with(10, time.Second)
	default:
		return p.with(p.maxLimit, time.Second)
	}
}

// newTable returns a table with room for so many counters: when all are live, half
// of the slots of one word are taken, and 65 % of larger ones.
func (p *policy) newTable(counts limiter.Policy, counters int) (*limiter.Table, error) {
	load, shelves := 0.65, 16.0/15 // a sixteenth is for counters of one word
	if p.oneWord {
		load, shelves = 0.5, 1
	}
	need := float64(limiter.CounterBytes(counts)*counters) / load
	const kept = 1.0 / 8 // for sizes that a table was not made for
	return limiter.New(limiter.Options{
		Bytes:    max(1<<20, int64(need*shelves/(1-kept))),
		Policies: []limiter.Policy{counts},
	})
}

// contender returns p as one.
func (p *policy) contender() *contender {
	return &contender{name: p.title(), keys: "one table", ours: true, oneWord: p.oneWord, open: p.open}
}

func (p *policy) open(s setting) (*store, error) {
	counts := p.policyFor(s)
	t, err := p.newTable(counts, s.counters)
	if err != nil {
		return nil, fmt.Errorf("make a table: %w", err)
	}
	counts.Prepare() // as rules are when they are compiled
	prefix := identity.NewKey().Hasher()
	return &store{
		worker: func() worker {
			own := &desk{charge: [1]limiter.Charge{{Policy: &counts, Hits: 1}}}
			b := &own.batch
			b.Charges, b.Decisions = own.charge[:], own.decision[:]
			return func(k []byte) bool {
				own.charge[0].ID = identify(prefix, k)
				t.Prefetch(b)
				t.Decide(readClock(), b)
				return !b.Denied
			}
		},
		evicted: func() uint64 { return t.Stats().Evicted },
	}, nil
}

// A desk is what one worker writes.
type desk struct {
	_        [apart]byte
	batch    limiter.Batch
	charge   [1]limiter.Charge
	decision [1]limiter.Decision
	_        [apart]byte
}

// baseline is what sluice does before it decides.
var baseline = &contender{name: "(identity and clock alone)", keys: "–", baseline: true, open: openBaseline}

func openBaseline(setting) (*store, error) {
	prefix := identity.NewKey().Hasher()
	return &store{worker: func() worker {
		sum := &struct {
			_ [apart]byte
			n uint64
			_ [apart]byte
		}{}
		return func(k []byte) bool {
			id := identify(prefix, k)
			sum.n += id.Hi + id.Lo + uint64(readClock()) //nolint:gosec // bits
			return true
		}
	}}, nil
}

// identify hashes all of the key, as if each part of it could be anything. h is one
// that has seen nothing.
func identify(h identity.Hasher, key []byte) identity.ID {
	h.Bytes(key)
	return h.Sum()
}

// systemClock is what the service reads.
var systemClock = clock.New()

func readClock() limiter.Time {
	now, _ := systemClock.Now()
	return now
}
