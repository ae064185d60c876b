package limiter

import (
	"fmt"
	"time"
)

// MaxWindow is the longest window that a [Policy] may have: ten years of 365 days.
const MaxWindow = 10 * 365 * 24 * time.Hour

// Algorithm selects how a [Policy] counts. The zero value is not an algorithm.
type Algorithm uint8

// The algorithms. Their values are part of a counter's identity and never change.
const (
	// FixedWindow admits Limit hits in each window aligned to the Unix epoch, so up to twice the
	// limit around a window boundary.
	FixedWindow Algorithm = 1
	// SlidingWindow admits Limit hits in every interval of length Window. It counts in SubWindows
	// sub-windows, so capacity returns up to one sub-window late.
	SlidingWindow Algorithm = 2
	// SlidingLog admits exactly Limit hits in every interval of length Window: it stores the time
	// of each hit. Limit is at most [MaxLog].
	SlidingLog Algorithm = 3
	// TokenBucket admits Burst hits at once and Limit per Window in the long run.
	TokenBucket Algorithm = 4
	// LeakyBucket spaces hits Window/Limit apart. After idle times up to Slack hits may pass early.
	// Hits that come too early are delayed by up to MaxWait.
	LeakyBucket Algorithm = 5
	// Concurrency admits a hit while fewer than Limit hits are in progress. Each admitted hit holds
	// a permit under a lease until the lease is returned, at most for Window. Limit is at most
	// [MaxLog].
	Concurrency Algorithm = 6

	// Algorithms is the length of an array that is indexed by algorithm. Index 0 is unused.
	Algorithms = iota + 1
)

// MaxLog is the greatest limit of [SlidingLog] and [Concurrency].
const MaxLog = 4096

// MaxSubWindows is the greatest number of sub-windows of a [SlidingWindow].
const MaxSubWindows = 60

// Policy configures one limit. It must not change once a charge refers to it. Any number of
// counters may share it.
type Policy struct {
	// Algorithm must be set.
	Algorithm Algorithm
	// Limit is the number of hits per Window. 0 denies every hit.
	Limit uint32
	// Window is a whole number of seconds, 1s..[MaxWindow].
	Window time.Duration
	// Calendar, if set, aligns the windows of a FixedWindow or SlidingWindow to calendar units.
	// Window is then their approximate length.
	Calendar *Calendar
	// CountRefused makes denied hits count, too. In a bucket they become debt, capped at one
	// window.
	CountRefused bool

	// Pinned keeps counters where a flood of other counters cannot evict them; see Pin. It is for few
	// counters.
	Pinned bool

	// NoBlocks makes a store decide each charge: no replica charges hits in advance.
	NoBlocks bool

	weighted    bool          // Concurrency only: each permit records a number of hits; see reserve.go
	longestLife time.Duration // maximum life of a permit granted under an earlier policy, if longer than Window

	// SubWindows is the number of sub-windows of a SlidingWindow, 1..[MaxSubWindows].
	SubWindows uint32
	// Burst is the capacity of a TokenBucket, at least 1.
	Burst uint32
	// Slack is the number of hits of a LeakyBucket that may pass early after idle times.
	Slack uint32
	// MaxWait is the longest delay of a hit of a LeakyBucket, 0..60s. With 0 the hit is denied
	// instead.
	MaxWait time.Duration
	// MaxWaiting is the maximum number of delayed hits per counter.
	MaxWaiting uint32

	// Reserve, if set, allows charges to reserve hits and settle them later. FixedWindow,
	// SlidingWindow and TokenBucket only.
	Reserve *Reserve
	// Penalty, if set, extends denials. FixedWindow, SlidingWindow, SlidingLog and TokenBucket
	// only, and not together with Reserve.
	Penalty *Penalty

	self  *Policy // the address at which Prepare was called; differs in a copy, which may have been changed
	ready prepared
}

// prepared contains the results of Prepare, which save divisions in decisions.
type prepared struct {
	bucket        Bucket
	ring          Ring
	class         int
	maxPermitLife int64 // in milliseconds
}

// Pin sets Pinned, also for the reservations.
func (p *Policy) Pin() {
	p.Pinned = true
	if p.Reserve != nil {
		p.Reserve.hold.Pinned = true
	}
}

// Prepare precomputes values for decisions under p, which about halves the time of a decision. Call
// it after all fields are set and before p is shared. A copy of p works but is not prepared.
// Preparing a policy that is used only once does not pay off.
func (p *Policy) Prepare() {
	p.self = nil
	p.ready = prepared{}
	p.ready = prepared{bucket: p.Bucket(), ring: p.Ring(), class: p.class(), maxPermitLife: maxPermitLife(p)}
	p.self = p
}

func (p *Policy) isPrepared() bool { return p.self == p }

// Capacity returns the maximum number of hits that a counter can admit at one instant, including
// delayed hits. It is the scale of [Decision.Before].
func (p *Policy) Capacity() uint64 { return p.algorithm().capacity(p) }

// Validate returns an error if a field is out of its range.
func (p *Policy) Validate() error {
	if p.Window < time.Second || p.Window > MaxWindow || p.Window%time.Second != 0 {
		return fmt.Errorf("window of %v: must be whole seconds, %v to %v", p.Window, time.Second, MaxWindow)
	}
	if p.Algorithm == 0 || int(p.Algorithm) >= Algorithms {
		return fmt.Errorf("unknown algorithm %d", p.Algorithm)
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

// window returns p.Window clamped to its range.
func (p *Policy) window() int64 { return int64(min(max(p.Window, time.Second), MaxWindow)) }
