package answer

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// fillStatuses gives each descriptor of the request its status.
func (x *Exchange) fillStatuses() {
	x.statuses = x.statuses[:0]
	batch := &x.plan.Batch
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		st := descriptorStatus{code: codeOK}
		switch {
		case m.Count > 0:
			at := x.statusCharge(m)
			d := &batch.Decisions[at]
			if d.Over && batch.Charges[at].Mode.Denies() {
				st.code = codeOverLimit
			}
			st.limit = x.plan.Limits[at]
			st.remaining = uint32(min(d.Remaining, math.MaxUint32))
			st.resetSeconds = seconds(d.Reset)
		case m.Unlimited != nil || m.Rule != nil && m.Rule.Unlimited:
			st.remaining = math.MaxUint32
		}
		x.statuses = append(x.statuses, st)
	}
}

// statusCharge returns which charge of a match gives the status. Of those that are over and
// not in shadow mode it is the one with the longest wait, else the one with the smallest
// remaining, and the first of equals.
func (x *Exchange) statusCharge(m *descriptors.Match) int {
	if m.Count == 1 {
		return m.First
	}
	over, least := -1, m.First
	for i := m.First; i < m.First+m.Count; i++ {
		d := &x.plan.Batch.Decisions[i]
		if d.Over && x.plan.Batch.Charges[i].Mode.Denies() && (over < 0 || x.wait(i) > x.wait(over)) {
			over = i
		}
		if d.Remaining < x.plan.Batch.Decisions[least].Remaining {
			least = i
		}
	}
	if over >= 0 {
		return over
	}
	return least
}

// wait is how long the hits of charge i have to wait. It is one window if they can never pass.
func (x *Exchange) wait(i int) time.Duration {
	if w := x.plan.Batch.Decisions[i].RetryAfter; w != limiter.Never {
		return w
	}
	return max(x.plan.Batch.Charges[i].Policy.Window, x.plan.Batch.Decisions[i].Reset)
}

// seconds rounds up to whole seconds, at least 1.
func seconds(d time.Duration) uint64 {
	return uint64(max(1, (d+time.Second-1)/time.Second))
}
