package limiter

import "math"

// A State is a counter as an external store reports it, independent of the memory of a [Table]. The
// zero value is an absent counter. The fields in use depend on the algorithm:
//
//	                Hits            Time               others
//	fixed window    of the window   the window's end   -
//	buckets         -               TAT                Sixteenths
//	sliding window  -               -                  SubWindow, Counts
//	sliding log     that count      of the newest hit  Stamp
//	concurrency     in progress     -                  Lease
//
// A counter with reservations also uses HeldHits, Reservations, Lease and SettledHits.
type State struct {
	// Hits is the number of hits of a fixed window, capped at [MaxCount]; or the number of hits of
	// a log, at most its limit, that count at the time of the charge or, if that is later, at the
	// time of the newest hit.
	Hits uint64
	// Time is the end of a fixed window, in whole seconds; the theoretical arrival time of a
	// bucket; or the time of the newest hit of a log.
	Time Time
	// Sixteenths of a nanosecond, 0 to 15, are added to Time for the TAT of buckets with an
	// emission interval below 1024 ns.
	Sixteenths uint8
	// SubWindow is the number of the newest sub-window with hits. Without a calendar it starts at
	// SubWindow times [Ring.Length].
	SubWindow int64
	// Counts are the hits of that sub-window and of the k before it, newest first. Missing counts
	// are 0. An empty slice is an absent counter.
	Counts []uint32
	// Stamp is the time of one hit of a log. Which one depends on the charge:
	//
	//   - For hits over the limit it is the hit whose expiry makes room for them. With n hits in
	//     the log after the charge, that is number n + hits - limit, counted from the oldest.
	//   - For a refund, and each later charge on the log in the same batch, it is the newest hit
	//     that remains in the log.
	//
	// It is not used for other charges, nor if that hit was charged by the same batch.
	Stamp Time
	// RefundStamp is, for a refund of a log, the newest hit that remains after the refund has also
	// given back hits offset against a charge that does not count.
	RefundStamp Time
	// Lease is the lease that a charge acquired in the store. For a returned lease of a concurrency
	// limit it is the lease itself if it was valid, else 0.
	Lease uint64
	// HeldHits is the number of hits reserved on the counter, and Reservations the number of
	// reservations. SettledHits is the number of hits held by the lease that a charge returns.
	HeldHits, Reservations, SettledHits uint64
	// PenaltyExpiry is when the penalty is forgotten, one window after its end. PenaltyLevel is its
	// step, from 1; 0 for none.
	PenaltyExpiry Time
	PenaltyLevel  uint8
}

// clear makes s an absent counter and keeps the memory of its slices.
func (s *State) clear() { *s = State{Counts: s.Counts[:0]} }

// AdvanceTAT advances the TAT of a bucket to t if it is earlier.
func (s *State) AdvanceTAT(t Time) {
	if s.Time < t {
		s.Time = t
		s.Sixteenths = 0
	}
}

// TakeOff takes hits off s, a counter of p that has been charged with them, as if they had not been.
// It changes the elements of Counts. A log or permits do not change.
func (s *State) TakeOff(p *Policy, hits uint64) {
	switch p.Algorithm {
	case FixedWindow:
		s.Hits -= min(s.Hits, hits)
	case SlidingWindow:
		if len(s.Counts) > 0 {
			s.Counts[0] -= uint32(min(uint64(s.Counts[0]), hits)) //nolint:gosec // at most a count
		}
	case TokenBucket, LeakyBucket:
		k := p.Bucket()
		s.moveTAT(&k, -int64(k.Need(hits))) //nolint:gosec // at most 2^63-1
	case SlidingLog, Concurrency:
	}
}

// PutOn undoes TakeOff, which took all of the hits.
func (s *State) PutOn(p *Policy, hits uint64) {
	switch p.Algorithm {
	case FixedWindow:
		s.Hits += hits
	case SlidingWindow:
		if len(s.Counts) > 0 {
			s.Counts[0] += uint32(min(hits, uint64(math.MaxUint32-s.Counts[0])))
		}
	case TokenBucket, LeakyBucket:
		k := p.Bucket()
		s.moveTAT(&k, int64(k.Need(hits))) //nolint:gosec // at most 2^63-1
	case SlidingLog, Concurrency:
	}
}

// moveTAT moves the TAT of a bucket by a number of ticks, which may be negative, but not below 0.
func (s *State) moveTAT(k *Bucket, by int64) {
	sixteenths := int64(s.Sixteenths & 15)
	if k.unit == fine {
		sixteenths += by & (1<<fine - 1)
		by >>= fine
	}
	s.Time = max(0, s.Time+Time(by)+Time(sixteenths>>fine))
	s.Sixteenths = uint8(sixteenths & (1<<fine - 1))
}
