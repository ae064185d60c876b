package limiter

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Penalty lists the minimum durations, of which up to a millisecond is cut off, for which a client
// stays denied. The first denial uses the first step; each further denial within one window of a penalty's end uses the next step. The last
// step repeats.
//
// Penalty state is stored in a companion counter of one word with the same ID. It exists from the
// first denial until one window after the end of the last penalty. Counters without denials
// therefore take no more memory, and a penalty never admits more than the limit alone would.
//
// A limit applies penalties only in mode [Enforce], and only when its own limit is exceeded, not
// when another limit denies the request. During a penalty the limit denies every hit and every peek
// and counts none of them: they neither prolong the penalty nor fill the counter. Refunds are
// applied as usual.
type Penalty struct{ steps []time.Duration }

const (
	// MaxPenalties is the maximum number of steps of a [Penalty].
	MaxPenalties = 15
	// MaxPenalty is the longest step.
	MaxPenalty = 365 * 24 * time.Hour
)

// NewPenalty returns a penalty with the given 1 to [MaxPenalties] steps. Steps must be whole
// seconds, ascending, up to [MaxPenalty].
func NewPenalty(steps ...time.Duration) *Penalty { return &Penalty{slices.Clone(steps)} }

// Steps returns the steps. The caller must not change them.
func (y *Penalty) Steps() []time.Duration { return y.steps }

func (y *Penalty) validate(p *Policy) error {
	switch p.Algorithm {
	case FixedWindow, SlidingWindow, SlidingLog, TokenBucket:
	case LeakyBucket, Concurrency:
		return errors.New("penalty: not supported by this algorithm")
	}
	switch {
	case p.Reserve != nil:
		return errors.New("penalty: cannot be combined with a reserve")
	case len(y.steps) == 0 || len(y.steps) > MaxPenalties:
		return fmt.Errorf("penalty of %d steps: must be 1 to %d", len(y.steps), MaxPenalties)
	}
	last := time.Duration(0)
	for _, step := range y.steps {
		if step <= last || step > MaxPenalty || step%time.Second != 0 {
			return fmt.Errorf("penalty step of %v after %v: must be ascending whole seconds up to %v", step, last,
				MaxPenalty)
		}
		last = step
	}
	return nil
}

// penalty is the algorithm of penalty counters. It is not one of [Algorithms]: neither rules nor
// charges of callers can select it. Its word, from the high bits to the low:
//
//	 1 bit   generation: flips when the slot changes its owner
//	 4 bits  level: the number of the current step, from 1
//	59 bits  time at which the penalty is forgotten, in milliseconds since the Unix epoch
//
// A penalty ends one window before it is forgotten. All charges of a counter have the same window.
type penalty struct{ counting }

const (
	penaltyKind   = 1<<algorithmBits - 1 // an [Algorithm]
	levelShift    = 59
	forgottenMask = 1<<levelShift - 1

	// maxPenaltyMemory is the longest time until a penalty is forgotten.
	maxPenaltyMemory = int64(MaxPenalty + MaxWindow)
)

// penaltyPolicy is the policy of all penalty counters, except those of pinned counters.
var penaltyPolicy, pinnedPenaltyPolicy = newPenaltyPolicy(false), newPenaltyPolicy(true)

func newPenaltyPolicy(pinned bool) *Policy {
	p := &Policy{Algorithm: penaltyKind, Window: time.Second, Pinned: pinned}
	p.Prepare()
	return p
}

// penaltyCharge returns the charge of 0 hits on the penalty counter of c.
func (c *Charge) penaltyCharge() Charge {
	if c.Policy.Pinned {
		return Charge{ID: c.ID, Policy: pinnedPenaltyPolicy}
	}
	return Charge{ID: c.ID, Policy: penaltyPolicy}
}

func (penalty) cells(*Policy) int { return 0 }

func (penalty) fresh(_, _ Time, _ *Policy) state { return state{} }

func (penalty) resetState(Time, *Policy, state) state { return state{} }

// decodePenalty returns the level in a word and when it is forgotten, in milliseconds. The level is
// 0 if it is forgotten at the given time.
func decodePenalty(word uint64, at Time) (level uint64, forgotten int64) {
	forgotten = int64(word<<(64-levelShift)) >> (64 - levelShift) //nolint:gosec // bits
	if until := forgotten * int64(time.Millisecond); until <= at.stamp() ||
		begunAhead(until-maxPenaltyMemory, at.stamp()) {
		return 0, forgotten
	}
	return word &^ generationBit >> levelShift, forgotten
}

func (penalty) load(v *view, at Time, _ *Policy) bool {
	v.state = state{}
	if level, forgotten := decodePenalty(v.word, at); level > 0 {
		v.state = state{used: level, mark: forgotten}
	}
	return true
}

// decide supports only peeks, for Table.Reset and tests.
func (penalty) decide(
	_ *view, _ Time, _ *Charge, _ uint64, _ time.Duration, st state, d *Decision,
) (after state, ok bool) {
	*d = Decision{Before: st.used}
	return st, true
}

func (penalty) finish(*view, Time, *Policy, time.Duration, state, *Decision) {}

func (penalty) store(_ *view, _ *sizeClass, _ uint64, _ *Policy, after state) uint64 {
	return after.used<<levelShift | uint64(after.mark)&forgottenMask //nolint:gosec // bits
}

func (penalty) expiry(_ *sizeClass, _, word uint64, at Time) (end Time, live bool) {
	level, forgotten := decodePenalty(word, at)
	return Time(forgotten * int64(time.Millisecond)), level > 0
}

// weight is the same for all counters, so the penalty that is forgotten first is evicted.
func (penalty) weight(*sizeClass, uint64, uint64) uint64 { return 1 }

func (penalty) hasWeight() bool { return false }

func (penalty) importState(v *view, at Time, _ *Policy) {
	v.state = state{}
	if v.reported.PenaltyLevel > 0 && v.reported.PenaltyExpiry > at {
		v.state = state{
			used: min(uint64(v.reported.PenaltyLevel), MaxPenalties), mark: millis(v.reported.PenaltyExpiry),
		}
	}
}

func (penalty) export(_ *view, _ Time, _ *Policy, st state, s *State) {
	s.PenaltyLevel, s.PenaltyExpiry = uint8(st.used), Time(st.mark*int64(time.Millisecond)) //nolint:gosec // at most MaxPenalties
}

// merge takes the store's state: a penalty that started locally during an outage, or that was reset
// in the store, is over.
func (penalty) merge(_, there *view, _ Time, _ *Batch, _ int) (after state, ok bool) {
	return there.state, true
}

// millis rounds a time down to milliseconds, so that a remaining time rounded up to seconds equals
// the step of the rule.
func millis(t Time) int64 { return floorDiv(t.stamp(), int64(time.Millisecond)) }

func (p *Policy) penaltyEnd(st state) Time {
	if st.used == 0 {
		return Time(-maxStamp)
	}
	return Time(st.mark*int64(time.Millisecond) - p.window())
}

// An activePenalty is the penalty of a charge as read at the start of the decision. Level 0 means
// none.
type activePenalty struct {
	level uint64
	end   Time
}

// Penalises reports whether c may be denied by a penalty or start one. A limit of 0 denies
// everything anyway.
func (c *Charge) Penalises() bool {
	return c.Policy.Penalty != nil && c.Mode == Enforce && !c.Refund && c.Policy.Limit > 0
}

// readPenalties reads the penalties of all charges, before their counters are read. A request
// admitted despite a penalty was thus decided before the penalty started.
func (b *Batch) readPenalties(at Time) {
	n := len(b.Charges)
	b.penalties = slices.Grow(b.penalties[:0], n)[:n]
	for i := range b.penalties {
		b.penalties[i] = activePenalty{}
		if c := &b.Charges[i]; c.Penalises() && (b.table == nil || b.table.mayPenalise(at, c.ID.Hi)) {
			_, st := b.readPenalty(at, i)
			b.penalties[i] = activePenalty{st.used, c.Policy.penaltyEnd(st)}
		}
	}
}

// underPenalty reports whether charge i is denied by a penalty.
func (b *Batch) underPenalty(at Time, i int) bool {
	return b.special && b.usesPenalties && b.penalties[i].end > at && b.penalties[i].level > 0
}

// readPenalty reads the penalty counter of charge i. It returns the companion batch with the view,
// and the state.
func (b *Batch) readPenalty(at Time, i int) (*Batch, state) {
	p := b.Charges[i].Policy
	a := b.companionBatch(b.Charges[i].penaltyCharge())
	if b.table == nil {
		a.view = view{class: &externalClass, reported: b.reported(i), at: at}
		penalty{}.importState(&a.view, at, penaltyPolicy)
	} else {
		a.read(at, 0, &a.view)
	}
	if st := a.view.state; st.used > 0 &&
		begunAhead(int64(p.penaltyEnd(st))-int64(p.Penalty.step(st.used)), int64(at)) {
		a.view.state = state{}
	}
	return a, a.view.state
}

// step returns the duration of a level, from 1.
func (y *Penalty) step(level uint64) time.Duration {
	return y.steps[min(level, uint64(len(y.steps)))-1]
}

// decidePenalised decides charge i, which is under a penalty, without changing its counter.
func (b *Batch) decidePenalised(at Time, i int) {
	d := &b.Decisions[i]
	v := &b.view
	p := b.Charges[i].Policy
	for {
		b.read(at, i, v)
		if !b.denyPenalised(v, at, i, v.state) {
			continue
		}
		if p.algorithm().finish(v, at, p, 0, v.state, d); v.unchanged() {
			return
		}
	}
}

// denyPenalised sets the decision of charge i, which is under a penalty. RetryAfter is that of the
// same hits without the penalty and without CountRefused. It returns false if v has changed.
func (b *Batch) denyPenalised(v *view, at Time, i int, st state) bool {
	c := &b.companion.deniedCharge
	d := &b.Decisions[i]
	*c = b.Charges[i]
	if c.Policy.CountRefused {
		uncounted := &b.companion.forcedPolicy
		*uncounted = *c.Policy
		uncounted.CountRefused = false
		c.Policy = uncounted
	}
	_, ok := c.Policy.algorithm().decide(v, at, c, b.hits(i), 0, st, d)
	d.Over = true
	d.Charged = 0
	return ok
}

// applyPenalties starts the penalties of denied charges and extends RetryAfter and Reset of all
// charges under a penalty. It comes last, since a group may be decided again until then.
func (b *Batch) applyPenalties(at Time) {
	for i := range b.Charges {
		c := &b.Charges[i]
		d := &b.Decisions[i]
		if !d.Over || !c.Penalises() {
			continue
		}
		if !b.underPenalty(at, i) {
			if b.hits(i) == 0 {
				continue
			}
			b.penalties[i], d.PenaltyStarted = b.startPenalty(at, i)
		}
		d.Penalty = uint8(b.penalties[i].level) //nolint:gosec // at most MaxPenalties
		if left := time.Duration(b.penalties[i].end - at); d.RetryAfter == Never {
			d.Reset = max(d.Reset, left)
		} else {
			d.RetryAfter = max(d.RetryAfter, left)
			d.Reset = d.RetryAfter
		}
	}
}

// startPenalty starts a penalty for charge i unless another request has started one. It returns the
// active penalty.
func (b *Batch) startPenalty(at Time, i int) (s activePenalty, began bool) {
	p := b.Charges[i].Policy
	for {
		a, st := b.readPenalty(at, i)
		if end := p.penaltyEnd(st); end > at {
			return activePenalty{st.used, end}, false
		}
		level := min(st.used+1, uint64(len(p.Penalty.steps)), MaxPenalties)
		after := state{used: level, mark: millis(at+Time(p.Penalty.step(level))) + p.window()/int64(time.Millisecond)}
		if b.table == nil {
			penalty{}.export(nil, at, nil, after, b.reported(i))
		} else {
			b.table.raisePenalties(b.Charges[i].ID.Hi, after.mark)
			if !a.write(at, 0, &a.view, after) {
				continue
			}
		}
		return activePenalty{after.used, p.penaltyEnd(after)}, true
	}
}

// A penaltyFilter is indexed by some bits of counter IDs. An entry is an upper bound of the times
// at which the penalties of its counters are forgotten. It saves the search for penalties of most
// counters without one.
type penaltyFilter [1 << 12]atomic.Int64

// entry returns the entry of a tag, or of the high half of an ID.
func (r *penaltyFilter) entry(tag uint64) *atomic.Int64 { return &r[tag>>kindBits%uint64(len(r))] }

// mayPenalise reports whether a counter may be under a penalty, given the high half of its ID.
func (t *Table) mayPenalise(at Time, hi uint64) bool { return int64(at) < t.penalties.entry(hi).Load() }

// raisePenalties records when the penalty of a counter is forgotten, in milliseconds.
func (t *Table) raisePenalties(hi uint64, until int64) {
	until *= int64(time.Millisecond)
	for at := t.penalties.entry(hi); ; {
		have := at.Load()
		if have >= until || at.CompareAndSwap(have, until) {
			return
		}
	}
}
