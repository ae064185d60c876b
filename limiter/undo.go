package limiter

import "slices"

// Cancel gives back what b's waiting charges hold, for a request that was cancelled at
// the time now while it was held. A turn comes back only if no later one has been given
// out, since others were promised theirs. What came back is no
// longer in the Charged and Wait of its decision.
func (t *Table) Cancel(now Time, b *Batch) {
	b.table = t
	for i, d := range slices.Backward(b.Decisions) {
		if d.Wait > 0 {
			b.release(now, i)
		}
	}
	b.Wait = 0
}

// rollBack undoes what charge i took on the condition that its group would be
// admitted.
func (b *Batch) rollBack(at Time, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	if !c.Refund && !c.Policy.CountRefused && d.Charged > 0 {
		pause(beforeRelease)
		b.release(at, i)
	}
	d.Wait = 0
}

// release gives back what charge i took. If the window it was taken from has
// passed, there is nothing to give back; a bucket's turn that others wait behind
// is lost and stays charged.
func (b *Batch) release(at Time, i int) {
	c, d, v := &b.Charges[i], &b.Decisions[i], &b.view
	p := c.Policy
	a := p.algorithm()
	for {
		b.read(at, i, v)
		after, lost, left := v.state, d.Wait > 0, &b.spare
		if v.slot != nil || v.class == &outside {
			now := at
			if b.Clock != nil && v.class != &outside { // read after the word, it is later than all that drained in it
				now = max(b.Clock(), at)
			}
			after, lost = a.undo(v, at, now, p, b.marks[i], d)
		}
		if *left, left.Wait = *d, 0; !lost {
			a.finish(v, at, p, b.Budget, after, left)
			left.Charged, left.Remaining = 0, d.Remaining+d.Charged // as if it had not been charged
		}
		if b.write(at, i, v, after) {
			*d = *left
			return
		}
	}
}
