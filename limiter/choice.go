package limiter

// Choice marks the charges of a choice, which are alternatives: the first one with room for all of
// its hits is charged, and no other. They are adjacent and in the same group, and they are not
// refunds. Their policies have no CountRefused, Penalty, Reserve or MaxWait, and do not grant leases.
//
// One decision describes the choice: the one of the charged alternative or, if none has room, of the
// alternative that will have room first. The others are [Decision.Skipped]. A choice of 0 hits describes
// the first alternative with hits left. In a denied group, which charges nothing, each choice is described
// as if it were alone; if no charge of the group is denied alone, as if they were charged one after another.
type Choice uint8

const (
	// NoChoice is a charge by itself.
	NoChoice Choice = iota
	// FirstChoice is the first alternative of a choice.
	FirstChoice
	// NextChoice is a further alternative of the choice of the charge before it.
	NextChoice
)

// choiceEnd returns the end of the choice that starts at lo, which is lo+1 for other charges.
func (b *Batch) choiceEnd(lo int) int {
	hi := lo + 1
	for hi < len(b.Charges) && b.Charges[hi].Choice == NextChoice {
		hi++
	}
	return hi
}

// peekChoices describes the choices of the group [lo, hi) as if they were decided now. It reports
// whether none of them denies the group.
func (b *Batch) peekChoices(at Time, lo, hi int) bool {
	ok := true
	for ; b.choices && lo < hi; lo = b.choiceEnd(lo) {
		if b.Charges[lo].Choice == FirstChoice {
			ok = b.decideChoice(at, lo, false) && ok
		}
	}
	return ok
}

// chargeChoices decides the choices of the group [lo, hi), in request order. If one of them denies
// the group, it undoes the others and returns false. Two groups with the same choices in another order
// can take the last hits of each other, and then both are denied.
func (b *Batch) chargeChoices(at Time, lo, hi int) bool {
	ok := true
	for i := lo; b.choices && i < hi; i = b.choiceEnd(i) {
		if b.Charges[i].Choice == FirstChoice {
			ok = b.decideChoice(at, i, true) && ok
		}
	}
	for i := hi - 1; !ok && i >= lo; i-- {
		if b.Charges[i].Choice != NoChoice {
			b.rollBack(at, i)
		}
	}
	return ok
}

// decideChoice decides the choice that starts at lo, and charges it if charge is set. It reports
// whether the choice does not deny its group. Each alternative is tried in one atomic step, so
// if another request takes the last hits of one, the next is tried.
func (b *Batch) decideChoice(at Time, lo int, charge bool) bool {
	chosen := lo
	hi := b.choiceEnd(lo)
	for i := lo; i < hi; i++ {
		if charge {
			b.chargeCounter(at, i)
		} else {
			b.peekCounter(at, i)
		}
		if i > lo && b.precedes(i, chosen) {
			chosen = i
		}
		if b.hasRoom(chosen) {
			break
		}
	}
	for i := lo; i < hi; i++ {
		if i != chosen {
			b.Decisions[i] = Decision{Skipped: true}
		}
	}
	return !b.denies(chosen)
}

// hasRoom reports whether alternative i of a choice has room for its hits, or hits left if there are
// none.
func (b *Batch) hasRoom(i int) bool {
	d := &b.Decisions[i]
	return !d.Over && (b.Charges[i].Hits > 0 || d.Remaining > 0)
}

// precedes reports whether alternative i of a choice describes it in place of an earlier one,
// which has no room.
func (b *Batch) precedes(i, earlier int) bool {
	d := &b.Decisions[i]
	e := &b.Decisions[earlier]
	switch {
	case b.hasRoom(i) || d.Over != e.Over:
		return !d.Over
	case d.RetryAfter == Never:
		return false
	default:
		return e.RetryAfter == Never || d.RetryAfter < e.RetryAfter
	}
}

// peekCounter decides charge i as if it were charged now, and describes the counter without it.
func (b *Batch) peekCounter(at Time, i int) {
	c := &b.Charges[i]
	d := &b.Decisions[i]
	v := &b.view
	a := c.Policy.algorithm()
	for b.read(at, i, v); ; b.read(at, i, v) {
		if _, ok := a.decide(v, at, c, c.Hits, b.Budget, v.state, d); !ok {
			continue
		}
		d.Charged = 0
		a.finish(v, at, c.Policy, b.Budget, v.state, d)
		if v.unchanged() {
			return
		}
	}
}

// Chosen returns the charge that describes the choice to which charge i belongs, after a decision.
func (s Stored) Chosen(i int) int {
	for s.b.Charges[i].Choice == NextChoice {
		i--
	}
	for s.b.Decisions[i].Skipped {
		i++
	}
	return i
}
