package division_test

import (
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// perHour returns a rate per second as a Rate, which counts tokens per hour (division.Fill).
func perHour(perSecond int) division.Rate { return division.Rate(perSecond * 3600) }

var hundred = &division.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond}

// rig is a divider with helpers to report and to take actions.
type rig struct {
	*division.Divider
	now division.Time
}

// newRig returns a rig. Unless the options set MaxLate, its clock may jump.
func newRig(o division.Options) *rig {
	if o.MaxLate == 0 {
		o.MaxLate = -1
	}
	return &rig{division.NewWith(0, o), 0}
}

// advance advances the clock, and calls Tick when it is due.
func (r *rig) advance(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now = min(end, max(r.tick(), r.now+1))
	}
	r.tick()
}

// tick calls Tick until no work is left now. It returns when the next call is due.
func (r *rig) tick() division.Time {
	for range 1_000_000 {
		if next := r.Tick(r.now); next > r.now {
			return next
		}
	}
	panic("Tick always has work left")
}

// reportFirst reports the first request of a bucket.
func (r *rig) reportFirst(stream division.StreamID, bucket int, l *division.Limit) division.Outcome {
	return r.report(stream, bucket, l, 1, 0, 0)
}

func (r *rig) report(stream division.StreamID, bucket int, l *division.Limit, allowed, denied uint64, elapsed time.Duration) division.Outcome {
	o := r.Report(r.now, stream, division.Report{
		Bucket: bucketOf(bucket), ID: []byte{byte(bucket)}, Limit: l, Allowed: allowed, Denied: denied, Elapsed: elapsed,
	})
	r.tick()
	return o
}

// takeAndConfirm takes the actions of a stream and confirms them.
func (r *rig) takeAndConfirm(stream division.StreamID) []division.Action {
	actions, seq, _ := r.TakeActions(r.now, stream, nil, 1000)
	r.Confirm(r.now, stream, seq)
	r.tick()
	return actions
}

// takeRate takes and confirms a single assignment of a stream and returns its rate, -1 if there is
// none.
func (r *rig) takeRate(stream division.StreamID) int64 {
	a := r.takeAndConfirm(stream)
	if len(a) != 1 || a[0].Kind != division.Assign {
		return -1
	}
	return int64(a[0].Rate)
}
