package limiter

import (
	"slices"
	"time"
)

// Cancel gives back what b's waiting charges hold, for a request whose caller
// went away at the time now while it was held. A slot comes back only if no later
// one has been given out, since others were promised theirs. What came back is no
// longer in the Charged and Wait of its decision.
func (t *Table) Cancel(now Time, b *Batch) {
	at := instantOf(now)
	for i, d := range slices.Backward(b.Decisions) {
		if d.Wait > 0 {
			t.release(at, b, i)
		}
	}
	b.Wait = 0
}

// rollBack undoes what charge i took on the condition that its group did not
// refuse.
func (t *Table) rollBack(at instant, b *Batch, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	if !c.Refund && !c.Policy.CountRefused && d.Charged > 0 {
		pause(beforeRelease)
		t.release(at, b, i)
	}
	d.Wait = 0
}

// release gives back what charge i took. If the window it was taken from has
// passed, there is nothing to give back; a bucket's slot that others wait behind
// is lost and stays charged.
func (t *Table) release(at instant, b *Batch, i int) {
	c, d := &b.Charges[i], &b.Decisions[i]
	p := c.Policy
	tag, partition := tagOf(c.ID, p.Algorithm), t.partition(b)
	since := at.time()
	hits := d.Charged // a log that has been rid of them is read once more
	var v view
	for {
		t.read(at, partition, tag, c.ID, p, &v)
		after, lost := v.state, false
		switch {
		case isBucket(p.Algorithm):
			elapsed := time.Duration(0)
			if b.Clock != nil && v.slot != nil {
				// Read after the word, it is later than all that drained in it.
				now := max(b.Clock(), since)
				elapsed, at = time.Duration(now-since), instantOf(now)
				v.load(at, p)
			}
			after = v.state
			lost = v.giveBackSlot(elapsed, p, b.marks[i], d, &after)
		case v.slot == nil:
		case p.Algorithm == SlidingLog:
			if hits > 0 {
				if v.unlog(b.marks[i], hits) {
					hits = 0
				}
				continue
			}
		case v.num != b.marks[i]:
		default:
			after.used -= min(after.used, d.Charged)
		}
		left := *d
		left.Wait = 0
		if !lost {
			v.finish(at, p, b.Budget, &after, &left)
			left.Charged, left.Remaining = 0, d.Remaining+d.Charged // as if it had not been charged
		}
		if after == v.state && v.same() || after != v.state && t.write(at, partition, tag, c.ID, p, &v, &after) {
			*d = left
			return
		}
	}
}

// giveBackSlot undoes the charge that left the counter at the TAT mark. It reports
// whether that cannot be, because the charge or a later one waits and is not the
// newest.
//
// Had the charge not been made, the bucket might have been empty for some of the
// time elapsed since, and less would have drained. So much does not come back,
// whether it was or not: others that gave back meanwhile moved what was charged
// after them, and nothing tells.
func (v *view) giveBackSlot(elapsed time.Duration, p *Policy, mark int64, d *Decision, after *state) (lost bool) {
	k := p.bucket(0)
	lag := k.in(v.used, uint8(v.num)) //nolint:gosec // 0 or fineShift
	part := k.need(d.Charged)
	if waits := d.Wait > 0; waits || p.Algorithm == LeakyBucket && lag > k.full {
		if v.slot == nil || v.word&^lifeBit != uint64(mark) { //nolint:gosec // bits
			return true
		}
	} else {
		part -= min(part, uint64(elapsed)<<k.shift) //nolint:gosec // not negative
	}
	if part = min(part, lag); part > 0 {
		after.used, after.num = lag-part, int64(k.shift)
	}
	return false
}
