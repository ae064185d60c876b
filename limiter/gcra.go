package limiter

import (
	"fmt"
	"math"
	"time"
)

// gcra implements [TokenBucket] and [LeakyBucket].
type gcra struct{}

func (gcra) validate(p *Policy) error {
	maxHits := p.MaxHits()
	switch {
	case p.Algorithm == TokenBucket && p.Burst == 0:
		return fmt.Errorf("burst of 0: must be 1 to %d", uint32(math.MaxUint32))
	case p.Algorithm == TokenBucket && uint64(p.Burst) > maxHits:
		return fmt.Errorf("burst of %d: takes longer than 2^60 ns to fill, must be at most %d", p.Burst, maxHits)
	case p.Algorithm == LeakyBucket && uint64(p.Slack)+1 > maxHits:
		return fmt.Errorf("slack of %d: takes longer than 2^60 ns to fill, must be at most %d", p.Slack, maxHits-1)
	case p.Algorithm == LeakyBucket && (p.MaxWait < 0 || p.MaxWait > maxDelay):
		return fmt.Errorf("longest wait of %v: must be 0s to %v", p.MaxWait, maxDelay)
	}
	return nil
}

func (gcra) capacity(p *Policy) uint64 {
	k := p.Bucket()
	if k.Step == 0 {
		return 0
	}
	return (k.Full + k.Delay) / k.Step
}

func (gcra) cells(*Policy) int { return 0 }

func (gcra) resizes() bool { return false }

func (gcra) fresh(_, from Time, p *Policy) state {
	k := p.Bucket()
	return k.stateAt(from, 0)
}

func (gcra) resetState(at Time, p *Policy, st state) state {
	if k := p.Bucket(); k.level(st, at) > 0 {
		return k.stateAt(at, 0)
	}
	return st
}

func (gcra) load(v *view, _ Time, _ *Policy) bool {
	v.state = state{mark: int64(v.word &^ generationBit)} //nolint:gosec // below 2^63
	return true
}

// admit reports whether hits are admitted at a level, with a delay of at most held, and returns the
// level after them. Hits beyond full are delayed.
func (k *Bucket) admit(level ticks, hits uint64, held ticks) (after ticks, ok bool) {
	after = level + k.Need(hits)
	return after, after <= k.Full+held && k.Step > 0
}

func (gcra) decide(
	_ *view, at Time, c *Charge, hits uint64, budget time.Duration, st state, d *Decision,
) (after state, ok bool) {
	p := c.Policy
	k := c.Policy.Bucket()
	level := k.level(st, at)
	held := k.DelayWithin(budget)
	*d = Decision{Before: k.hitsIn(level)}
	switch next, room := k.admit(level, hits, held); {
	case c.Refund:
		// The TAT does not fall below now, and not while hits are delayed, since their start times
		// are fixed.
		if p.Algorithm != LeakyBucket || level <= k.Full {
			next = level - min(level, k.Need(hits))
			d.Charged = min(hits, d.Before)
		} else {
			next = level
		}
		d.Charged += c.Hits - hits
		if next == level {
			return st, true
		}
		return k.stateAt(at, next), true
	case hits == 0: // whatever the budget
		if d.Over = k.Step > 0 && level > k.Full+k.Delay; d.Over {
			d.RetryAfter = k.Duration(level - k.Full - k.Delay)
		}
		return st, true
	case room:
		d.Charged = hits
		if next > k.Full {
			d.Wait = k.Duration(next - k.Full)
		}
		return k.stateAt(at, next), true
	default:
		return k.deny(at, p, level, hits, held, st, d), true
	}
}

// deny denies hits. Denied hits that count become debt, at most one window.
func (k *Bucket) deny(at Time, p *Policy, level ticks, hits uint64, held ticks, st state, d *Decision) (after state) {
	d.Over = true
	d.RetryAfter = Never
	if k.Step == 0 {
		return st
	}
	need := k.Need(hits)
	if p.CountRefused {
		maxLevel := max(level, k.Full+k.Debt)
		d.Charged = hits
		if need > maxLevel-level {
			d.Charged = (maxLevel - level) / k.Step
		}
		if debt := min(need, maxLevel-level); debt > 0 {
			level += debt
			st = k.stateAt(at, level)
		}
	}
	if need <= k.Full+held {
		d.RetryAfter = k.Duration(level + need - k.Full - held)
	}
	return st
}

func (gcra) finish(_ *view, at Time, p *Policy, budget time.Duration, st state, d *Decision) {
	if d.finishOver(p) {
		return
	}
	k := p.Bucket()
	level := k.level(st, at)
	maxLevel := k.Full + k.DelayWithin(budget)
	d.Remaining = 0
	d.Reset = max(1, k.Duration(level))
	if k.Step > 0 && level <= maxLevel {
		d.Remaining = (maxLevel - level) / k.Step
	}
}

// undo moves the TAT back: to the previous one if the counter has not changed since the charge.
//
// Otherwise, the bucket might have been empty for some of the time since, without the charge, and
// less would have drained. That part is not given back, since earlier undos may have moved the TAT and
// the word does not record it.
func (gcra) undo(v *view, at, now Time, p *Policy, mark int64, d *Decision) (after state, lost bool) {
	k := p.Bucket()
	level := k.level(v.state, now)
	part := k.Need(d.Charged)
	if v.mark != mark {
		if d.Wait > 0 || p.Algorithm == LeakyBucket && level > k.Full {
			return v.state, true
		}
		part -= min(part, k.unit.fromDuration(time.Duration(now-at)))
	}
	if part = min(part, level); part == 0 {
		return v.state, false
	}
	return k.stateAt(now, level-part), false
}

func (gcra) store(_ *view, _ *sizeClass, _ uint64, _ *Policy, after state) uint64 {
	return uint64(after.mark) //nolint:gosec // bits
}

func (gcra) expiry(_ *sizeClass, _, word uint64, at Time) (end Time, live bool) {
	level, u := levelOf(word, at)
	return at + Time(u.toDuration(level)), level > 0
}

// weight is the same for all counters, so the bucket that expires first is evicted.
func (gcra) weight(*sizeClass, uint64, uint64) uint64 { return 1 }

func (gcra) hasWeight() bool { return false }

func (gcra) importState(v *view, at Time, p *Policy) {
	k := p.Bucket()
	s := v.reported
	if s.Time < at {
		v.state = k.stateAt(at, 0)
		return
	}
	level := ticks(s.Time) - ticks(at) //nolint:gosec // the difference, which is not negative
	switch rest := ticks(s.Sixteenths & 15); {
	case k.unit == fine:
		level = min(level, maxLevelFine>>fine)<<fine + rest
	case rest > 0:
		level++
	}
	if level > k.highest {
		level = 0
	}
	v.state = k.stateAt(at, level)
}

func (gcra) export(_ *view, at Time, p *Policy, st state, s *State) {
	if k := p.Bucket(); k.level(st, at) > 0 {
		level, u := levelOf(uint64(st.mark), at) //nolint:gosec // bits
		s.Time = at + Time(level>>u)             //nolint:gosec // below 2^62
		s.Sixteenths = uint8(level & (1<<u - 1) & 15)
	}
}

func (gcra) merge(v, there *view, at Time, b *Batch, i int) (after state, ok bool) {
	k := b.Charges[i].Policy.Bucket()
	return there.state, v.slot != nil || k.level(there.state, at) > 0
}
