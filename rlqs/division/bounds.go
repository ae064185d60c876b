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
	// idleReports is the number of consecutive reports without a request after which a bucket is
	// abandoned.
	idleReports = 6
	// maxStreamBuckets is the maximum number of buckets per stream.
	maxStreamBuckets = 10_000
	// tickShares bounds the work of one call of [Divider.Tick]. The call counts the shares of the
	// buckets that it divides and of closed streams, and returns after the bucket at which the count
	// reaches tickShares, in less than a millisecond.
	tickShares = 4096
	// maxLate is how late a call of [Divider.Tick] may be. While there are streams, Tick is due again
	// after at most maxLate. A caller that is later than that was stalled, and may not have noticed
	// that streams have ended. An action taken for an ended stream would count as in effect for a
	// TTL, so no action can be taken for the next stallPause.
	maxLate = 500 * time.Millisecond
)

// bounds are the bounds of a divider: the constants, except in tests.
type bounds struct {
	maxBytes, idleReports, maxStreamBuckets, tickShares int
	maxLate                                             Time
}
