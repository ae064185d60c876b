package division

import "time"

const (
	// TTL is the assignment_time_to_live. An Envoy reports every 5 s, and each report renews its
	// assignments. After its stream has ended, an Envoy reconnects at its next report, so its
	// assignments outlast a service outage of 4 s.
	TTL = 12 * time.Second
	// ExpiryMargin is how long an Envoy may apply an assignment after its time to live has passed.
	// After its stream has ended, an Envoy may still apply an action from a queue, and its clock
	// may drift.
	ExpiryMargin = 500 * time.Millisecond
	// maxLife is how long an assignment may be in effect after it was sent.
	maxLife = TTL + ExpiryMargin
	// assignTimeout is how long an Envoy without an assignment waits while other streams have not
	// confirmed lower rates. After that it is assigned DENY_ALL.
	assignTimeout = time.Second
)

// Options configure a divider. The zero value is valid.
type Options struct {
	// IdleReports is the number of consecutive reports without a request after which a bucket is
	// abandoned. 0 means 6.
	IdleReports int
	// MaxStreamBuckets is the maximum number of buckets per stream. 0 means 10,000.
	MaxStreamBuckets int
	// MaxBytes bounds the estimated memory of all buckets. A bucket counts as 320 bytes plus its
	// ID, plus 135 bytes for each stream that has reported it. A client may use at most as much
	// memory as is left free, so a single client gets at most half of MaxBytes, and k clients leave
	// at least one part in k+1 to others. If a client uses more than half of its bound, its idle
	// buckets are abandoned after one report without a request. 0 means 48 MiB.
	MaxBytes int
	// TickShares bounds the work of one call of [Divider.Tick]. The call counts the shares of the
	// buckets that it divides and of closed streams, and returns after the bucket at which the
	// count reaches TickShares. 0 means 4,096, which takes less than a millisecond.
	TickShares int
	// MaxLate is how late a call of [Divider.Tick] may be. While there are streams, Tick is due
	// again after at most MaxLate. A caller that is later than that was stalled, and may not have
	// noticed that streams have ended. An action taken for an ended stream would count as in effect
	// for a TTL, so no action can be taken for the next 250 ms. 0 means 500 ms; a negative value
	// disables this pause.
	MaxLate time.Duration
	// Fresh is true if no assignment of a predecessor of this divider can still be in effect.
	// Otherwise the divider starts with a learning period of 6 s, in which Envoys reconnect. During
	// this period the complete limit counts as in effect. An Envoy that reports a bucket for the
	// first time gets no assignment; one that has reported it before keeps the rate at which it
	// admitted requests, up to half of the limit. The limit may be exceeded in two cases: the predecessor changed rates in
	// its last seconds, or an Envoy continues to serve but cannot reconnect. At most twice the
	// limit is then in effect, for a TTL.
	Fresh bool
}

func (o Options) withDefaults() Options {
	if o.MaxLate == 0 {
		o.MaxLate = 500 * time.Millisecond
	}
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
