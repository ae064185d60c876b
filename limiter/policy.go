package limiter

import (
	"fmt"
	"time"
)

// MaxWindow is the longest window that a [Policy] may have: ten years of 365 days.
const MaxWindow = 10 * 365 * 24 * time.Hour

// Algorithm names how a [Policy] counts. The zero value is not an algorithm.
type Algorithm uint8

// The algorithms. Their values are part of a counter's identity and never change.
const (
	// FixedWindow admits Limit hits in each window aligned to the Unix epoch, so
	// up to twice as many around a window's edge.
	FixedWindow Algorithm = 1
	// SlidingWindow admits Limit hits in every interval of length Window, counted
	// in SubWindows slots: hits return up to one slot late.
	SlidingWindow Algorithm = 2
	// SlidingLog admits Limit hits in every interval of length Window, exactly: it
	// keeps the time of each. Limit is at most [MaxLog].
	SlidingLog Algorithm = 3
	// TokenBucket admits Burst hits at once and Limit per Window in the long run.
	TokenBucket Algorithm = 4
	// LeakyBucket lets hits through Window/Limit apart, but for Slack that may
	// catch up after idle times, and holds those that come too early for up to
	// MaxWait.
	LeakyBucket Algorithm = 5
	// Concurrency admits a hit while fewer than Limit are held. Each is held under a lease until that is
	// given back, or for Window. Limit is at most [MaxLog].
	Concurrency Algorithm = 6

	// Algorithms is the length of a table with a row for each algorithm and an empty one for 0. A
	// table that lacks the row of a new one does not compile.
	Algorithms = iota + 1
)

// MaxLog is the greatest limit of a [SlidingLog] and of [Concurrency].
const MaxLog = 4096

// MaxSubWindows is the greatest number of slots of a [SlidingWindow].
const MaxSubWindows = 60

// Policy says what one limit allows. It is immutable once a charge refers to it
// and may be shared by any number of counters.
type Policy struct {
	// Algorithm must be set.
	Algorithm Algorithm
	// Limit is the number of hits per Window, 0..2^32-1. 0 denies every hit.
	Limit uint32
	// Window is a whole number of seconds, 1s..[MaxWindow].
	Window time.Duration
	// Calendar, if set, says where the windows of a FixedWindow or a SlidingWindow begin and end. Window is about
	// as long as they are then.
	Calendar *Calendar
	// CountRefused makes hits count even if they are denied. For a bucket that
	// is debt, capped at one window.
	CountRefused bool

	weighted    bool          // each place of a Concurrency has a number of hits: see reserve.go
	longestLife time.Duration // for which a place may be held that an earlier policy gave, if that is more than Window

	// SubWindows is the number of slots of a SlidingWindow, 1..[MaxSubWindows].
	SubWindows uint32
	// Burst is the size of a TokenBucket, at least 1.
	Burst uint32
	// Slack is how many hits of a LeakyBucket may be late and catch up.
	Slack uint32
	// MaxWait is how long a LeakyBucket holds a hit at most, 0..60s. 0 denies
	// instead.
	MaxWait time.Duration
	// MaxWaiting is how many hits may wait on one counter.
	MaxWaiting uint32

	// Reserve, if set, lets charges reserve hits that they settle later. Of windows that count and of
	// token buckets only.
	Reserve *Reserve
	// Penalty, if set, has who is denied denied for longer. Of windows, logs and token buckets only, without Reserve.
	Penalty *Penalty

	self  *Policy // where Prepare was called; a copy, which may be changed, is elsewhere
	ready prepared
}

// What Prepare computes, so that a decision need not divide.
type prepared struct {
	bucket        bucket
	ring          Ring
	class         int
	maxPermitLife int64 // of places
}

// Prepare computes what decisions under p need, so that each takes about half the
// time. It must be called last, before p is shared, where p will stay: a copy works
// too, but is not prepared. A policy that is used once is not worth it.
func (p *Policy) Prepare() {
	p.self, p.ready = nil, prepared{}
	p.ready = prepared{bucket: p.bucket(), ring: p.Ring(), class: p.class(), maxPermitLife: maxPermitLife(p)}
	p.self = p
}

// isPrepared reports whether p.ready is valid.
func (p *Policy) isPrepared() bool { return p.self == p }

// Capacity is how many hits a counter admits at most at one instant, those that
// would wait included: what [Decision.Before] is to be compared with.
func (p *Policy) Capacity() uint64 { return p.algorithm().capacity(p) }

// Validate returns an error if a field is out of its range.
func (p *Policy) Validate() error {
	if p.Window < time.Second || p.Window > MaxWindow || p.Window%time.Second != 0 {
		return fmt.Errorf("window of %v: must be whole seconds, %v to %v", p.Window, time.Second, MaxWindow)
	}
	if p.Algorithm == 0 || int(p.Algorithm) >= Algorithms {
		return fmt.Errorf("algorithm %d: not known", p.Algorithm)
	}
	if p.Calendar != nil {
		if err := p.Calendar.validate(p); err != nil {
			return err
		}
	}
	if p.Reserve != nil {
		if err := p.Reserve.validate(p); err != nil {
			return err
		}
	}
	if p.Penalty != nil {
		if err := p.Penalty.validate(p); err != nil {
			return err
		}
	}
	return p.algorithm().validate(p)
}

// window returns p.Window, cut to its range.
func (p *Policy) window() int64 { return int64(min(max(p.Window, time.Second), MaxWindow)) }
