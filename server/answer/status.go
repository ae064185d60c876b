package answer

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// fillStatuses sets the status of each descriptor of the request.
func (x *Exchange) fillStatuses() {
	x.statuses = x.statuses[:0]
	batch := &x.plan.Batch
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		st := descriptorStatus{code: codeOK, charge: m.First}
		if m.Count > 1 {
			st.charge = x.statusCharge(m)
		}
		switch {
		case x.plan.Exempt != nil: // the status of a refund has no limit, either
		case m.Count > 0:
			d := &batch.Decisions[st.charge]
			if d.Over && batch.Charges[st.charge].Mode.Denies() {
				st.code = codeOverLimit
			}
			st.limit = x.plan.Limits[st.charge]
			st.remaining = uint32(min(d.Remaining, math.MaxUint32))
			st.resetSeconds = ceilSeconds(d.Reset)
		case m.Unlimited != nil || m.Rule != nil && m.Rule.Unlimited:
			st.remaining = math.MaxUint32
		}
		x.statuses = append(x.statuses, st)
	}
}

// statusCharge returns the index of the charge that determines the status of a match with several.
// Among the charges that are over their limit and not in shadow mode, it is the first with the longest time
// until its reset.
// If there are none, it is the first charge with the fewest remaining hits, among those of limits
// that are not hidden if there are any.
func (x *Exchange) statusCharge(m *descriptors.Match) int {
	over := -1
	least := m.First
	for i := m.First; i < m.First+m.Count; i++ {
		d := &x.plan.Batch.Decisions[i]
		if d.Over && x.plan.Batch.Charges[i].Mode.Denies() &&
			(over < 0 || d.Reset > x.plan.Batch.Decisions[over].Reset) {
			over = i
		}
		hidden := x.plan.Limits[i].Hidden
		hides := x.plan.Limits[least].Hidden
		if hides && !hidden || hides == hidden && d.Remaining < x.plan.Batch.Decisions[least].Remaining {
			least = i
		}
	}
	if over >= 0 {
		return over
	}
	return least
}

// ceilSeconds rounds up to whole seconds, and to at least 1.
func ceilSeconds(d time.Duration) uint64 {
	return uint64(max(1, (d+time.Second-1)/time.Second))
}
