package limiter

// A State is a counter as a store outside of this process has it, in numbers that do not
// depend on the memory of a [Table]. The zero value is an absent counter, so one that
// nobody has hit.
//
//	                Hits            Time               beside
//	fixed window    of the window   the window's end   -
//	buckets         -               TAT                Sixteenths
//	sliding window  -               -                  Number, Counts
//	sliding log     that count      of the newest hit  Stamp
//	concurrency     that are held   -                  Lease
//
// A counter that hits are reserved on has Held, Reserved, Lease and Settled, too.
type State struct {
	// Hits are those of a fixed window, of which more than [MaxCount] are taken for as
	// many; or those of a log that count at the time of the charge, at most its limit: of a
	// time before the newest hit, those that count at the newest.
	Hits uint64
	// Time is the end of a fixed window, in whole seconds; the theoretical arrival time of a
	// bucket; the time of the newest hit of a log.
	Time Time
	// Sixteenths of a nanosecond, 0 to 15, that a bucket's TAT is after Time. Only buckets
	// whose emission interval is below 1024 ns have them.
	Sixteenths uint8
	// SubWindow is that of the newest sub-window in which a ring was hit: of the times from
	// Number times the length of [Policy.Ring] on.
	SubWindow int64
	// Counts are the hits of that sub-window and of the k before it, the newest first. What
	// is missing is 0. Without any the counter is absent.
	Counts []uint32
	// Stamp is the time of one hit of a log, of which each charge asks for another.
	//
	//   - Hits without room need the hit whose end makes room for them. With n hits in the log
	//     after the charge, that is number n + hits - limit, counted from the oldest.
	//   - A refund needs the newest hit that it leaves in the log, and so does each charge
	//     on the log after it in the same batch.
	//
	// Other charges need none, nor does one that needs a hit of its own batch.
	Stamp Time
	// RefundStamp is, of a refund of a log, the newest hit that stays when the refund has also given back what was set off against
	// hits that do not count.
	RefundStamp Time
	// Lease of a concurrency limit is the one that the charge took in the store; of a lease that is given back,
	// the lease itself if it was held, else 0.
	// Of a charge that reserves it is the one that it took.
	Lease uint64
	// Held is how many hits are reserved beside the counter, in so many reservations. Settled is what the lease held
	// that a charge brings back.
	HeldHits, Reservations, SettledHits uint64
	// PenaltyExpiry is when the penalty beside the counter is forgotten, a window after its end, and Level its step, from 1;
	// 0 for none.
	PenaltyExpiry Time
	PenaltyLevel  uint8
}

// clear makes s an absent counter and keeps its memory.
func (s *State) clear() { *s = State{Counts: s.Counts[:0]} }
