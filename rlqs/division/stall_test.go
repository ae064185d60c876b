package division_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// stallSimulation simulates a service that stalls: it neither reads nor writes, while its kernel
// buffers the messages of Envoys. An Envoy whose keepalive is not answered closes its connection
// and opens another stream at its next report. After the stall the service reads the buffered
// messages of all connections in random order, and divides after each.
type stallSimulation struct {
	*simulation
	from, length time.Duration
	shared       bool // whether all Envoys have the same address
	lose         int  // number of Envoys that lose their connections
	deny         bool // whether expired_assignment_behavior is DENY_ALL
	random       *rand.Rand

	d      *division.Divider
	envoys []*stalledEnvoy
	links  map[division.StreamID]*stalledLink
	newest division.StreamID
	ready  []division.StreamID
}

type stalledEnvoy struct {
	simulatedEnvoy

	peer uint64
	link *stalledLink
}

// stalledLink is a connection with a stream.
type stalledLink struct {
	e      *stalledEnvoy
	stream division.StreamID
	up     []func(now division.Time) // messages that the service has not read
	ping   division.Time             // when the unanswered keepalive was sent, 0 if there is none
	gone   bool                      // whether the Envoy has closed it
}

const (
	keepaliveInterval = 10 * time.Second
	keepaliveTimeout  = 2 * time.Second
)

func (s *stallSimulation) isStalled(now division.Time) bool {
	return now >= s.from && now < s.from+s.length
}

func (s *stallSimulation) run(t *testing.T) result {
	t.Helper()
	s.d = division.New(0, division.Options{Fresh: true})
	s.links = map[division.StreamID]*stalledLink{}
	for i := range s.n {
		e := &stalledEnvoy{peer: uint64(i) + 1}
		if s.shared {
			e.peer = 1
		}
		s.envoys = append(s.envoys, e)
		s.connect(e)
	}
	r := result{rate: float64(s.limit.Hits)}
	for now := simStep; now < s.end; now += simStep {
		arrived, admitted, sum := 0.0, 0.0, int64(0)
		for i, e := range s.envoys {
			if e.got = 0; len(e.arriving) > 0 {
				e.apply(now)
				seq, stream := e.seq, e.link.stream
				e.send(func(now division.Time) { s.d.Confirm(now, stream, seq) })
			}
			hits := s.hits(s.demand(i, now))
			arrived += hits
			admitted += s.admit(now, e, hits)
			if e.Active(now) && e.Kind == division.Assign {
				sum += int64(e.Rate)
			}
			s.keepalive(i, now)
			if (now-s.phase(i))%(5*time.Second) == 0 && e.Known {
				if e.link == nil {
					s.connect(e)
				}
				s.report(e, now)
			}
		}
		if sum > int64(s.limit.Hits)*3600 {
			t.Fatalf("%v: %d tokens an hour are in effect, want at most %d", now, sum, s.limit.Hits*3600)
		}
		if !s.isStalled(now) {
			s.serve(now)
		}
		r.arrived, r.admitted = append(r.arrived, arrived), append(r.admitted, admitted)
	}
	return r
}

func (s *stallSimulation) connect(e *stalledEnvoy) {
	s.newest++
	l := &stalledLink{e: e, stream: s.newest}
	s.links[l.stream], e.link = l, l
	e.send(func(now division.Time) { s.d.OpenStream(now, l.stream, e.peer, e.peer) })
}

func (e *stalledEnvoy) send(f func(now division.Time)) {
	if e.link != nil {
		e.link.up = append(e.link.up, f)
	}
}

func (s *stallSimulation) keepalive(i int, now division.Time) {
	l := s.envoys[i].link
	if l == nil {
		return
	}
	phase := (s.from + time.Duration(i)*simStep) % keepaliveInterval
	if i >= s.lose {
		phase = (s.from + s.length + time.Duration(i)*simStep) % keepaliveInterval
	}
	if now%keepaliveInterval == phase {
		l.ping = now
		l.up = append(l.up, func(division.Time) { l.ping = 0 })
	}
	if l.ping > 0 && now-l.ping >= keepaliveTimeout {
		l.gone, l.e.link, l.e.arriving = true, nil, nil
		l.up = append(l.up, func(now division.Time) {
			s.d.CloseStream(now, l.stream)
			delete(s.links, l.stream)
		})
	}
}

// serve makes the service read all messages that have arrived.
func (s *stallSimulation) serve(now division.Time) {
	for {
		var pending []*stalledLink
		for stream := range s.newest {
			if l := s.links[stream+1]; l != nil && len(l.up) > 0 {
				pending = append(pending, l)
			}
		}
		if len(pending) > 0 {
			l := pending[s.random.IntN(len(pending))]
			l.up[0](now)
			l.up = l.up[1:]
		}
		s.d.Tick(now)
		s.ready = s.d.AppendReady(s.ready[:0])
		for _, stream := range s.ready {
			actions, seq, _ := s.d.TakeActions(now, stream, nil, 100)
			if l := s.links[stream]; l != nil && !l.gone && seq > 0 {
				l.e.arriving, l.e.seq = append(l.e.arriving, actions...), seq
			}
		}
		if len(pending) == 0 {
			return
		}
	}
}

func (s *stallSimulation) admit(now division.Time, e *stalledEnvoy, hits float64) float64 {
	if s.deny && e.Known && !e.Active(now) {
		e.count(hits, 0)
		return 0
	}
	return e.admit(now, hits, func() { s.report(e, now) })
}

func (s *stallSimulation) report(e *stalledEnvoy, now division.Time) {
	r := e.usage(now)
	r.Limit = &s.limit
	if e.link != nil {
		stream := e.link.stream
		e.send(func(now division.Time) { s.d.Report(now, stream, r) })
	}
}

// TestStalledService logs and checks the utilization of a limit around a stall of four seconds.
func TestStalledService(t *testing.T) {
	for _, tt := range []struct {
		name         string
		shared, deny bool
		minUsed      float64 // in the worst second
		maxAdmitted  float64 // in five seconds
	}{
		{"an address for each Envoy, ALLOW_ALL", false, false, 0.98, 1.02},
		{"an address for each Envoy, DENY_ALL", false, true, 0.98, 1.02},
		{"one address, ALLOW_ALL", true, false, 0.98, 1.25},
		{"one address, DENY_ALL", true, true, 0.45, 1.05},
	} {
		for _, lose := range []int{1, 2, 5} {
			const n = 5
			for _, load := range []float64{0.8, 1.5} {
				worst, used, five, second := 1.0, 1.0, 0.0, 0.0 // in the worst second, 20 s, five seconds and a second
				for order := range min(effort.Level(t), 10) {
					s := stallSimulation{
						simulation: &simulation{
							n: n, limit: division.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond},
							end: 100 * time.Second, phase: phases(n, order),
							demand: func(int, time.Duration) float64 { return 100 * load / n },
						},
						from: demandChange + time.Duration(order)*970*time.Millisecond, length: 4 * time.Second,
						shared: tt.shared, deny: tt.deny, lose: lose, random: rand.New(rand.NewPCG(uint64(order), 9)),
					}
					r := s.run(t)
					used, five = min(used, r.utilization(s.from, s.from+20*time.Second)), max(five, r.maxAdmitted(demandChange, 5*time.Second, 100))
					second = max(second, r.maxAdmitted(demandChange, time.Second, 100))
					for from := s.from; from < s.from+20*time.Second; from += time.Second {
						worst = min(worst, r.utilization(from, from+time.Second))
					}
				}
				figures := fmt.Sprintf("%s, %d of %d Envoys reconnect, demand %.1f R: used %.3f in 20 s, in the worst second %.3f; maximum in a second %.2f R, in 5 s %.2f R",
					tt.name, lose, n, load, used, worst, second, five)
				t.Log(figures)
				if worst < tt.minUsed || five > tt.maxAdmitted {
					t.Error(figures)
				}
			}
		}
	}
}
