package division_test

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
)

// world is a divider, Envoys, and streams between them with arbitrary delays. Package filter models
// how Envoys apply actions. A chooser selects the events.
type world struct {
	worldOptions
	now    division.Time
	d      *division.Divider
	envoys []*envoy
	links  []*link // links that have not ended at both ends
	limits []*division.Limit
	// maxRates contains the rate that may be in effect for each bucket: its limit or, after the
	// limit was lowered, the rate of the ledger.
	maxRates          []int64
	predecessorExpiry division.Time // when all assignments of the divider's predecessor have expired
	last              division.StreamID
	log               []string
}

type worldOptions struct {
	envoys, buckets        int
	peers, restarts, allow bool
	limitChanges           bool
	silent                 int // number of Envoys that never read
	clients                int // number of clients to which the Envoys belong; 0: each Envoy is a client of its own
	o                      division.Options
	verbose                bool
}

// chooser returns a number below n.
type chooser func(n int) int

// envoy is an Envoy with its state of each bucket.
type envoy struct {
	peer    uint64
	client  uint64
	silent  bool
	buckets []filter.Bucket
	link    *link
}

// link is a stream between an Envoy and the server. Either side may notice the end of the stream
// before the other.
type link struct {
	stream            division.StreamID
	e                 *envoy
	down              []message
	up                []func()
	atServer, atEnvoy bool
	gone              division.Time // time at which the stream ends at the Envoy, once it has ended at the server
}

type message struct {
	actions []division.Action
	seq     uint64
}

func bucketOf(i int) division.Bucket { return division.Bucket{uint64(i) + 1, 7} }

func newWorld(o worldOptions) *world {
	w := &world{worldOptions: o, now: time.Second}
	o.o.Fresh = true
	w.d = division.NewWith(w.now, o.o)
	for i := range o.envoys {
		e := &envoy{buckets: make([]filter.Bucket, o.buckets)}
		if o.peers {
			e.peer = uint64(i) + 1
		}
		if e.silent = i < o.silent; o.clients > 0 {
			e.client = uint64(i%o.clients) + 1
		}
		w.envoys = append(w.envoys, e)
	}
	for range o.buckets {
		w.limits = append(w.limits, limitOf(0))
		w.maxRates = append(w.maxRates, int64(w.limits[0].Hits)*3600)
	}
	return w
}

// limitOf returns one of several limits; the first one is 100 per second.
func limitOf(i int) *division.Limit {
	return []*division.Limit{
		{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond},
		{Hits: 20, Window: time.Second, Burst: 100 * time.Millisecond},
		{Hits: 500, Window: time.Second, Burst: 100 * time.Millisecond},
		{Strategy: division.DenyAll},
		{Strategy: division.AllowAll},
		nil,
	}[i]
}

func rateOf(l *division.Limit) int64 {
	switch {
	case l == nil || l.Strategy == division.DenyAll:
		return 0
	case l.Strategy == division.AllowAll:
		return math.MaxInt64
	}
	return int64(l.Hits) * int64(division.Fill/l.Window)
}

func (w *world) logf(format string, args ...any) {
	if w.verbose {
		w.log = append(w.log, fmt.Sprintf("%v ", w.now)+fmt.Sprintf(format, args...))
	}
}

// step makes one event happen that the chooser selects.
func (w *world) step(choose chooser) {
	e := w.envoys[choose(len(w.envoys))]
	var l *link
	if len(w.links) > 0 {
		l = w.links[choose(len(w.links))]
	}
	switch n := choose(40); {
	case n < 6:
		w.request(e, choose(w.buckets), []int{1, 4, 60, 1000}[choose(4)])
	case n < 10:
		w.report(e)
	case n < 13 && e.link == nil:
		w.connect(e)
	case n < 19 && l != nil && len(l.down) > 0 && l.atEnvoy:
		w.deliver(l)
	case n < 25 && l != nil && len(l.up) > 0 && l.atServer:
		l.up[0]()
		l.up = l.up[1:]
		w.d.Tick(w.now)
	case n < 32 && l != nil && l.atServer:
		w.takeActions(l, []int{1, 100}[choose(2)])
	case n < 36:
		short, medium, ttl := time.Millisecond, 300*time.Millisecond, division.TTL
		w.advance([]time.Duration{
			short, short, short, short, short, medium, medium, medium, medium, time.Second, time.Second, 5 * time.Second, 5 * time.Second,
			ttl - 100*time.Millisecond, ttl, ttl + division.ExpiryMargin + 1,
		}[choose(16)])
	case n == 36 && l != nil && l.atEnvoy && choose(3) == 0:
		l.atEnvoy, l.down = false, nil // messages in transit to the server may still arrive
		l.e.link = nil
		w.logf("envoy lost %d", l.stream)
	case n == 37 && l != nil && l.atServer && choose(3) == 0:
		w.close(l)
	case n == 38 && w.limitChanges:
		w.changeLimit(choose(w.buckets), choose(6))
	case n == 39 && w.restarts:
		w.restart(choose(4) == 0, e)
	}
	w.removeEnded()
}

func (w *world) connect(e *envoy) {
	w.last++
	l := &link{stream: w.last, e: e, atServer: true, atEnvoy: true}
	e.link = l
	w.links = append(w.links, l)
	w.d.OpenStream(w.now, l.stream, e.peer, e.client)
	w.logf("envoy %p connects as %d", e, l.stream)
}

func (w *world) request(e *envoy, i, n int) {
	b := &e.buckets[i]
	if !b.Known {
		b.Start(w.now)
		b.Admit(w.now, 1, w.allow)
		w.usage(e, i)
		n--
	}
	b.Admit(w.now, uint64(n), w.allow)
	w.logf("envoy %p has %d requests of %d", e, n, i)
}

// report makes an Envoy report all buckets.
func (w *world) report(e *envoy) {
	for i := range e.buckets {
		if e.buckets[i].Known {
			w.usage(e, i)
		}
	}
}

// usage sends a report of one bucket. Without a stream, the counts are sent with a later report.
func (w *world) usage(e *envoy, i int) {
	l, b := e.link, &e.buckets[i]
	if l == nil {
		return
	}
	r := b.TakeReport(w.now)
	r.Bucket, r.ID = bucketOf(i), []byte{byte(i)}
	w.logf("%d sends %+v", l.stream, r)
	l.up = append(l.up, func() {
		r.Limit = w.limits[i]
		w.logf("report of %d: %+v", l.stream, r)
		w.d.Report(w.now, l.stream, r)
	})
}

// takeActions takes up to maxActions actions of a stream and puts them in transit to its Envoy.
func (w *world) takeActions(l *link, maxActions int) {
	if l.e.silent {
		return
	}
	actions, seq, _ := w.d.TakeActions(w.now, l.stream, nil, maxActions)
	if seq == 0 {
		return
	}
	w.logf("%d takes %+v", l.stream, actions)
	l.down = append(l.down, message{actions, seq})
}

// deliver delivers the next message to an Envoy.
func (w *world) deliver(l *link) {
	m := l.down[0]
	l.down = l.down[1:]
	w.logf("%d gets %d: %+v", l.stream, m.seq, m.actions)
	for _, a := range m.actions {
		l.e.buckets[a.ID[0]].Apply(w.now, &a)
	}
	if l.atServer {
		l.up = append(l.up, func() {
			w.logf("%d confirms %d", l.stream, m.seq)
			w.d.Confirm(w.now, l.stream, m.seq)
		})
	}
}

func (w *world) advance(dt time.Duration) {
	w.now += dt
	w.removeEnded()
	w.logf("time")
	w.d.Tick(w.now)
}

// close ends a stream at the server. Messages in transit may still arrive for a while.
func (w *world) close(l *link) {
	w.logf("server lost %d", l.stream)
	l.atServer, l.up, l.gone = false, nil, w.now+division.ExpiryMargin
	w.d.CloseStream(w.now, l.stream)
	w.d.Tick(w.now)
}

func (w *world) changeLimit(i, to int) {
	limit := limitOf(to)
	w.logf("limit of %d: %+v", i, limit)
	w.limits[i] = limit
	w.maxRates[i] = w.d.TakenRate(bucketOf(i))
	w.d.SetLimit(w.now, bucketOf(i), limit)
}

// restart restarts the service, which loses its state, or an Envoy. The service is not restarted
// while the rates in effect exceed a lowered limit, since its successor cannot know about that.
func (w *world) restart(service bool, e *envoy) {
	if !service {
		if e.link != nil {
			e.link.atEnvoy, e.link.down = false, nil
		}
		e.link, e.buckets = nil, make([]filter.Bucket, w.buckets)
		w.logf("envoy %p restarts", e)
		return
	}
	for i, limit := range w.limits {
		if now, _ := w.d.AssignedRate(bucketOf(i)); now > rateOf(limit) || limit == nil || limit.Strategy != division.Divide {
			return
		}
	}
	if w.now < w.predecessorExpiry {
		return // assignments of three dividers could be in effect
	}
	w.logf("service restarts")
	for _, l := range w.links {
		if l.atServer {
			l.atServer, l.up, l.gone = false, nil, w.now+division.ExpiryMargin
		}
	}
	w.d = division.NewWith(w.now, w.o)
	w.predecessorExpiry = w.now + division.TTL + division.ExpiryMargin
}

// removeEnded ends links at the Envoy once their time has come, and removes links that have ended
// at both ends.
func (w *world) removeEnded() {
	kept := w.links[:0]
	for _, l := range w.links {
		if !l.atServer && l.atEnvoy && w.now > l.gone {
			l.atEnvoy, l.down = false, nil
			l.e.link = nil
		}
		if l.atServer || l.atEnvoy {
			kept = append(kept, l)
		}
	}
	w.links = kept
}

// rateInEffect returns the rate that is actually in effect for a bucket.
func (w *world) rateInEffect(i int) int64 {
	sum := int64(0)
	for _, e := range w.envoys {
		b := &e.buckets[i]
		switch {
		case !b.Known || !b.Active(w.now):
		case b.Kind == division.AssignAllowAll:
			sum += math.MaxUint32
		case b.Kind == division.Assign:
			sum += int64(b.Rate)
		}
	}
	return sum
}

// check returns a description of a violated invariant, "" if there is none. The invariants: the
// ledger contains all rates in effect. It exceeds the limit only after the limit was lowered, and
// does not grow while it does.
func (w *world) check() string {
	for i, limit := range w.limits {
		actual := w.rateInEffect(i)
		ledger, _ := w.d.AssignedRate(bucketOf(i))
		rate := rateOf(limit)
		switch {
		case w.now < w.predecessorExpiry:
			if actual > 2*rate {
				return fmt.Sprintf("bucket %d after a restart: %d is in effect of %d", i, actual, rate)
			}
			continue
		case actual > ledger:
			return fmt.Sprintf("bucket %d: %d is in effect, but the ledger has %d", i, actual, ledger)
		case limit != nil && ledger > max(rate, w.maxRates[i]):
			return fmt.Sprintf("bucket %d: the ledger has %d of %d", i, ledger, rate)
		}
		w.maxRates[i] = max(rate, ledger)
	}
	return w.d.CheckInvariants()
}
