package division_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
)

// storm is a client that opens a stream, reports and closes the stream again and again, while Envoys
// of other clients have less demand than their share of a limit of 1,000 per second.
type storm struct {
	gap    time.Duration   // between two streams
	report division.Report // of each stream
	// late is the number of streams of which one is closed only after the next one has reported, 0
	// if none is.
	late int
	// confirms is true if it confirms messages, peer if it has its own address.
	confirms, peer bool
	// demands are those of the Envoys, per second, and risen those from stormRise on.
	demands, risen []float64
}

// randomStorm returns a storm. The first one was observed with real Envoys.
func randomStorm(seed uint64) storm {
	if seed == 0 {
		return storm{
			gap: 2 * time.Millisecond, report: division.Report{Allowed: 100, Denied: 100, Elapsed: time.Second},
			late: 50, confirms: true, peer: true, demands: []float64{40}, risen: []float64{40},
		}
	}
	r := rand.New(rand.NewPCG(seed, 4))
	s := storm{
		gap:      time.Duration(1+r.IntN(4)) * time.Millisecond,
		late:     []int{0, 1, 50}[r.IntN(3)],
		confirms: r.IntN(2) == 0,
		peer:     r.IntN(2) == 0,
		report: []division.Report{
			{Allowed: 100, Denied: 100, Elapsed: time.Second},
			{Allowed: 100, Denied: 100},
			{Allowed: 1e6, Denied: 1e6, Elapsed: time.Second},
			{Denied: 1e6, Elapsed: time.Second},
			{Allowed: 1e6, Elapsed: 5 * time.Second},
			{Denied: 1},
			{},
		}[r.IntN(7)],
	}
	n := 1 + r.IntN(3)
	for range n {
		demand := 5 + 150*r.Float64()
		s.demands, s.risen = append(s.demands, demand), append(s.risen, demand)
	}
	if r.IntN(2) == 0 {
		s.risen[0] = 800 / float64(n+1)
	}
	return s
}

// stormyEnvoy is an Envoy during a storm. It denies requests without an assignment.
type stormyEnvoy struct {
	filter.Bucket

	next                       time.Duration // time of the next request
	admitted, denied, messages int
}

// stormStep is the step of the simulation, and the time that a message and its confirmation take.
const stormStep = 250 * time.Microsecond

// A storm lasts from stormStart until stormEnd. Requests count from stormStart until stormRise, and
// from stormRisen on: lost rates have expired when a report has shown the new demand.
const (
	stormStart = 15 * time.Second
	stormRise  = 35 * time.Second
	stormRisen = stormRise + 20*time.Second
	stormEnd   = stormRisen + 5*time.Second
)

// stormWorld is the state of a simulation. Envoys have the streams and clients 1 to n.
type stormWorld struct {
	*division.Divider
	storm

	random        *rand.Rand
	now, due      time.Duration
	envoys        []*stormyEnvoy
	later         [2][]func() // by the number of steps after which they are called, minus 1
	newest        division.StreamID
	opened        int      // streams opened by the storm
	divisions     []uint64 // at the steps of the last second
	mostDivisions uint64   // in a second
}

func (w *stormWorld) send(id division.StreamID, r division.Report) {
	r.Bucket, r.ID = bucketOf(0), []byte("x")
	r.Limit = &division.Limit{Hits: 1000, Window: time.Second, Burst: 100 * time.Millisecond}
	w.Report(w.now, id, r)
	w.due = w.now
}

// request makes the requests of an Envoy that are due, at random times. They are even if the storm
// claims all that the Envoys do not need: its bucket then has few tokens for random ones.
func (w *stormWorld) request(i int) {
	e, demand := w.envoys[i], w.demands[i]
	if w.now >= stormRise {
		demand = w.risen[i]
	}
	for e.next <= w.now {
		isFirst := !e.Known
		if isFirst {
			e.Start(w.now)
		}
		n := int(e.Admit(w.now, 1, false))
		e.admitted += n
		e.denied += 1 - n
		if isFirst {
			w.send(division.StreamID(i)+1, e.TakeReport(w.now))
		}
		gap := w.random.ExpFloat64()
		if w.report.Allowed+w.report.Denied > 1000 {
			gap = 0.9 + 0.2*w.random.Float64()
		}
		e.next += time.Duration(gap / demand * float64(time.Second))
	}
}

// replaceStream replaces the stream of the storm.
func (w *stormWorld) replaceStream() {
	old, peer, isLate := w.newest, uint64(0), w.late > 0 && w.opened%w.late == 0
	if w.opened == 0 {
		old = 0
	}
	w.opened++
	if w.peer {
		peer = 9
	}
	if !isLate {
		w.CloseStream(w.now, old)
	}
	w.newest++
	w.OpenStream(w.now, w.newest, peer, 9)
	w.send(w.newest, w.report)
	if isLate {
		w.Tick(w.now)
		w.CloseStream(w.now, old)
	}
}

// deliver takes the actions of all streams.
func (w *stormWorld) deliver() {
	for _, id := range w.AppendReady(nil) {
		actions, seq, _ := w.TakeActions(w.now, id, nil, 100)
		confirm := func() {
			w.Confirm(w.now, id, seq)
			w.due = w.now
		}
		switch {
		case seq == 0:
		case int(id) > len(w.envoys):
			if w.confirms {
				w.later[1] = append(w.later[1], confirm)
			}
		default:
			w.later[0] = append(w.later[0], func() {
				e := w.envoys[id-1]
				e.messages++
				for i := range actions {
					e.Apply(w.now, &actions[i])
				}
				w.later[0] = append(w.later[0], confirm)
			})
		}
	}
}

func (w *stormWorld) step() {
	w.now += stormStep
	events := w.later[0]
	w.later[0], w.later[1] = w.later[1], nil
	for _, f := range events {
		f()
	}
	for i, e := range w.envoys {
		w.request(i)
		if e.Known && (w.now-time.Duration(i)*700*time.Millisecond)%(5*time.Second) == 0 {
			w.send(division.StreamID(i)+1, e.TakeReport(w.now))
		}
	}
	if w.now >= stormStart && w.now%w.gap == 0 {
		w.replaceStream()
	}
	for w.due <= w.now {
		w.due = w.Tick(w.now)
	}
	w.deliver()
	w.divisions = append(w.divisions, w.Counts().Divisions)
	if n := len(w.divisions) - 1; n == int(time.Second/stormStep) {
		w.mostDivisions = max(w.mostDivisions, w.divisions[n]-w.divisions[0])
		w.divisions = w.divisions[1:]
	}
}

// check checks and resets the counts of the Envoys after the given time.
func (w *stormWorld) check(t *testing.T, after time.Duration) {
	t.Helper()
	for i, e := range w.envoys {
		if all := e.admitted + e.denied; e.denied > max(3, all/50) { // random requests may exceed the bucket
			t.Errorf("%+v: until %v, Envoy %d denies %d of %d requests", w.storm, w.now, i, e.denied, all)
		}
		if e.messages > int(2*after/time.Second) {
			t.Errorf("%+v: until %v, Envoy %d receives %d messages", w.storm, w.now, i, e.messages)
		}
		e.admitted, e.denied, e.messages = 0, 0, 0
	}
}

// TestStorms checks that Envoys below their share admit 98 % of random requests, that their rates
// change rarely, and that the bucket is divided at most ten times a second.
func TestStorms(t *testing.T) {
	for seed := range uint64(effort.Times(t, 6)) {
		s := randomStorm(seed)
		w := &stormWorld{
			Divider: division.NewWith(0, division.Options{Fresh: true}), storm: s, random: rand.New(rand.NewPCG(seed, 5)),
		}
		for i := range s.demands {
			w.newest++
			w.envoys = append(w.envoys, &stormyEnvoy{next: time.Duration(i) * time.Second})
			w.OpenStream(0, w.newest, uint64(i)+1, uint64(i)+1)
		}
		for w.now < stormEnd {
			w.step()
			if rate := w.TakenRate(bucketOf(0)); rate > int64(perHour(1000)) {
				t.Fatalf("%+v: at %v rates of %d are in effect", s, w.now, rate)
			}
			switch w.now {
			case stormStart, stormRisen:
				for _, e := range w.envoys {
					e.admitted, e.denied, e.messages = 0, 0, 0
				}
			case stormRise:
				w.check(t, stormRise-stormStart)
			default:
			}
		}
		w.check(t, stormEnd-stormRisen)
		if w.mostDivisions > 10 {
			t.Errorf("%+v: %d divisions in a second", s, w.mostDivisions)
		}
	}
}

// TestSmallRaises has a second Envoy's demand fall. The first one, which denies nothing, gets a
// higher rate only if it is a tenth higher.
func TestSmallRaises(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	rate := map[division.StreamID]int64{}
	round := func(first, second uint64) {
		for stream, perSecond := range map[division.StreamID]uint64{1: first, 2: second} {
			r.report(stream, 0, hundred, 5*perSecond, 0, 5*time.Second)
		}
		for range 3 {
			for stream := range division.StreamID(2) {
				if got := r.takeRate(stream + 1); got >= 0 {
					rate[stream+1] = got
				}
			}
			r.advance(time.Second)
		}
		r.advance(2 * time.Second)
	}
	for range 5 {
		round(30, 60)
	}
	before := rate[1]
	for range 5 {
		round(30, 56)
	}
	if rate[1] != before {
		t.Errorf("after a small change the rate is %d, want still %d", rate[1], before)
	}
	for range 5 {
		round(30, 10)
	}
	if rate[1] < before*11/10 {
		t.Errorf("after a large change the rate is %d, want at least a tenth more than %d", rate[1], before)
	}
}

// TestDeniedEnvoyIsNotRepeated has an Envoy without a share, because another one does not confirm a
// lower rate, and streams that come and go. It gets DENY_ALL once.
func TestDeniedEnvoyIsNotRepeated(t *testing.T) {
	r := newRig(division.Options{Fresh: true})
	r.reportFirst(1, 0, hundred)
	r.takeAndConfirm(1)
	r.reportFirst(2, 0, hundred)
	r.advance(2 * time.Second)
	r.report(2, 0, hundred, 0, 500, 2*time.Second)
	if a := r.takeAndConfirm(2); len(a) != 1 || a[0].Kind != division.AssignDenyAll {
		t.Fatalf("the Envoy without a share gets %+v, want DENY_ALL", a)
	}
	for stream := division.StreamID(3); stream < 9; stream++ {
		r.reportFirst(stream, 0, hundred)
		r.CloseStream(r.now, stream)
		r.advance(300 * time.Millisecond)
		if a := r.takeAndConfirm(2); len(a) > 0 {
			t.Errorf("when stream %d has closed, the Envoy gets %+v again", stream, a)
		}
	}
}
