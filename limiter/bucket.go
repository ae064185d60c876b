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
type ticks uint64

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
	level = ticks(word-uint64(at)<<u) & tatMask //nolint:gosec // modulo 2^62
	if level > highest {
		return 0, u
	}
	return level, u
}

// A bucket is a policy converted to the unit of its words.
type bucket struct {
	step     ticks  // T; 0 if the limit is 0
	full     ticks  // the level of a full bucket
	delay    ticks  // maximum delay: how far the level may exceed full
	maxLevel ticks  // a higher level means that the clock was set back since the last hit
	factor   uint64 // 2^(64+shift)/T, rounded up, to divide by multiplication; see divide
	shift    uint8
	unit     unit
}

func (p *Policy) bucket() bucket {
	if p.isPrepared() {
		return p.ready.bucket
	}
	k := bucket{}
	if p.Limit == 0 || p.Window <= 0 || p.Window > MaxWindow {
		k.maxLevel = maxLevelCoarse // an earlier policy may have had any limit
		return k
	}
	limit := ticks(p.Limit)
	if ticks(p.Window) < limit<<fineBelow {
		k.unit = fine
	}
	window := k.unit.fromDuration(p.Window) // below 2^63
	k.step = max(2, (window+limit-1)/limit) // 4 at least if p is valid
	k.factor, k.shift = reciprocal(uint64(k.step))
	hits := uint64(p.Burst)
	if p.Algorithm == LeakyBucket {
		hits = uint64(p.Slack) + 1
	}
	if k.full = k.need(hits); k.full > maxFull {
		k.full = maxFull / k.step * k.step
	}
	if p.delays() {
		k.delay = min(k.unit.fromDuration(min(p.MaxWait, maxDelay)), k.need(uint64(p.MaxWaiting)))
	}
	k.maxLevel = k.highestLevel(p)
	return k
}

// debt returns by how much denied hits that count may exceed the level of a full bucket.
func (k *bucket) debt(p *Policy) ticks {
	return k.unit.fromDuration(time.Duration(p.window()))
}

// highestLevel returns the highest level of a bucket that began an hour ahead; see begunAhead.
func (k *bucket) highestLevel(p *Policy) ticks {
	return k.full + max(k.delay, k.debt(p)) + k.unit.fromDuration(time.Duration(maxAheadNanos))
}

// delays reports whether hits may be delayed.
func (p *Policy) delays() bool { return p.Algorithm == LeakyBucket && p.MaxWait > 0 }

// delayWithin returns the maximum delay within the budget.
func (k *bucket) delayWithin(budget time.Duration) ticks {
	return min(k.delay, k.unit.fromDuration(min(max(budget, 0), maxDelay)))
}

// reciprocal returns factor and shift of a step of 2 to 2^62, such that step/2 <= 2^shift < step.
// The factor then has 64 bits.
func reciprocal(step uint64) (factor uint64, shift uint8) {
	shift = uint8(bits.Len64(step-1) - 1) //nolint:gosec // below 64
	factor, rest := bits.Div64(1<<shift, 0, step)
	if rest > 0 {
		factor++
	}
	return factor, shift
}

// divide returns n / k.step by a multiplication. n must be below 2^63 and the step not 0. The step
// times factor exceeds 2^(64+shift) by less than the step, at most 2^(1+shift), so n * factor /
// 2^(64+shift) exceeds n/step by less than 1/step.
func (k *bucket) divide(n ticks) uint64 {
	q, _ := bits.Mul64(uint64(n), k.factor)
	return q >> (k.shift & 63)
}

// hitsIn returns the number of hits in a level, rounded up.
func (k *bucket) hitsIn(level ticks) uint64 {
	if level == 0 || k.step == 0 {
		return 0
	}
	return k.divide(level-1) + 1
}

// need returns by how much hits raise the level, at most math.MaxInt64.
func (k *bucket) need(hits uint64) ticks {
	over, n := bits.Mul64(hits, uint64(k.step))
	if over != 0 {
		return math.MaxInt64
	}
	return ticks(min(n, math.MaxInt64))
}

// level returns the level of a state at a time, in k's unit.
func (k *bucket) level(st state, at Time) ticks {
	level := ticks(uint64(st.mark)-uint64(at)<<(k.unit&63)) & tatMask //nolint:gosec // modulo 2^62
	if uint64(st.mark)>>60&4 != uint64(k.unit) {                      //nolint:gosec // the fine bit, as a unit
		level = k.convertedLevel(st, at)
	}
	if level > k.maxLevel {
		return 0
	}
	return level
}

// convertedLevel is level for a state in another unit.
func (k *bucket) convertedLevel(st state, at Time) ticks {
	level, u := levelOf(uint64(st.mark), at) //nolint:gosec // bits
	if u > k.unit {
		return ticks(u.toDuration(level)) //nolint:gosec // not negative
	}
	return min(level, maxLevelFine>>fine) << fine
}

// stateAt returns the state of a level at a time.
func (k *bucket) stateAt(at Time, level ticks) state {
	tat := (uint64(at)<<k.unit + uint64(level)) & tatMask //nolint:gosec // modulo 2^62
	if k.unit == fine {
		tat |= fineBit
	}
	return state{mark: int64(tat)}
}

// A Bucket has the parameters of a token or leaky bucket policy as times, in units of 1/16 ns if
// Fine is set, else of 1 ns.
type Bucket struct {
	// Step is the emission interval; 0 if the limit is 0 and no hit is admitted.
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
	// Fine selects the unit.
	Fine bool
}

// Bucket returns the parameters of a [TokenBucket] or [LeakyBucket].
func (p *Policy) Bucket() Bucket {
	k := p.bucket()
	return Bucket{
		Step: uint64(k.step), Full: uint64(k.full), Delay: uint64(k.delay),
		Debt: uint64(k.debt(p)), MaxLevel: uint64(k.maxLevel - k.unit.fromDuration(time.Duration(maxAheadNanos))), Fine: k.unit == fine,
	}
}

// Need returns by how much hits raise the level, at most 2^63-1.
func (k Bucket) Need(hits uint64) uint64 {
	inTicks := bucket{step: ticks(k.Step)}
	return uint64(inTicks.need(hits))
}

// Duration converts a level to a duration, rounded up.
func (k Bucket) Duration(level uint64) time.Duration {
	if k.Fine {
		return fine.toDuration(ticks(level))
	}
	return coarse.toDuration(ticks(level))
}

// DelayWithin returns the maximum delay of a request with the given budget.
func (k Bucket) DelayWithin(budget time.Duration) uint64 {
	inTicks := bucket{delay: ticks(k.Delay)}
	if k.Fine {
		inTicks.unit = fine
	}
	return uint64(inTicks.delayWithin(budget))
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
