package filter

import (
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

const (
	// ReportEvery is how often an Envoy reports all of its buckets.
	ReportEvery = 5 * time.Second
	// delay is how long a message takes to an Envoy and to be in force.
	delay = time.Millisecond
	never = quota.Time(math.MaxInt64)
)

// Fleet is Envoys with the filter and the divider that they report to, in simulated time. Reports arrive at once, and
// what an Envoy is told is in force a millisecond later, which the divider then knows. The times at which Envoys report
// are spread evenly over the five seconds. One goroutine uses a Fleet.
type Fleet struct {
	divider *quota.Divider
	envoys  []proxy
	// unassigned is what becomes of requests where nothing acts.
	unassigned bool
	now, due   quota.Time
	// ticks counts the times at which an Envoy has reported: they take turns.
	ticks   int64
	mail    []message // in the order in which it arrives
	ready   []quota.Holder
	known   int
	without uint64
}

// proxy is an Envoy. Its buckets are a list, so that they are reported in the same order each time.
type proxy struct {
	buckets []bucket
	places  map[quota.Bucket]int
}

type bucket struct {
	Bucket

	key   quota.Bucket
	limit *quota.Limit
}

type message struct {
	at      quota.Time
	to      int
	seq     uint64
	actions []quota.Action
}

// NewFleet returns n Envoys and a divider with nothing to fear of a predecessor. Unassigned says whether requests pass
// where nothing acts: ALLOW_ALL in no_assignment_behavior.
func NewFleet(n int, unassigned bool) *Fleet {
	f := &Fleet{divider: quota.New(0, quota.Options{Fresh: true, MaxLate: -1}), envoys: make([]proxy, n), unassigned: unassigned, due: never}
	for i := range f.envoys {
		f.envoys[i].places = map[quota.Bucket]int{}
		f.divider.Opened(0, quota.Holder(i+1), 0, 0)
	}
	return f
}

// Request decides a request of a bucket at an Envoy, and reports whether it passes. Times do not go backwards, and begin
// with 0. The limit is that of the bucket each time.
func (f *Fleet) Request(now quota.Time, envoy int, key quota.Bucket, limit *quota.Limit) bool {
	f.advance(now)
	p := &f.envoys[envoy]
	place, found := p.places[key]
	if !found {
		place = len(p.buckets)
		p.places[key] = place
		p.buckets = append(p.buckets, bucket{key: key, limit: limit})
		p.buckets[place].Begin(f.now)
		f.skip()
		f.known++
	}
	b := &p.buckets[place]
	acts := b.Active(f.now)
	passes := b.Admit(f.now, 1, f.unassigned) > 0
	if passes && !acts {
		f.without++
	}
	if !found {
		f.report(envoy, b)
		f.divide()
	}
	return passes
}

// Without counts the requests that passed while nothing acted: before the first answer about a bucket, or because the
// divider has no room for it.
func (f *Fleet) Without() uint64 { return f.without }

// Known counts the buckets of all Envoys. Each takes about 350 bytes, with what the divider keeps of it.
func (f *Fleet) Known() int { return f.known }

// advance does what is due up to a time.
func (f *Fleet) advance(now quota.Time) {
	for {
		arrives, reports := never, never
		if len(f.mail) > 0 {
			arrives = f.mail[0].at
		}
		if f.known > 0 {
			reports = f.reportsAt()
		}
		at := min(arrives, reports, f.due)
		if at > now {
			break
		}
		f.now = max(f.now, at)
		if arrives <= f.now {
			f.deliver()
		} else if reports <= f.now {
			f.reportAll()
		}
		f.divide()
	}
	f.now = max(f.now, now)
}

// reportsAt is when the next Envoy reports.
func (f *Fleet) reportsAt() quota.Time {
	n := int64(len(f.envoys))
	return ReportEvery*quota.Time(f.ticks/n) + ReportEvery*quota.Time(f.ticks%n)/quota.Time(n)
}

// skip passes over the reports of Envoys that had nothing to report.
func (f *Fleet) skip() {
	if f.known > 0 {
		return
	}
	f.ticks = int64(f.now/ReportEvery) * int64(len(f.envoys))
	for f.reportsAt() <= f.now {
		f.ticks++
	}
}

func (f *Fleet) reportAll() {
	envoy := int(f.ticks % int64(len(f.envoys)))
	f.ticks++
	for i := range f.envoys[envoy].buckets {
		f.report(envoy, &f.envoys[envoy].buckets[i])
	}
}

func (f *Fleet) report(envoy int, b *bucket) {
	r := b.Usage(f.now)
	r.Bucket, r.Limit = b.key, b.limit
	f.divider.Report(f.now, quota.Holder(envoy+1), r)
}

// divide has the divider do what events have led to, and puts what it says on its way.
func (f *Fleet) divide() {
	for f.due = f.now; f.due <= f.now; {
		f.due = f.divider.Tick(f.now)
	}
	f.due = max(f.due, f.now+time.Millisecond)
	f.ready = f.divider.Ready(f.ready[:0])
	for _, h := range f.ready {
		if actions, seq, _ := f.divider.Take(f.now, h, nil, math.MaxInt); seq != 0 {
			f.mail = append(f.mail, message{f.now + delay, int(h) - 1, seq, actions})
		}
	}
	if f.divider.Counts().Buckets == 0 {
		f.due = never
	}
}

// deliver brings the first message to its Envoy.
func (f *Fleet) deliver() {
	m := f.mail[0]
	f.mail[0] = message{}
	if f.mail = f.mail[1:]; len(f.mail) == 0 {
		f.mail = nil
	}
	p := &f.envoys[m.to]
	for i := range m.actions {
		place, found := p.places[m.actions[i].Bucket]
		if !found {
			continue
		}
		if p.buckets[place].Tell(f.now, &m.actions[i]); !p.buckets[place].Known {
			p.forget(place)
			f.known--
		}
	}
	f.divider.Confirmed(f.now, quota.Holder(m.to+1), m.seq)
}

// forget drops a bucket. The last one takes its place.
func (p *proxy) forget(place int) {
	last := len(p.buckets) - 1
	delete(p.places, p.buckets[place].key)
	if place != last {
		p.buckets[place] = p.buckets[last]
		p.places[p.buckets[place].key] = place
	}
	p.buckets[last] = bucket{}
	p.buckets = p.buckets[:last]
}
