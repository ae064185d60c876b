package limiter

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// maxHold is the longest [Policy.MaxWait].
const maxHold = 60 * time.Second

// maxFull is the most time that a full bucket may stand for.
const maxFull = 1 << 60

// What Prepare computes, so that a decision need not divide.
type prepared struct {
	bucket bucket
	class  int
	ring   ring
}

// Prepare computes what decisions under p need, so that each takes about half the
// time. It must be called last, before p is shared, where p will stay: a copy works
// too, but is not prepared. A policy that is used once is not worth it.
func (p *Policy) Prepare() {
	p.self, p.ready = nil, prepared{}
	p.ready = prepared{bucket: p.bucket(0), class: p.class(), ring: p.ring()}
	p.self = p
}

// isPrepared reports whether p.ready is valid.
func (p *Policy) isPrepared() bool { return p.self == p }

// Capacity is how many hits a counter admits at most at one instant, those that
// would wait included: what [Decision.Before] is to be compared with.
func (p *Policy) Capacity() uint64 {
	switch p.Algorithm {
	case TokenBucket, LeakyBucket:
		if p.Limit == 0 {
			return 0
		}
		k := p.bucket(0)
		return (k.full + k.hold) / k.step
	default:
		return uint64(p.Limit)
	}
}

// Validate returns an error if a field is out of its range.
func (p *Policy) Validate() error {
	if p.Window < time.Second || p.Window > MaxWindow || p.Window%time.Second != 0 {
		return fmt.Errorf("window of %v: must be whole seconds, %v to %v", p.Window, time.Second, MaxWindow)
	}
	switch p.Algorithm {
	case FixedWindow:
	case SlidingWindow:
		if p.SubWindows < 1 || p.SubWindows > MaxSubWindows {
			return fmt.Errorf("%d sub-windows: must be 1 to %d", p.SubWindows, MaxSubWindows)
		}
	case SlidingLog:
		if p.Limit > MaxLog {
			return fmt.Errorf("log of %d hits: must be at most %d", p.Limit, MaxLog)
		}
	case TokenBucket:
		if p.Burst == 0 {
			return fmt.Errorf("burst of 0: must be 1 to %d", uint32(math.MaxUint32))
		}
		if most := p.MaxHits(); uint64(p.Burst) > most {
			return fmt.Errorf("burst of %d: takes longer than 2^60 ns to fill, must be at most %d", p.Burst, most)
		}
	case LeakyBucket:
		if most := p.MaxHits(); uint64(p.Slack)+1 > most {
			return fmt.Errorf("slack of %d: takes longer than 2^60 ns to fill, must be at most %d", p.Slack, most-1)
		}
		if p.MaxWait < 0 || p.MaxWait > maxHold {
			return fmt.Errorf("longest wait of %v: must be 0s to %v", p.MaxWait, maxHold)
		}
	default:
		return fmt.Errorf("algorithm %d: not known", p.Algorithm)
	}
	return nil
}

// MaxHits is how many hits a bucket of p's rate may hold: those that take 2^60 ns,
// over 36 years, to drain, which is at least 3, as no window is longer than ten
// years. A rate of none has no bound. The window must be valid.
func (p *Policy) MaxHits() uint64 {
	if p.Limit == 0 {
		return math.MaxUint64
	}
	hi, lo := bits.Mul64(maxFull, uint64(p.Limit)) // the window is over a second, so hi < it
	q, _ := bits.Div64(hi, lo, uint64(p.Window))   //nolint:gosec // positive
	return q
}
