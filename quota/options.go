package quota

import "time"

// Options configure a divider. The zero value is valid.
type Options struct {
	// TTL is the assignment_time_to_live, in whole seconds. 0 means 12 s: an Envoy reports every 5
	// s and each report renews its assignments. An Envoy whose stream broke reconnects at its next
	// report, so its assignments last through a service outage of 4 s.
	TTL time.Duration
	// ExpiryMargin is the maximum delay of an expiry at an Envoy: an action may wait in a queue of
	// the Envoy after its stream has ended, and clocks drift within a TTL. 0 means 500 ms.
	ExpiryMargin time.Duration
	// AssignTimeout is how long a stream without an assignment waits for other streams to confirm
	// lower rates before it is assigned DENY_ALL. 0 means 1 s.
	AssignTimeout time.Duration
	// IdleReports is the number of reports without a request after which a bucket is abandoned. 0
	// means 6.
	IdleReports int
	// MaxStreamBuckets bounds the buckets of a stream. 0 means 10,000.
	MaxStreamBuckets int
	// MaxBytes bounds the memory of buckets: 320 bytes and the ID for each, and 100 for each stream
	// that has reported it. A client may not use more memory than remains free: one client uses at
	// most half, and k clients leave at least one part in k+1 to others. If a client uses more than
	// half of its bound, its idle buckets are abandoned after one report. 0 means 48 MiB.
	MaxBytes int
	// TickShares bounds the work of a [Divider.Tick]: the number of shares of closed streams and of
	// divided buckets that it visits. It completes the bucket at which it reaches the bound. 0
	// means 4,096, which takes less than a millisecond.
	TickShares int
	// MaxLate is how much later than the time that [Divider.Tick] returned the next call may be.
	// While there are streams, that time is at most MaxLate from now. If the call is later, the
	// caller was stalled and may not have noticed yet that streams have ended. An action taken for
	// such a stream would count as in effect for a TTL, so no action can be taken for the next
	// 250 ms. 0 means 500 ms; a negative value disables this.
	MaxLate time.Duration
	// Fresh is true if no assignment of a predecessor of this divider can still be in effect.
	// Otherwise the divider learns for 6 s, in which all Envoys that can reconnect do so. Meanwhile
	// the complete limit counts as in effect, buckets that are new to an Envoy get no assignment,
	// and an Envoy that reports keeps the rate at which it admitted requests. The limit may be
	// exceeded if the predecessor changed rates in its last seconds, or if an Envoy continues to
	// serve but cannot reconnect: then at most twice the limit is in effect, for a TTL.
	Fresh bool
	// Strict makes a divider that is not Fresh assign nothing until TTL and ExpiryMargin have
	// passed. The bound in the package comment then holds, but assignments expire meanwhile.
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
