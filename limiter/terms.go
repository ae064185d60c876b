package limiter

import "time"

// What a store outside of this process needs of policies and batches to charge as a Table
// does.

// A Waiter waits for decisions that come later, because they are made elsewhere.
type Waiter interface {
	// Decided is called with the error in place of a decision, or nil. It does not block.
	Decided(err error)
	// Exceeded returns what is to be told, maybe concurrently, of hits of a charge that was decided without its
	// counter and turns out to be beyond the limit when that is back; nil if nobody wants to know. It is called
	// before Decided.
	Exceeded(charge int) func(hits uint64)
}

// A Bucket is a token or leaky bucket policy in units of time: of 1/16 ns if Fine is set, else
// of 1 ns.
type Bucket struct {
	// Step is the emission interval, 0 if the limit is 0, so that no hit has room.
	Step uint64
	// Full is the level of a full bucket: how far its TAT may be ahead of the time.
	Full uint64
	// Hold is by how much hits may exceed that if they are held.
	Hold uint64
	// Debt is by how much hits may exceed Full that count though they are denied.
	Debt uint64
	// Fine says what the unit is.
	Fine bool
}

// Bucket returns the terms of a [TokenBucket] or [LeakyBucket].
func (p *Policy) Bucket() Bucket {
	k := p.bucket()
	return Bucket{
		Step: uint64(k.step), Full: uint64(k.full), Hold: uint64(k.hold),
		Debt: uint64(max(k.hold, k.unit.of(p.Window))), Fine: k.unit == fine,
	}
}

// Need returns by how much hits raise the level, at most 2^63-1.
func (k Bucket) Need(hits uint64) uint64 {
	as := bucket{step: ticks(k.Step)}
	return uint64(as.need(hits))
}

// Within returns Hold, or less where a request may be held for budget at most.
func (k Bucket) Within(budget time.Duration) uint64 {
	as := bucket{hold: ticks(k.Hold)}
	if k.Fine {
		as.unit = fine
	}
	return uint64(as.within(budget))
}

// Ring returns the sub-windows of a [SlidingWindow]: their length, and how many of them
// count beside the newest. They are numbered from the Unix epoch.
func (p *Policy) Ring() (length time.Duration, k int) {
	r := p.ring()
	return time.Duration(r.length), int(r.k)
}

// WindowEnd returns the end of the [FixedWindow] that the time lies in.
func (p *Policy) WindowEnd(at Time) Time { return Time(windowEnd(p, at) * int64(time.Second)) }

// SetOff sets b's refunds off against its charges on the same counters, so that
// [Batch.Hits] says what is left of each.
func (b *Batch) SetOff() {
	b.offset = false
	if _, refunds, _ := b.survey(); refunds {
		b.setOff()
	}
}

// Hits returns what is left of the hits of charge i after [Batch.SetOff], or of the hits
// that it gives back.
func (b *Batch) Hits(i int) uint64 { return b.hits(i) }

// Left makes s the state in which [Batch.Conclude], of the same time, left the counter of
// charge i. It keeps the memory of s.
func (b *Batch) Left(now Time, i int, s *State) {
	v, p := &b.view, b.Charges[i].Policy
	b.recall(now, i, v)
	s.clear()
	p.algorithm().tell(v, now, p, v.state, s)
}

// Turn returns the bucket as charge i left it, which Conclude of the same time decided: while
// it has this TAT, a charge that waits is the newest, and can be cancelled.
func (b *Batch) Turn(now Time, i int) State {
	var s State
	gcra{}.tell(nil, now, nil, state{num: b.marks[i]}, &s)
	return s
}

// Resize makes b.Decisions parallel to b.Charges, for [Batch.Copy].
func (b *Batch) Resize() {
	b.resize(len(b.Charges))
	b.offset = false
}

// Copy makes decision i of b that of charge k of part, which was decided with some of b's charges.
func (b *Batch) Copy(i int, part *Batch, k int) {
	b.Decisions[i], b.marks[i] = part.Decisions[k], part.marks[k]
}

// Deny makes charge i of b, which t or, with a nil t, [Batch.Conclude] decided at the time now, one
// whose group was denied by charges that are not in b: it gives back what the charge took
// on the condition that the group would be admitted.
func (t *Table) Deny(now Time, b *Batch, i int) {
	t.rollBack(now, b, i)
	b.Decisions[i].Denied = true
}

// Find makes found, parallel to b.Charges, the states of its counters in the table, before b is
// decided. Of a log it has no Stamp. It keeps the memory of found, and changes no
// counter.
func (t *Table) Find(now Time, b *Batch, found []State) {
	v := &b.view
	for i := range found {
		p, s := b.Charges[i].Policy, &found[i]
		for {
			t.read(now, b, i, v)
			s.clear()
			p.algorithm().tell(v, now, p, v.state, s)
			if v.slot == nil || v.slot.word.Load() == v.word {
				break
			}
		}
	}
}

// clear makes s an absent counter and keeps its memory.
func (s *State) clear() { *s = State{Counts: s.Counts[:0]} }
