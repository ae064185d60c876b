package quota

import "time"

// Options are a divider's. The zero value works.
type Options struct {
	// TTL is how long an assignment acts: assignment_time_to_live. Whole seconds; 0 is 12 s. Envoys
	// report every 5 s and are answered each time, and one whose stream broke comes back at its next
	// report. So 12 s let a service be away for 4 s.
	TTL time.Duration
	// Delta is how much later than we think an assignment may end: the time that one may lie at an
	// Envoy whose stream has ended, and what clocks differ in a TTL. 0 is 500 ms.
	Delta time.Duration
	// Patience is how long a holder without an assignment waits for others to confirm lower rates,
	// before it is told to deny all. 0 is 1 s.
	Patience time.Duration
	// IdleReports is after how many reports without a request a bucket is abandoned. 0 is 6.
	IdleReports int
	// MaxStreamBuckets bounds the buckets of a stream. 0 is 10,000.
	MaxStreamBuckets int
	// MaxBytes bounds the memory for buckets: 320 bytes and the id for each, and 100 for each stream that
	// has reported it. A client may have as much as is then free, so a single client has at most a half, and
	// clients that take all they can leave room for another one. Idle buckets of a client that has half of
	// what it may have are abandoned after one report. 0 is 48 MiB.
	MaxBytes int
	// TickShares bounds the work of a [Divider.Tick]: the shares of closed streams and of divided buckets
	// that it looks at. The last bucket is divided as a whole. 0 is 4,096, which takes less than a
	// millisecond.
	TickShares int
	// MaxLate bounds the delay of the next call after the time that [Divider.Tick] returned, which is at most
	// MaxLate from now while there are streams. A caller that is later stood still, and may not have read
	// yet that streams have ended. An action that is taken for such a stream counts as in force for a TTL,
	// so nothing can be taken for 250 ms. 0 is 500 ms; a negative value turns this off.
	MaxLate time.Duration
	// Fresh says that no predecessor of this divider has assigned anything that may still act. Otherwise
	// it learns for 6 s, until all Envoys that can have come back: the whole limit counts as in force, a
	// bucket that is new to its holder is not answered, and a holder that reports what it admitted goes
	// on with that rate. That is right unless rates changed in the predecessor's last seconds, or an
	// Envoy cannot come back but goes on; twice the limit is in force at most, for a TTL.
	Fresh bool
	// Strict has a divider that is not Fresh answer nobody until TTL and Delta have passed. So the bound
	// holds strictly, but assignments run out meanwhile.
	Strict bool
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&o.TTL, 12*time.Second)
	def(&o.Delta, 500*time.Millisecond)
	def(&o.Patience, time.Second)
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
