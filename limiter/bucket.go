package limiter

import (
	"math"
	"math/bits"
	"time"
)

// Token and leaky bucket are one algorithm, the generic cell rate algorithm (GCRA,
// ITU-T I.371). A counter is one time, the theoretical arrival time TAT, at which all
// it has admitted will have drained. A hit moves it one emission interval T =
// Window/Limit ahead of itself or of now, whichever is later. How far it is ahead of
// now is the level of the bucket. The level is at most full, the burst tolerance and T;
// a leaky bucket lets it go further by what a hit may wait. A TAT that has passed is
// that of a new counter.
//
// A bucket's word, from the high bits to the low:
//
//	 1 bit   generation: flips when the slot changes hands
//	 1 bit   fine: the unit is 1/16 ns, else 1 ns
//	62 bits  TAT since the Unix epoch in that unit, modulo 2^62
//
// T is rounded up to a whole unit, so the rate falls short by at most one unit a
// hit. Policies whose T is below 1024 ns use the fine unit; a change of limit
// across that border keeps the counter, since the word says its unit. What lies
// ahead of now by more than its highest level and an hour is taken to have passed: see
// begunAhead. A word must not lie untouched for 99 years, or 9 if it is fine.
const (
	fineBit   = 1 << 62
	tatMask   = fineBit - 1
	fineBelow = 10 // 2^10 ns

	// The highest levels of any bucket, in their units, seen by a caller who is an hour late. A
	// coarse one is a bucket of 2^60 ns in debt by the longest window; a fine one 2^32 hits and
	// their debt.
	highestCoarse = ticks(maxFull) + ticks(MaxWindow) + ticks(mostAheadNanos)
	highestFine   = ticks(2<<(32+fineBelow)+mostAheadNanos) << fine

	// maxHold is the longest [Policy.MaxWait].
	maxHold = 60 * time.Second
	// maxFull is the most time that a full bucket may stand for.
	maxFull = 1 << 60
)

// ticks is a span of time in a bucket's unit.
type ticks uint64

// A unit is what ticks are, 1 ns or 1/16 ns: so many to the nanosecond, as a power of
// two.
type unit uint8

const (
	coarse unit = 0
	fine   unit = 4
)

// of returns a span of time in the unit.
func (u unit) of(d time.Duration) ticks { return ticks(d) << u } //nolint:gosec // not negative

// nanos rounds ticks up to whole nanoseconds.
func (u unit) nanos(t ticks) time.Duration {
	return time.Duration((t + 1<<u - 1) >> u) //nolint:gosec // a level is below 2^62
}

// levelOf returns how long after at the word's TAT is, 0 if it has passed.
func levelOf(word uint64, at Time) (level ticks, u unit) {
	highest := highestCoarse
	if word&fineBit != 0 {
		u, highest = fine, highestFine
	}
	level = ticks(word-uint64(at)<<u) & tatMask //nolint:gosec // modulo 2^62
	if level > highest {
		return 0, u
	}
	return level, u
}

// A bucket is a policy in the unit of its words.
type bucket struct {
	step ticks  // T; 0 if the limit is 0
	full ticks  // the level of a full bucket
	hold ticks  // what hits may wait beyond that
	most ticks  // the highest level: it is higher only if the clock was set back since the last hit
	part uint64 // 2^(64+down)/T, rounded up, so that a division is a multiplication; see over
	down uint8
	unit unit
}

func (p *Policy) bucket() bucket {
	if p.isPrepared() {
		return p.ready.bucket
	}
	k := bucket{}
	if p.Limit == 0 || p.Window <= 0 || p.Window > MaxWindow {
		k.most = highestCoarse // a limit of before may have been any
		return k
	}
	limit := ticks(p.Limit)
	if ticks(p.Window) < limit<<fineBelow {
		k.unit = fine
	}
	window := k.unit.of(p.Window)           // below 2^63
	k.step = max(2, (window+limit-1)/limit) // 4 at least if p is valid
	k.part, k.down = reciprocal(uint64(k.step))
	hits := uint64(p.Burst)
	if p.Algorithm == LeakyBucket {
		hits = uint64(p.Slack) + 1
	}
	if k.full = k.need(hits); k.full > maxFull {
		k.full = maxFull / k.step * k.step
	}
	if p.holds() {
		k.hold = min(k.unit.of(min(p.MaxWait, maxHold)), k.need(uint64(p.MaxWaiting)))
	}
	k.most = k.highest(p)
	return k
}

// debt is by how much hits that are denied and count may exceed the level of a full bucket.
func (k *bucket) debt(p *Policy) ticks { return max(k.hold, k.unit.of(time.Duration(p.window()))) }

// highest returns the level that a bucket has if it began an hour ago, as begunAhead has it.
func (k *bucket) highest(p *Policy) ticks {
	return k.full + k.debt(p) + k.unit.of(time.Duration(mostAheadNanos))
}

// holds reports whether hits may have to wait.
func (p *Policy) holds() bool { return p.Algorithm == LeakyBucket && p.MaxWait > 0 }

// within returns how long hits may wait with the budget.
func (k *bucket) within(budget time.Duration) ticks {
	return min(k.hold, k.unit.of(min(max(budget, 0), maxHold)))
}

// reciprocal returns the part and down of a step of 2 to 2^62, such that 2^down is
// below the step and not below its half: then part has 64 bits.
func reciprocal(step uint64) (part uint64, down uint8) {
	down = uint8(bits.Len64(step-1) - 1) //nolint:gosec // below 64
	part, rest := bits.Div64(1<<down, 0, step)
	if rest > 0 {
		part++
	}
	return part, down
}

// over returns n / k.step, which is not 0, by a multiplication. n is below 2^63.
// The step times part is more than 2^(64+down) by less than the step, at most
// 2^(1+down), so n times part / 2^(64+down) is more than n/step by less than 1/step.
func (k *bucket) over(n ticks) uint64 {
	q, _ := bits.Mul64(uint64(n), k.part)
	return q >> (k.down & 63)
}

// hits returns how many hits are in a level.
func (k *bucket) hits(level ticks) uint64 {
	if level == 0 || k.step == 0 {
		return 0
	}
	return k.over(level-1) + 1
}

// need returns how much hits add to the level, at most math.MaxInt64.
func (k *bucket) need(hits uint64) ticks {
	over, n := bits.Mul64(hits, uint64(k.step))
	if over != 0 {
		return math.MaxInt64
	}
	return ticks(min(n, math.MaxInt64))
}

// level returns the level of the state at a time, in k's unit.
func (k *bucket) level(st state, at Time) ticks {
	level := ticks(uint64(st.num)-uint64(at)<<(k.unit&63)) & tatMask //nolint:gosec // modulo 2^62
	if uint64(st.num)>>60&4 != uint64(k.unit) {                      //nolint:gosec // the fine bit, as a unit
		level = k.converted(st, at)
	}
	if level > k.most {
		return 0
	}
	return level
}

// converted is level for a state in another unit.
func (k *bucket) converted(st state, at Time) ticks {
	level, u := levelOf(uint64(st.num), at) //nolint:gosec // bits
	if u > k.unit {
		return ticks(u.nanos(level)) //nolint:gosec // not negative
	}
	return min(level, highestFine>>fine) << fine
}

// at returns the state of a level at a time.
func (k *bucket) at(at Time, level ticks) state {
	tat := (uint64(at)<<k.unit + uint64(level)) & tatMask //nolint:gosec // modulo 2^62
	if k.unit == fine {
		tat |= fineBit
	}
	return state{num: int64(tat)}
}

// A Bucket is a token or leaky bucket policy in units of time: of 1/16 ns if Fine is set, else
// of 1 ns.
type Bucket struct {
	// Step is the emission interval, 0 if the limit is 0, so that no hit has room.
	Step uint64
	// Full is the level of a full bucket: how far its TAT may be ahead of the time.
	Full uint64
	// Delay is by how much hits may exceed that if they are held.
	Delay uint64
	// Debt is by how much hits may exceed Full that count though they are denied.
	Debt uint64
	// Most is the highest level there is. One that is higher by over an hour is of a clock that was set back.
	Most uint64
	// Fine says what the unit is.
	Fine bool
}

// Bucket returns the terms of a [TokenBucket] or [LeakyBucket].
func (p *Policy) Bucket() Bucket {
	k := p.bucket()
	return Bucket{
		Step: uint64(k.step), Full: uint64(k.full), Delay: uint64(k.hold),
		Debt: uint64(k.debt(p)), Most: uint64(k.most - k.unit.of(time.Duration(mostAheadNanos))), Fine: k.unit == fine,
	}
}

// Need returns by how much hits raise the level, at most 2^63-1.
func (k Bucket) Need(hits uint64) uint64 {
	as := bucket{step: ticks(k.Step)}
	return uint64(as.need(hits))
}

// DelayWithin returns Hold, or less where a request may be held for budget at most.
func (k Bucket) DelayWithin(budget time.Duration) uint64 {
	as := bucket{hold: ticks(k.Delay)}
	if k.Fine {
		as.unit = fine
	}
	return uint64(as.within(budget))
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
