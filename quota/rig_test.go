package quota_test

import (
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

// perHour is a whole rate in tokens per Fill.
func perHour(perSecond int) quota.Rate { return quota.Rate(perSecond * 3600) }

var hundred = &quota.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond}

// A rig is a divider with helpers to report and to take actions.
type rig struct {
	*quota.Divider
	now quota.Time
}

// newRig returns a rig whose clock may leap, unless the options say otherwise.
func newRig(o quota.Options) *rig {
	if o.MaxLate == 0 {
		o.MaxLate = -1
	}
	return &rig{quota.New(0, o), 0}
}

func (r *rig) pass(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now = min(end, max(r.tick(), r.now+1))
	}
	r.tick()
}

// tick calls Tick until nothing is left to be done now. It returns when something is.
func (r *rig) tick() quota.Time {
	for range 1_000_000 {
		if next := r.Tick(r.now); next > r.now {
			return next
		}
	}
	panic("there is always something left to be done now")
}

// first reports a bucket's first request.
func (r *rig) first(h quota.StreamID, bucket int, l *quota.Limit) quota.Outcome {
	return r.report(h, bucket, l, 1, 0, 0)
}

func (r *rig) report(h quota.StreamID, bucket int, l *quota.Limit, allowed, denied uint64, elapsed time.Duration) quota.Outcome {
	o := r.Report(r.now, h, quota.Report{
		Bucket: bucketOf(bucket), ID: []byte{byte(bucket)}, Limit: l, Allowed: allowed, Denied: denied, Elapsed: elapsed,
	})
	r.tick()
	return o
}

// told returns the actions for a stream and confirms them.
func (r *rig) told(h quota.StreamID) []quota.Action {
	actions, seq, _ := r.TakeActions(r.now, h, nil, 1000)
	r.Confirm(r.now, h, seq)
	r.tick()
	return actions
}

// rate returns the rate assigned to a stream for a single bucket, -1 if there is none.
func (r *rig) rate(h quota.StreamID) int64 {
	a := r.told(h)
	if len(a) != 1 || a[0].Kind != quota.Assign {
		return -1
	}
	return int64(a[0].Rate)
}
