package limiter

import (
	"math"
	"math/bits"
	"time"
)

// Token and leaky bucket are one engine, the generic cell rate algorithm (ITU-T
// I.371): a counter is one time, the theoretical arrival time TAT, at which all it
// has admitted will have drained. A hit moves it one interval T = Window/Limit
// ahead of itself or of now, whichever is later. How far it is ahead of now, its
// lag, is at most full, the capacity times T; a leaky bucket lets it go further by
// what a hit may wait. A TAT that has passed is that of a new counter.
//
// A bucket's word, from the high bits to the low:
//
//	 1 bit   life: flips when the slot changes hands
//	 1 bit   fine: the unit is 1/16 ns, else 1 ns
//	62 bits  TAT since the Unix epoch in that unit, modulo 2^62
//
// T is rounded up to a whole unit, so the rate falls short by at most one unit a
// hit. Policies whose T is below 1024 ns use the fine unit; a change of limit
// across that border keeps the counter, since the word says its unit. What lies
// ahead of now by more than any lag is taken to have passed, so a word must not
// lie untouched for 98 years, or 8 if it is fine.
const (
	fineShift = 4
	fineBit   = fineShift << 60
	tatMask   = 1<<62 - 1
	fineBelow = 10 // 2^10 ns

	maxLateNanos = maxLate * int64(time.Second)
	// The longest lags that are ahead, in their units: a coarse one is a bucket of
	// 2^60 ns in debt by the longest window, seen by who is a year late; a fine
	// one 2^32 hits and their debt, and as late.
	aheadCoarse = uint64(maxFull) + uint64(MaxWindow) + uint64(maxLateNanos)
	aheadFine   = uint64(2<<(32+fineBelow)+maxLateNanos) << fineShift
)

// A bucket is a policy in the unit of its words.
type bucket struct {
	step  uint64 // T; 0 if the limit is 0
	part  uint64 // 2^(64+down)/T, rounded up, so that a division is a multiplication; see over
	full  uint64 // the lag of a full bucket
	hold  uint64 // what hits may wait beyond that
	now   uint64 // hold, as far as the budget of the batch goes
	round uint64 // what makes a division by the units per nanosecond round up
	shift uint8  // units per nanosecond, as a power of two
	down  uint8  // see part
}

// bucket returns what p says for a batch with the budget.
func (p *Policy) bucket(budget time.Duration) bucket {
	if p.isPrepared() {
		k := p.ready.bucket
		if k.hold > 0 {
			k.now = k.within(budget)
		}
		return k
	}
	if p.Limit == 0 || p.Window <= 0 || p.Window > MaxWindow {
		return bucket{}
	}
	k := bucket{}
	window, limit := uint64(p.Window), uint64(p.Limit)
	if window < limit<<fineBelow {
		k.shift, k.round = fineShift, 1<<fineShift-1
	}
	window <<= k.shift                      // below 2^63
	k.step = max(2, (window+limit-1)/limit) // 4 at least if p is valid
	k.part, k.down = reciprocal(k.step)
	hits := uint64(p.Burst)
	if p.Algorithm == LeakyBucket {
		hits = uint64(p.Slack) + 1
	}
	var over uint64
	if over, k.full = bits.Mul64(hits, k.step); over != 0 || k.full > maxFull {
		hits = maxFull / k.step
		k.full = hits * k.step
	}
	if p.Algorithm != LeakyBucket || p.MaxWait <= 0 {
		return k
	}
	k.hold = uint64(min(p.MaxWait, maxHold)) << k.shift
	if over, most := bits.Mul64(uint64(p.MaxWaiting), k.step); over == 0 {
		k.hold = min(k.hold, most)
	}
	k.now = k.within(budget)
	return k
}

// within returns how long hits may wait with the budget.
func (k *bucket) within(budget time.Duration) uint64 {
	return min(k.hold, uint64(min(max(budget, 0), maxHold))<<k.shift)
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
func (k *bucket) over(n uint64) uint64 {
	q, _ := bits.Mul64(n, k.part)
	return q >> (k.down & 63)
}

// nanos rounds a lag up to whole nanoseconds.
func (k *bucket) nanos(lag uint64) time.Duration {
	return time.Duration((lag + k.round) >> (k.shift & 63)) //nolint:gosec // a lag is below 2^62
}

// hits returns how many hits are in a lag.
func (k *bucket) hits(lag uint64) uint64 {
	if lag == 0 || k.step == 0 {
		return 0
	}
	return k.over(lag-1) + 1
}

// lagOf returns how long after at the word's TAT is, in the word's unit, and that
// unit's shift.
func lagOf(word uint64, at Time) (lag uint64, shift uint8) {
	now, ahead := uint64(at), aheadCoarse //nolint:gosec // modulo 2^62
	if word&fineBit != 0 {
		now, ahead, shift = now<<fineShift, aheadFine, fineShift
	}
	lag = (word - now) & tatMask
	if lag > ahead {
		return 0, shift
	}
	return lag, shift
}

// in converts a lag, in units of 2^-shift ns, to k's unit.
func (k *bucket) in(lag uint64, shift uint8) uint64 {
	switch {
	case shift > k.shift:
		return (lag + 1<<fineShift - 1) >> fineShift
	case shift < k.shift:
		return min(lag, aheadFine>>fineShift) << fineShift
	default:
		return lag
	}
}

// bucketWord returns the word, without life, of a TAT that is lag after at.
func bucketWord(at Time, lag uint64, shift uint8) uint64 {
	if shift != 0 {
		return (uint64(at)<<fineShift+lag)&tatMask | fineBit //nolint:gosec // modulo 2^62
	}
	return (uint64(at) + lag) & tatMask //nolint:gosec // modulo 2^62
}

// need returns how much hits add to the lag, at most math.MaxInt64.
func (k *bucket) need(hits uint64) uint64 {
	over, n := bits.Mul64(hits, k.step)
	if over != 0 {
		return math.MaxInt64
	}
	return min(n, math.MaxInt64)
}

// answer answers hits at a lag.
func (k *bucket) answer(lag, hits uint64, d *Decision) {
	d.Before = k.hits(lag)
	if hits == 0 {
		if d.Over = k.step > 0 && lag > k.full+k.hold; d.Over {
			d.RetryAfter = k.retryAfter(lag, 0)
		}
		return
	}
	need := k.need(hits)
	switch {
	case k.step == 0 || need > k.full+k.now:
		d.Over, d.RetryAfter = true, Never
	case lag+need > k.full+k.now:
		d.Over, d.RetryAfter = true, k.retryAfter(lag, hits)
	case lag+need > k.full:
		d.Wait = k.nanos(lag + need - k.full)
	}
}

// retryAfter returns the time until hits have room that have none at a lag.
func (k *bucket) retryAfter(lag, hits uint64) time.Duration {
	if hits == 0 {
		return k.nanos(lag - k.full - k.hold)
	}
	return k.nanos(lag + k.need(hits) - k.full - k.now)
}

// left returns how many single hits have room at a lag, and the time until it is
// gone.
func (k *bucket) left(lag uint64) (hits uint64, reset time.Duration) {
	reset = max(1, k.nanos(lag))
	if k.step == 0 || lag > k.full+k.now {
		return 0, reset
	}
	return k.over(k.full + k.now - lag), reset
}

// take returns the lag after hits. Beyond what is admitted it is debt, at most
// one window of it.
func (k *bucket) take(p *Policy, lag, hits uint64) (after, charged uint64) {
	if k.step == 0 {
		return lag, 0
	}
	most := max(lag, k.full+max(k.hold, uint64(p.Window)<<k.shift)) //nolint:gosec // positive
	need := k.need(hits)
	if need <= most-lag {
		return lag + need, hits
	}
	return most, (most - lag) / k.step
}

// giveBack returns the lag after a refund: the TAT falls, but not below now, and
// not while calls wait, since they were promised their times.
func (k *bucket) giveBack(p *Policy, lag, hits uint64) (after, gave uint64) {
	if p.Algorithm == LeakyBucket && lag > k.full {
		return lag, 0
	}
	return lag - min(lag, k.need(hits)), min(hits, k.hits(lag))
}
