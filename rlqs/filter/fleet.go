package filter

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

const (
	// ReportInterval is how often an Envoy reports all of its buckets.
	ReportInterval = 5 * time.Second
	// deliveryDelay is the time until a message has reached an Envoy and is applied.
	deliveryDelay = time.Millisecond
	never         = division.Time(math.MaxInt64)
)

// Fleet is a divider and the Envoys that report to it, in simulated time. Reports arrive at once;
// actions are applied after a millisecond and then confirmed. The reports of the Envoys are spread
// evenly over the report interval. A Fleet must be used by one goroutine.
type Fleet struct {
	divider *division.Divider
	envoys  []envoy
	// allowUnassigned is the decision about requests without a valid assignment.
	allowUnassigned bool
	now             division.Time
	due             division.Time // when the divider's Tick is due
	// reports counts the reports of all Envoys, which report round robin.
	reports           int64
	inTransit         []message // in order of arrival
	ready             []division.StreamID
	buckets           int
	unassignedAllowed uint64
}

// envoy is one Envoy. Its buckets are a list, so that they are reported in the same order each
// time.
type envoy struct {
	buckets []bucket
	index   map[division.Bucket]int
}

type bucket struct {
	Bucket

	key   division.Bucket
	limit *division.Limit
}

type message struct {
	at      division.Time // arrival
	envoy   int           // index of the recipient
	seq     uint64
	actions []division.Action
}

// NewFleet returns n Envoys and a divider without a predecessor. allowUnassigned determines whether
// requests without an assignment are allowed, as with ALLOW_ALL in no_assignment_behavior.
func NewFleet(n int, allowUnassigned bool) *Fleet {
	f := &Fleet{divider: division.New(0, division.Options{Fresh: true, MaxLate: -1}), envoys: make([]envoy, n), allowUnassigned: allowUnassigned, due: never}
	for i := range f.envoys {
		f.envoys[i].index = map[division.Bucket]int{}
		f.divider.OpenStream(0, division.StreamID(i+1), 0, 0)
	}
	return f
}

// Request decides a request of a bucket at an Envoy, and reports whether it is allowed. Times start
// at 0 and do not go backwards. Every request of a bucket must pass the same limit.
func (f *Fleet) Request(now division.Time, envoy int, key division.Bucket, limit *division.Limit) bool {
	f.advance(now)
	p := &f.envoys[envoy]
	i, found := p.index[key]
	if !found {
		i = len(p.buckets)
		p.index[key] = i
		p.buckets = append(p.buckets, bucket{key: key, limit: limit})
		p.buckets[i].Start(f.now)
		f.skipIdleReports()
		f.buckets++
	}
	b := &p.buckets[i]
	active := b.Active(f.now)
	allowed := b.Admit(f.now, 1, f.allowUnassigned) > 0
	if allowed && !active {
		f.unassignedAllowed++
	}
	if !found {
		f.report(envoy, b)
		f.divide()
	}
	return allowed
}

// UnassignedAllowed returns the number of requests allowed without an assignment: before the first
// answer about a bucket, or because a bound of the divider is reached.
func (f *Fleet) UnassignedAllowed() uint64 { return f.unassignedAllowed }

// Buckets returns the number of buckets of all Envoys.
func (f *Fleet) Buckets() int { return f.buckets }

// advance processes all events up to the time now.
func (f *Fleet) advance(now division.Time) {
	for {
		arrival, report := never, never
		if len(f.inTransit) > 0 {
			arrival = f.inTransit[0].at
		}
		if f.buckets > 0 {
			report = f.nextReportAt()
		}
		at := min(arrival, report, f.due)
		if at > now {
			break
		}
		f.now = max(f.now, at)
		if arrival <= f.now {
			f.deliver()
		} else if report <= f.now {
			f.reportAll()
		}
		f.divide()
	}
	f.now = max(f.now, now)
}

// nextReportAt returns the time of the next report.
func (f *Fleet) nextReportAt() division.Time {
	n := int64(len(f.envoys))
	return ReportInterval*division.Time(f.reports/n) + ReportInterval*division.Time(f.reports%n)/division.Time(n)
}

// skipIdleReports skips the reports that were due while there was no bucket.
func (f *Fleet) skipIdleReports() {
	if f.buckets > 0 {
		return
	}
	f.reports = int64(f.now/ReportInterval) * int64(len(f.envoys))
	for f.nextReportAt() <= f.now {
		f.reports++
	}
}

func (f *Fleet) reportAll() {
	envoy := int(f.reports % int64(len(f.envoys)))
	f.reports++
	for i := range f.envoys[envoy].buckets {
		f.report(envoy, &f.envoys[envoy].buckets[i])
	}
}

func (f *Fleet) report(envoy int, b *bucket) {
	r := b.TakeReport(f.now)
	r.Bucket, r.Limit = b.key, b.limit
	f.divider.Report(f.now, division.StreamID(envoy+1), r)
}

// divide runs the divider and puts its actions in transit.
func (f *Fleet) divide() {
	for f.due = f.now; f.due <= f.now; {
		f.due = f.divider.Tick(f.now)
	}
	f.due = max(f.due, f.now+time.Millisecond)
	f.ready = f.divider.AppendReady(f.ready[:0])
	for _, id := range f.ready {
		if actions, seq, _ := f.divider.TakeActions(f.now, id, nil, math.MaxInt); seq != 0 {
			f.inTransit = append(f.inTransit, message{f.now + deliveryDelay, int(id) - 1, seq, actions})
		}
	}
	if f.divider.Counts().Buckets == 0 {
		f.due = never
	}
}

// deliver delivers the first message to its Envoy.
func (f *Fleet) deliver() {
	m := f.inTransit[0]
	f.inTransit[0] = message{}
	if f.inTransit = f.inTransit[1:]; len(f.inTransit) == 0 {
		f.inTransit = nil
	}
	p := &f.envoys[m.envoy]
	for i := range m.actions {
		at, found := p.index[m.actions[i].Bucket]
		if !found {
			continue
		}
		if p.buckets[at].Apply(f.now, &m.actions[i]); !p.buckets[at].Known {
			p.remove(at)
			f.buckets--
		}
	}
	f.divider.Confirm(f.now, division.StreamID(m.envoy+1), m.seq)
}

// remove removes the bucket at index i. The last one moves to that index.
func (p *envoy) remove(i int) {
	last := len(p.buckets) - 1
	delete(p.index, p.buckets[i].key)
	if i != last {
		p.buckets[i] = p.buckets[last]
		p.index[p.buckets[i].key] = i
	}
	p.buckets[last] = bucket{}
	p.buckets = p.buckets[:last]
}
