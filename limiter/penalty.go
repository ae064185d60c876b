package limiter

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Penalty is how long who is denied by a limit is denied at least: for the first step, for the next if the limit
// denies it again within a window after that, and for the last from then on.
//
// What a penalty is to be remembered by is beside the counter, not in it: a counter of one word under the same ID,
// which is there from the first denial until a window after the last penalty's end. So a counter that denies nobody
// takes no more memory, and the windows of the limit go on as they are: no more is admitted than without a penalty.
//
// A limit penalises where its [Mode] is [Enforce], for hits that it has itself no room for; a request that another
// limit denies is no offence against it. While a penalty lasts the limit denies every hit and every peek, and counts
// none of them: they neither prolong the penalty nor fill the counter. Refunds are applied as always.
type Penalty struct{ steps []time.Duration }

const (
	// MaxPenalties is how many steps a [Penalty] has at most.
	MaxPenalties = 15
	// MaxPenalty is the longest of them.
	MaxPenalty = 365 * 24 * time.Hour
)

// NewPenalty returns a penalty of such steps, 1 to [MaxPenalties] of them, each longer than the one before, of whole
// seconds up to [MaxPenalty].
func NewPenalty(steps ...time.Duration) *Penalty { return &Penalty{slices.Clone(steps)} }

// Steps returns the steps, which must not be changed.
func (y *Penalty) Steps() []time.Duration { return y.steps }

func (y *Penalty) validate(p *Policy) error {
	switch p.Algorithm {
	case FixedWindow, SlidingWindow, SlidingLog, TokenBucket:
	case LeakyBucket, Concurrency:
		return errors.New("penalty: this algorithm has none")
	}
	switch {
	case p.Reserve != nil:
		return errors.New("penalty: not together with a reserve")
	case len(y.steps) == 0 || len(y.steps) > MaxPenalties:
		return fmt.Errorf("penalty of %d steps: must be 1 to %d", len(y.steps), MaxPenalties)
	}
	last := time.Duration(0)
	for _, step := range y.steps {
		if step <= last || step > MaxPenalty || step%time.Second != 0 {
			return fmt.Errorf("penalty of %v after %v: must be whole seconds, rising, up to %v", step, last, MaxPenalty)
		}
		last = step
	}
	return nil
}

// penalty is the algorithm of the counters that penalties are remembered by. It is none of [Algorithms]: no rule names
// it, and no charge of a caller has it. Its word, from the high bits to the low:
//
//	 1 bit   generation: flips when the slot changes hands
//	 4 bits  level: how many steps have been taken, the last of which holds
//	59 bits  when it is forgotten, in milliseconds since the Unix epoch
//
// A penalty ends a window before it is forgotten. Both are of one counter, whose window never changes.
type penalty struct{ counting }

const (
	penaltyKind   = 1<<algorithmBits - 1 // of [Algorithm]
	levelShift    = 59
	forgottenMask = 1<<levelShift - 1

	// longestMemory is for how long the longest penalty of all is remembered.
	longestMemory = int64(MaxPenalty + MaxWindow)
)

// besidePolicy is that of all counters of penalties.
var besidePolicy = func() *Policy {
	p := &Policy{Algorithm: penaltyKind, Window: time.Second}
	p.Prepare()
	return p
}()

func (penalty) cells(*Policy) int { return 0 }

func (penalty) fresh(_, _ Time, _ *Policy) state { return state{} }

func (penalty) empty(Time, *Policy, state) state { return state{} }

// offence returns what a word means at a time: its level and, in milliseconds, when it is forgotten; neither if it is.
func offence(word uint64, at Time) (level uint64, forgotten int64) {
	forgotten = int64(word<<(64-levelShift)) >> (64 - levelShift) //nolint:gosec // bits
	if until := forgotten * int64(time.Millisecond); until <= at.stamp() || begunAhead(until-longestMemory, at.stamp()) {
		return 0, forgotten
	}
	return word &^ generationBit >> levelShift, forgotten
}

func (penalty) load(v *view, at Time, _ *Policy) bool {
	v.state = state{}
	if level, forgotten := offence(v.word, at); level > 0 {
		v.state = state{used: level, num: forgotten}
	}
	return true
}

// decide is for nobody but those who peek: a table's reset of a counter, and tests.
func (penalty) decide(_ *view, _ Time, _ *Charge, _ uint64, _ time.Duration, st state, d *Decision) (after state, ok bool) {
	*d = Decision{Before: st.used}
	return st, true
}

func (penalty) finish(*view, Time, *Policy, time.Duration, state, *Decision) {}

func (penalty) store(_ *view, _ *sizeClass, _ uint64, _ *Policy, after state) uint64 {
	return after.used<<levelShift | uint64(after.num)&forgottenMask //nolint:gosec // bits
}

func (penalty) expiry(_ *sizeClass, _, word uint64, at Time) (end Time, live bool) {
	level, forgotten := offence(word, at)
	return Time(forgotten * int64(time.Millisecond)), level > 0
}

// weight is the same for all: the one that is forgotten first is evicted.
func (penalty) weight(*sizeClass, uint64, uint64) uint64 { return 1 }

func (penalty) weighs() bool { return false }

func (penalty) found(v *view, at Time, _ *Policy) {
	v.state = state{}
	if v.found.PenaltyLevel > 0 && v.found.PenaltyExpiry > at {
		v.state = state{used: min(uint64(v.found.PenaltyLevel), MaxPenalties), num: millis(v.found.PenaltyExpiry)}
	}
}

func (penalty) tell(_ *view, _ Time, _ *Policy, st state, s *State) {
	s.PenaltyLevel, s.PenaltyExpiry = uint8(st.used), Time(st.num*int64(time.Millisecond)) //nolint:gosec // at most MaxPenalties
}

// adopt goes by the store: a penalty that began here while it was away, or was reset there, is over.
func (penalty) adopt(_, there *view, _ Time, _ *Batch, _ int) (after state, ok bool) {
	return there.state, true
}

// millis rounds a time down to milliseconds: who is told whole seconds, rounded up, is told those of the rules.
func millis(t Time) int64 { return floorDiv(t.stamp(), int64(time.Millisecond)) }

// endOf returns when the penalty in the state st of p ends.
func (p *Policy) endOf(st state) Time {
	if st.used == 0 {
		return Time(-maxStamp)
	}
	return Time(st.num*int64(time.Millisecond) - p.window())
}

// A sentence is what a batch knows of the penalty of a charge: its counter when it was looked at, 0 for none.
type sentence struct {
	level uint64
	end   Time
}

// Penalises reports whether c may be denied by a penalty, or begin one. A limit of 0 denies for ever anyway.
func (c *Charge) Penalises() bool {
	return c.Policy.Penalty != nil && c.Mode == Enforce && !c.Refund && c.Policy.Limit > 0
}

// sentenced looks at the penalties of all charges, before their counters. Whoever is admitted was there before a penalty
// that begins from now on.
func (b *Batch) sentenced(at Time) {
	n := len(b.Charges)
	b.sentences = slices.Grow(b.sentences[:0], n)[:n]
	for i := range b.sentences {
		b.sentences[i] = sentence{}
		if c := &b.Charges[i]; c.Penalises() && (b.table == nil || b.table.mayPenalise(at, c.ID.Hi)) {
			_, st := b.offender(at, i)
			b.sentences[i] = sentence{st.used, c.Policy.endOf(st)}
		}
	}
}

// serves reports whether charge i is under a penalty.
func (b *Batch) serves(at Time, i int) bool {
	return b.extra && b.penal && b.sentences[i].end > at && b.sentences[i].level > 0
}

// offender reads what is remembered beside the counter of charge i.
func (b *Batch) offender(at Time, i int) (*Batch, state) {
	p := b.Charges[i].Policy
	a := b.beside(Charge{ID: b.Charges[i].ID, Policy: besidePolicy})
	if b.table == nil {
		a.view = view{class: &outside, found: b.told(i), at: at}
		penalty{}.found(&a.view, at, besidePolicy)
	} else {
		a.read(at, 0, &a.view)
	}
	if st := a.view.state; st.used > 0 && begunAhead(int64(p.endOf(st))-int64(p.Penalty.step(st.used)), int64(at)) {
		a.view.state = state{}
	}
	return a, a.view.state
}

// step returns the step of a level, from 1 on.
func (y *Penalty) step(level uint64) time.Duration {
	return y.steps[min(level, uint64(len(y.steps)))-1]
}

// serve decides charge i, which a penalty denies. Of its counter it only tells.
func (b *Batch) serve(at Time, i int) {
	d, v, p := &b.Decisions[i], &b.view, b.Charges[i].Policy
	for {
		b.read(at, i, v)
		if !b.deny(v, at, i, v.state) {
			continue
		}
		if p.algorithm().finish(v, at, p, 0, v.state, d); v.same() {
			return
		}
	}
}

// deny makes the decision on charge i that of a penalty. When it is over the hits may still have to wait for room, as
// if they came now and did not count. It reports false if v is no longer true.
func (b *Batch) deny(v *view, at Time, i int, st state) bool {
	c, d := &b.aside.denied, &b.Decisions[i]
	if *c = b.Charges[i]; c.Policy.CountRefused {
		uncounted := &b.aside.forced
		*uncounted = *c.Policy
		uncounted.CountRefused = false
		c.Policy = uncounted
	}
	_, ok := c.Policy.algorithm().decide(v, at, c, b.hits(i), 0, st, d)
	d.Over, d.Charged = true, 0
	return ok
}

// sentence begins the penalties of the charges that were denied, and says of all that are under one how long it
// lasts. It comes last: until then a group may turn out to be decided once more.
func (b *Batch) sentence(at Time) {
	for i := range b.Charges {
		c, d := &b.Charges[i], &b.Decisions[i]
		if !d.Over || !c.Penalises() {
			continue
		}
		if !b.serves(at, i) {
			if b.hits(i) == 0 {
				continue
			}
			b.sentences[i], d.PenaltyStarted = b.convict(at, i)
		}
		d.Penalty = uint8(b.sentences[i].level) //nolint:gosec // at most MaxPenalties
		if left := time.Duration(b.sentences[i].end - at); d.RetryAfter == Never {
			d.Reset = max(d.Reset, left)
		} else {
			d.RetryAfter = max(d.RetryAfter, left)
			d.Reset = d.RetryAfter
		}
	}
}

// convict begins a penalty for charge i, unless another request has begun one meanwhile. It returns the penalty that
// holds.
func (b *Batch) convict(at Time, i int) (s sentence, began bool) {
	p := b.Charges[i].Policy
	for {
		a, st := b.offender(at, i)
		if end := p.endOf(st); end > at {
			return sentence{st.used, end}, false
		}
		level := min(st.used+1, uint64(len(p.Penalty.steps)), MaxPenalties)
		after := state{used: level, num: millis(at+Time(p.Penalty.step(level))) + p.window()/int64(time.Millisecond)}
		if b.table == nil {
			penalty{}.tell(nil, at, nil, after, b.told(i))
		} else {
			b.table.raisePenalties(b.Charges[i].ID.Hi, after.num)
			if !a.write(at, 0, &a.view, after) {
				continue
			}
		}
		return sentence{after.used, p.endOf(after)}, true
	}
}

// remembered has, by some bits of their counters' IDs, when the last penalty is forgotten, or later. So who is under none
// need hardly ever be searched for.
type remembered [1 << 12]atomic.Int64

// of returns the place of the penalties of counters with a tag, or with the high half of an ID.
func (r *remembered) of(tag uint64) *atomic.Int64 { return &r[tag>>kindBits%uint64(len(r))] }

// mayPenalise reports whether a counter with the high half of an ID may be under a penalty.
func (t *Table) mayPenalise(at Time, hi uint64) bool { return int64(at) < t.penalties.of(hi).Load() }

// raisePenalties notes when the penalty of a counter is forgotten, in milliseconds.
func (t *Table) raisePenalties(hi uint64, until int64) {
	until *= int64(time.Millisecond)
	for at := t.penalties.of(hi); ; {
		have := at.Load()
		if have >= until || at.CompareAndSwap(have, until) {
			return
		}
	}
}
