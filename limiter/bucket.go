package limiter

import (
	"math"
	"math/bits"
	"time"
)

// Token and leaky bucket both use the generic cell rate algorithm (GCRA, ITU-T I.371). A counter is
// a single time, the theoretical arrival time (TAT), at which all admitted hits will have drained.
// A hit advances it from itself or now, whichever is later, by one emission interval T =
// Window/Limit. The level of the bucket is TAT - now. It is at most full, that is, the burst
// tolerance plus T; a leaky bucket may exceed full by the maximum delay. A counter whose TAT has
// passed equals a new one.
//
// The word of a bucket, from the high bits to the low:
//
//	 1 bit   generation: flips when the slot changes its owner
//	 1 bit   fine: the unit is 1/16 ns, else 1 ns
//	62 bits  TAT since the Unix epoch in that unit, modulo 2^62
//
// T is rounded up to a whole unit, so the rate is low by at most one unit per hit. Policies with T
// below 1024 ns use the fine unit; a change of the limit across that border keeps the counter,
// since the word contains its unit. A TAT that is ahead of now by more than the highest level and
// an hour is taken to have passed; see begunAhead. A word must not be left unused for 99 years, or
// 9 if it is fine.
const (
	fineBit   = 1 << 62
	tatMask   = fineBit - 1
	fineBelow = 10 // 2^10 ns

	// The highest levels of any bucket, in their units, as seen by a caller who is an hour late. A
	// coarse bucket has at most 2^60 ns and the longest window as debt; a fine one 2^32 hits and
	// their debt.
	maxLevelCoarse = ticks(maxFull) + ticks(MaxWindow) + ticks(maxAheadNanos)
	maxLevelFine   = ticks(2<<(32+fineBelow)+maxAheadNanos) << fine

	// maxDelay is the upper bound of [Policy.MaxWait].
	maxDelay = 60 * time.Second
	// maxFull is the longest time that a full bucket may take to drain, in nanoseconds.
	maxFull = 1 << 60
)

// ticks is a duration in a bucket's unit.
type ticks = uint64

// A unit is the length of a tick, 1 ns or 1/16 ns, as the binary logarithm of ticks per nanosecond.
type unit uint8

const (
	coarse unit = 0
	fine   unit = 4
)

// fromDuration converts a duration to the unit.
func (u unit) fromDuration(d time.Duration) ticks { return ticks(d) << u } //nolint:gosec // not negative

// toDuration rounds ticks up to whole nanoseconds.
func (u unit) toDuration(t ticks) time.Duration {
	return time.Duration((t + 1<<u - 1) >> u) //nolint:gosec // a level is below 2^62
}

// levelOf returns how far the TAT of a word is after at, 0 if it has passed.
func levelOf(word uint64, at Time) (level ticks, u unit) {
	highest := maxLevelCoarse
	if word&fineBit != 0 {
		u = fine
		highest = maxLevelFine
	}
	level = (word - uint64(at)<<u) & tatMask //nolint:gosec // modulo 2^62
	if level > highest {
		return 0, u
	}
	return level, u
}

// A Bucket has the parameters of a token or leaky bucket policy as times, in units of 1/16 ns if it
// is fine, else of 1 ns.
type Bucket struct {
	// Step is the emission interval T; 0 if the limit is 0 and no hit is admitted.
	Step uint64
	// Full is the level of a full bucket: how far its TAT may be ahead of now.
	Full uint64
	// Delay is how far the level may exceed Full if hits are delayed.
	Delay uint64
	// Debt is how far denied hits that count may raise the level above Full: one window.
	Debt uint64
	// MaxLevel is the highest level. A level that exceeds it by more than an hour means that the
	// clock was set back.
	MaxLevel uint64
	highest  ticks // MaxLevel and an hour; see begunAhead
	unit     unit
}

// Bucket returns the parameters of a [TokenBucket] or [LeakyBucket].
func (p *Policy) Bucket() Bucket {
	if p.isPrepared() {
		return p.ready.bucket
	}
	k := Bucket{Debt: ticks(p.window())} //nolint:gosec // positive
	if p.Limit == 0 || p.Window <= 0 || p.Window > MaxWindow {
		k.highest = maxLevelCoarse // an earlier policy may have had any limit
		k.MaxLevel = k.highest - ticks(maxAheadNanos)
		return k
	}
	limit := ticks(p.Limit)
	if ticks(p.Window) < limit<<fineBelow {
		k.unit = fine
		k.Debt <<= fine
	}
	window := k.unit.fromDuration(p.Window) // below 2^63
	k.Step = max(2, (window+limit-1)/limit) // 4 at least if p is valid
	hits := uint64(p.Burst)
	if p.Algorithm == LeakyBucket {
		hits = uint64(p.Slack) + 1
	}
	if k.Full = k.Need(hits); k.Full > maxFull {
		k.Full = maxFull / k.Step * k.Step
	}
	if p.delays() {
		k.Delay = min(k.unit.fromDuration(min(p.MaxWait, maxDelay)), k.Need(uint64(p.MaxWaiting)))
	}
	k.MaxLevel = k.Full + max(k.Delay, k.Debt)
	k.highest = k.MaxLevel + k.unit.fromDuration(time.Duration(maxAheadNanos))
	return k
}

// Fine reports whether the unit is 1/16 ns.
func (k *Bucket) Fine() bool { return k.unit == fine }

// delays reports whether hits may be delayed.
func (p *Policy) delays() bool { return p.Algorithm == LeakyBucket && p.MaxWait > 0 }

// DelayWithin returns the maximum delay of a request with the given budget.
func (k *Bucket) DelayWithin(budget time.Duration) uint64 {
	return min(k.Delay, k.unit.fromDuration(min(max(budget, 0), maxDelay)))
}

// hitsIn returns the number of hits in a level, rounded up.
func (k *Bucket) hitsIn(level ticks) uint64 {
	if level == 0 || k.Step == 0 {
		return 0
	}
	return (level-1)/k.Step + 1
}

// Need returns by how much hits raise the level, at most 2^63-1.
func (k *Bucket) Need(hits uint64) uint64 {
	over, n := bits.Mul64(hits, k.Step)
	if over != 0 {
		return math.MaxInt64
	}
	return min(n, math.MaxInt64)
}

// Duration converts a level to a duration, rounded up.
func (k *Bucket) Duration(level uint64) time.Duration { return k.unit.toDuration(level) }

// level returns the level of a state at a time, in k's unit.
func (k *Bucket) level(st state, at Time) ticks {
	level := (uint64(st.mark) - uint64(at)<<(k.unit&63)) & tatMask //nolint:gosec // modulo 2^62
	if uint64(st.mark)>>60&4 != uint64(k.unit) {                   //nolint:gosec // the fine bit, as a unit
		level = k.convertedLevel(st, at)
	}
	if level > k.highest {
		return 0
	}
	return level
}

// convertedLevel is level for a state in another unit.
func (k *Bucket) convertedLevel(st state, at Time) ticks {
	level, u := levelOf(uint64(st.mark), at) //nolint:gosec // bits
	if u > k.unit {
		return ticks(u.toDuration(level)) //nolint:gosec // not negative
	}
	return min(level, maxLevelFine>>fine) << fine
}

// stateAt returns the state of a level at a time.
func (k *Bucket) stateAt(at Time, level ticks) state {
	tat := (uint64(at)<<k.unit + level) & tatMask //nolint:gosec // modulo 2^62
	if k.unit == fine {
		tat |= fineBit
	}
	return state{mark: int64(tat)}
}

// MaxHits returns the maximum number of hits in a bucket of p's rate: those that take 2^60 ns, over
// 36 years, to drain. It is at least 3, since no window is longer than ten years. A limit of 0 has
// no maximum. The window must be valid.
func (p *Policy) MaxHits() uint64 {
	if p.Limit == 0 {
		return math.MaxUint64
	}
	hi, lo := bits.Mul64(maxFull, uint64(p.Limit)) // hi < Window, which is at least a second
	q, _ := bits.Div64(hi, lo, uint64(p.Window))   //nolint:gosec // positive
	return q
}
