package division

import (
	"cmp"
	"time"
)

// Options are bounds for tests. A bound of 0 is the constant; without MaxBytes it is 48 MiB.
type Options struct {
	IdleReports, MaxStreamBuckets, MaxBytes, TickShares int
	MaxLate                                             time.Duration // below 0: callers are never late
	Fresh                                               bool          // no predecessor has assigned rates
}

// NewWith is New with other bounds.
func NewWith(now Time, o Options) *Divider {
	d := New(now, cmp.Or(o.MaxBytes, 48<<20))
	d.idleReports = cmp.Or(o.IdleReports, d.idleReports)
	d.maxStreamBuckets = cmp.Or(o.MaxStreamBuckets, d.maxStreamBuckets)
	d.tickShares = cmp.Or(o.TickShares, d.tickShares)
	if d.maxLate = cmp.Or(o.MaxLate, d.maxLate); o.MaxLate < 0 {
		d.maxLate = never / 2
	}
	d.nextTickBy = never - d.maxLate
	if o.Fresh {
		d.predecessorExpiry = 0
		d.learnUntil = 0
	}
	return d
}
