package limiter

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// This file is where the algorithms meet. Everything else knows slots, words and
// states; what these mean is in fixed_window.go, bucket.go, sliding_window.go and
// sliding_log.go.

// A state is one counter at one instant, whatever its word said before time
// passed. What it holds depends on the algorithm:
//
//	                used                     past                         num
//	fixed window    hits                     -                            end, Unix seconds
//	sliding window  hits of the current      hits of the finished         number of the current
//	                sub-window               ones that count              sub-window
//	sliding log     hits not yet in cells    hits in cells that count     time of the newest, now if late
//	buckets         lag, in units of 2^-num ns   -                        unit
//
// Equal states of one view need no write.
type state struct {
	used, past uint64
	num        int64
}

// Bits of a tag. The low ones say how to read the slot's word, so that one table
// can hold all kinds of counters, and are never all 0.
const kindBits = 4

// tagOf returns the tag of the counter id under the algorithm a.
func tagOf(id identity.ID, a Algorithm) uint64 {
	return id.Hi&^(1<<kindBits-1) | uint64(a)<<1&(1<<kindBits-1) | 1
}

// algorithmOf is the inverse of tagOf.
func algorithmOf(tag uint64) Algorithm {
	return Algorithm(tag & (1<<kindBits - 1) >> 1)
}

func isBucket(a Algorithm) bool { return a >= TokenBucket }

// fresh returns the state of an absent counter. One that was reclaimed may have
// counted until from, which is at or later.
func fresh(at, from instant, p *Policy) state {
	switch {
	case isBucket(p.Algorithm):
		return state{used: uint64(from.time() - at.time())} //nolint:gosec // not negative
	case p.Algorithm == SlidingWindow:
		return state{num: p.ring().number(from.stamp())}
	case p.Algorithm == SlidingLog:
		return state{num: from.stamp()}
	default: // FixedWindow
		return state{num: windowEnd(p, from.sec)}
	}
}

// load fills in v's state from its word, and its cells if it has some. It reports
// false if these changed meanwhile.
func (v *view) load(at instant, p *Policy) bool {
	switch {
	case isBucket(p.Algorithm):
		lag, shift := lagOf(v.word, at.time())
		v.state = state{used: lag, num: int64(shift)}
	case p.Algorithm == SlidingWindow:
		return v.loadRing(at, p)
	case p.Algorithm == SlidingLog:
		return v.loadLog(at, p)
	default: // FixedWindow
		v.state = windowState(v.word, at, p)
	}
	return true
}

// encode returns the word of st for a counter of one word, with the life of old.
func encode(at instant, p *Policy, st *state, old uint64) uint64 {
	var w uint64
	switch {
	case isBucket(p.Algorithm):
		w = bucketWord(at.time(), st.used, uint8(st.num)) //nolint:gosec // 0 or fineShift
	default: // FixedWindow
		w = windowWord(st.num, st.used)
	}
	if w |= old & lifeBit; w == dead {
		w ^= lifeBit // a bucket that reaches this TAT may as well be a new one's
	}
	return w
}

// mark tells the time that st was charged at from later ones: the (sub-)window,
// the stamp, or the TAT.
func (st *state) mark(at instant, p *Policy) int64 {
	if isBucket(p.Algorithm) {
		return int64(bucketWord(at.time(), st.used, uint8(st.num))) //nolint:gosec // bits
	}
	return st.num
}

// decide decides c, of which hits are left, in the state st, and makes st what
// follows if c is charged on the condition that it has room, or in any case if it
// counts when refused. What is left is for finish to say. It reports false if v
// is no longer true.
func (v *view) decide(at instant, c *Charge, hits uint64, budget time.Duration, st *state, d *Decision) bool {
	p := c.Policy
	*d = Decision{}
	if isBucket(p.Algorithm) {
		decideBucket(c, hits, budget, st, d)
		return true
	}
	limit, used := p.limit(), st.used+st.past
	d.Before = used
	if c.Refund {
		gave := giveBack(p, st, hits)
		d.Charged = c.Hits - hits + gave
		return true
	}
	if hits <= limit && used <= limit-hits {
		d.Charged = hits
		st.used += hits
		return true
	}
	d.Over = true
	if p.CountRefused {
		d.Charged = force(p, st, hits)
	}
	ok := true
	d.RetryAfter = Never
	if hits <= limit {
		d.RetryAfter, ok = v.retryAfter(at, p, st, hits)
	}
	return ok
}

// decideBucket is decide for buckets.
func decideBucket(c *Charge, hits uint64, budget time.Duration, st *state, d *Decision) {
	p := c.Policy
	k := p.bucket(budget)
	lag := k.in(st.used, uint8(st.num)) //nolint:gosec // 0 or fineShift
	if c.Refund {
		d.Before = k.hits(lag)
		after, gave := k.giveBack(p, lag, hits)
		d.Charged = c.Hits - hits + gave
		if after != lag {
			st.used, st.num = after, int64(k.shift)
		}
		return
	}
	k.answer(lag, hits, d)
	if hits == 0 || d.Over && !p.CountRefused {
		return
	}
	after, charged := k.take(p, lag, hits)
	d.Charged = charged
	if after != lag {
		st.used, st.num = after, int64(k.shift)
	}
	if d.Over && d.RetryAfter != Never {
		d.RetryAfter = k.retryAfter(after, hits)
	}
}

// force counts hits that were refused. It returns by how many the counter has
// grown, which is what a refund may give back: counts end somewhere, and a full
// log keeps the newest hits in place of as many older ones.
func force(p *Policy, st *state, hits uint64) uint64 {
	if p.Algorithm == SlidingLog {
		before := st.used + st.past
		st.used = min(st.used+min(hits, p.limit()), p.limit())
		st.past = min(st.past, p.limit()-st.used)
		return st.used + st.past - before
	}
	most := uint64(windowMost)
	if p.Algorithm == SlidingWindow {
		most = math.MaxUint32 // what a cell holds
	}
	hits = min(hits, most-st.used)
	st.used += hits
	return hits
}

// giveBack takes a refund from st and returns how many hits went back.
func giveBack(p *Policy, st *state, hits uint64) uint64 {
	if p.Algorithm == SlidingLog { // the newest ones go
		hits = min(hits, st.past)
		st.past -= hits
		return hits
	}
	hits = min(hits, st.used)
	st.used -= hits
	return hits
}

// retryAfter returns the time until hits, at most the limit, have room. It reports
// false if the cells that say so are no longer what v shows.
func (v *view) retryAfter(at instant, p *Policy, st *state, hits uint64) (time.Duration, bool) {
	switch p.Algorithm {
	case SlidingWindow:
		return v.ringRetry(at, p, st, hits)
	case SlidingLog:
		return v.logRetry(at, p, st, hits)
	default: // FixedWindow
		return at.until(st.num), true
	}
}

// finish fills in what is left in the state st.
func (v *view) finish(at instant, p *Policy, budget time.Duration, st *state, d *Decision) {
	switch {
	case d.Over && p.Algorithm != FixedWindow: // see below
	case isBucket(p.Algorithm):
		k := p.bucket(budget)
		d.Remaining, d.Reset = k.left(k.in(st.used, uint8(st.num))) //nolint:gosec // 0 or fineShift
	case p.Algorithm == SlidingWindow:
		d.Remaining, d.Reset = room(p, st), v.ringReset(at, p, st)
	case p.Algorithm == SlidingLog:
		d.Remaining, d.Reset = room(p, st), v.logReset(at, p, st)
	default: // FixedWindow
		d.Remaining, d.Reset = room(p, st), at.until(st.num)
	}
	if !d.Over {
		return
	}
	d.Remaining = 0
	if p.Algorithm != FixedWindow {
		d.overReset(p)
	}
}

// overReset makes Reset the time until the same hits would pass.
func (d *Decision) overReset(p *Policy) {
	if d.Reset = d.RetryAfter; d.Reset == Never {
		d.Reset = p.Window
	}
	d.Reset = max(1, d.Reset)
}

// room returns how many single hits have room in the state st of a window.
func room(p *Policy, st *state) uint64 {
	return p.limit() - min(st.used+st.past, p.limit())
}

// expiry returns the time from which on the counter in a slot equals an absent
// one, and whether that is later than at.
func (s *shelf) expiry(index, tag, word uint64, at instant) (Time, bool) {
	switch {
	case s.size > 0:
		end := Time(s.note(index).end.Load())
		return end, end > at.time()
	case isBucket(algorithmOf(tag)):
		lag, shift := lagOf(word, at.time())
		return at.time() + Time((lag+1<<shift-1)>>shift), lag > 0 //nolint:gosec // below 2^62
	default: // FixedWindow
		left, live := windowLeft(word, at.sec)
		return instant{sec: at.sec + left}.time(), live
	}
}

// weight says what a counter is worth when live ones must be given up: the
// smallest goes first. 0 means that nothing is lost. A bucket does not know its
// hits; of buckets the nearest to its expiry goes first.
func (s *shelf) weight(index, tag, word uint64) uint64 {
	switch a := algorithmOf(tag); {
	case isBucket(a):
		return math.MaxUint64
	case a == SlidingLog:
		return word & logCountMask
	case a == SlidingWindow:
		return word&payloadMask + s.note(index).past.Load()
	default: // FixedWindow
		return word & windowCount
	}
}
