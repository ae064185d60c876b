package quota

import "time"

// Options configure a divider. The zero value is valid.
type Options struct {
	// TTL is the assignment_time_to_live, in whole seconds. 0 means 12 s. Envoys report every 5 s
	// and are answered each time, and one whose stream broke comes back at its next report, so 12 s
	// cover an outage of the service of 4 s.
	TTL time.Duration
	// ExpiryMargin is how much later than computed an assignment may expire: the time for which an
	// action may be queued at an Envoy whose stream has ended, plus the clock drift within a TTL. 0
	// means 500 ms.
	ExpiryMargin time.Duration
	// AssignTimeout is how long a stream without an assignment waits for others to confirm lower
	// rates before it is assigned DENY_ALL. 0 means 1 s.
	AssignTimeout time.Duration
	// IdleReports is the number of reports without a request after which a bucket is abandoned. 0
	// means 6.
	IdleReports int
	// MaxStreamBuckets bounds the buckets of a stream. 0 means 10,000.
	MaxStreamBuckets int
	// MaxBytes bounds the memory of buckets: 320 bytes and the ID for each, and 100 for each stream
	// that has reported it. A client may use as much as is then free, so a single client uses at
	// most half, and clients that use all they can leave room for another one. Idle buckets of a
	// client that uses half of its bound are abandoned after one report. 0 means 48 MiB.
	MaxBytes int
	// TickShares bounds the work of a [Divider.Tick]: the number of shares of closed streams and of
	// divided buckets that it visits. The last bucket is completed. 0 means 4,096, which takes less
	// than a millisecond.
	TickShares int
	// MaxLate bounds the delay of the next call after the time that [Divider.Tick] returned, which
	// is at most MaxLate from now while there are streams. A later caller was stalled, and may not
	// have read yet that streams have ended. An action taken for such a stream would count as in
	// effect for a TTL, so no action can be taken for 250 ms. 0 means 500 ms; a negative value
	// disables this.
	MaxLate time.Duration
	// Fresh is true if no assignment of a predecessor of this divider can still be in effect.
	// Otherwise the divider learns for 6 s, until all Envoys that can have come back. Meanwhile the
	// complete limit counts as in effect, buckets that are new to an Envoy are not answered, and an
	// Envoy that reports keeps the rate that it admitted. This is correct unless rates changed in
	// the predecessor's last seconds, or an Envoy cannot come back but goes on; at most twice the
	// limit is in effect then, for a TTL.
	Fresh bool
	// Strict makes a divider that is not Fresh assign nothing until TTL and ExpiryMargin have
	// passed. The bound then holds strictly, but assignments expire meanwhile.
	Strict bool
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&o.TTL, 12*time.Second)
	def(&o.ExpiryMargin, 500*time.Millisecond)
	def(&o.AssignTimeout, time.Second)
	if o.MaxLate == 0 {
		o.MaxLate = 500 * time.Millisecond
	}
	o.TTL = max(o.TTL.Truncate(time.Second), time.Second)
	if o.IdleReports <= 0 {
		o.IdleReports = 6
	}
	if o.MaxStreamBuckets <= 0 {
		o.MaxStreamBuckets = 10_000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 48 << 20
	}
	if o.TickShares <= 0 {
		o.TickShares = 4096
	}
	return o
}
