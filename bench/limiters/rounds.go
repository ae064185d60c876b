package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// figures are what the rounds of one measure found about one contender, one value
// for each round.
type figures struct {
	nanos, allocs, admitted []float64
}

// results hold all figures by measure and contender.
type results struct {
	by map[string]map[string]*figures
	// share is the share of a core that the threads of each slice had.
	share []float64
}

func (r *results) of(measure, contender string) *figures {
	if r.by == nil {
		r.by = map[string]map[string]*figures{}
	}
	if r.by[measure] == nil {
		r.by[measure] = map[string]*figures{}
	}
	f := r.by[measure][contender]
	if f == nil {
		f = &figures{}
		r.by[measure][contender] = f
	}
	return f
}

func (r *results) add(measure, contender string, u use) {
	f := r.of(measure, contender)
	f.nanos = append(f.nanos, u.nanos())
	f.allocs = append(f.allocs, u.allocs())
	f.admitted = append(f.admitted, u.admittedShare())
	r.share = append(r.share, u.share())
}

// ratio compares the times of two measures round by round. It reports false if
// one was not measured.
func (r *results) ratio(measure, of, toMeasure, to string) (report.Spread, bool) {
	a, b := r.of(measure, of).nanos, r.of(toMeasure, to).nanos
	n := min(len(a), len(b))
	if n == 0 {
		return report.Spread{}, false
	}
	return report.Over(n, func(i int) float64 { return a[i] / b[i] }), true
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return report.Over(len(values), func(i int) float64 { return values[i] }).Median
}

// A keyedCase is traffic on counters that are told apart by keys, identity and
// clock included.
type keyedCase struct {
	name, title string
	threads     int
	zipf        bool
}

// keyedCases are in groups that share their counters.
func keyedCases(o *options) []struct {
	setting setting
	cases   []keyedCase
} {
	return []struct {
		setting setting
		cases   []keyedCase
	}{
		{setting{1, admitting}, []keyedCase{{name: "hot", title: "one hot", threads: 2}}},
		{setting{1000, admitting}, []keyedCase{{name: "thousand", title: "1,000", threads: 2}}},
		{setting{o.counters, admitting}, []keyedCase{
			{name: "uniform", title: count(o.counters) + " uniform", threads: 2},
			{name: "zipf", title: count(o.counters) + " Zipf", threads: 2, zipf: true},
		}},
		{setting{1, denying}, []keyedCase{
			{name: "denied1", title: "denied, 1 thread", threads: 1},
			{name: "denied2", title: "denied, 2 threads", threads: 2},
		}},
	}
}

// measureKeyed measures all contenders in all keyed cases.
func (m *run) measureKeyed(ctx context.Context) error {
	for _, group := range keyedCases(m.o) {
		if err := m.keyedGroup(ctx, group.setting, group.cases); err != nil {
			return err
		}
	}
	return nil
}

// keyedGroup measures the cases on one set of counters.
func (m *run) keyedGroup(ctx context.Context, s setting, cases []keyedCase) (err error) {
	var (
		lanes  []lane
		opened = map[*contender]*store{}
	)
	defer func() {
		for _, st := range opened {
			if st.close != nil && err == nil {
				err = st.close()
			}
		}
	}()
	numbers := map[bool][]uint32{}
	for _, k := range cases {
		numbers[k.zipf] = sequence(s.counters, k.zipf)
	}
	for _, c := range m.contenders {
		if s.purpose == denying && c.neverDenies {
			continue
		}
		m.progress("making %s counters of %s", count(s.counters), c.name)
		st, err := c.open(s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		opened[c] = st
		c.fill(st, s.counters)
		for _, k := range cases {
			l := lane{measure: k.name, contender: c.name}
			for thread := range k.threads {
				l.batches = append(l.batches, keyed(st.worker(), numbers[k.zipf], thread))
			}
			lanes = append(lanes, l)
		}
	}
	if err := m.rounds(ctx, lanes); err != nil {
		return err
	}
	for c, st := range opened {
		if st.evicted != nil && st.evicted() > 0 {
			m.note("%s evicted %d of %s counters for want of room.", c.name, st.evicted(), count(s.counters))
		}
	}
	return nil
}

// A lane is one contender in one case.
type lane struct {
	measure, contender string
	batches            []batch // one for each thread
}

// rounds measures the lanes in turn, again and again.
func (m *run) rounds(ctx context.Context, lanes []lane) error {
	for round := range m.o.rounds {
		m.progress("%s to %s: round %d of %d", lanes[0].measure, lanes[len(lanes)-1].measure, round+1, m.o.rounds)
		for _, l := range lanes {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := measure(l.batches, m.o.slice/3, 0); err != nil { // warms the caches
				return err
			}
			u, err := measure(l.batches, m.o.slice, 0)
			if err != nil {
				return err
			}
			m.results.add(l.measure, l.contender, u)
		}
	}
	return nil
}

// measureNew measures the first hit of counters, none of which existed.
func (m *run) measureNew(ctx context.Context) error {
	for round := range m.o.rounds {
		m.progress("new counters: round %d of %d", round+1, m.o.rounds)
		for _, c := range m.contenders {
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := c.open(setting{m.o.fresh, lasting})
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			u, err := measure([]batch{fresh(s.worker(), c.keepsKeys)}, 0, m.o.fresh)
			if err != nil {
				return err
			}
			m.results.add("new", c.name, u)
			if s.close != nil {
				if err := s.close(); err != nil {
					return err
				}
			}
			debug.FreeOSMemory() // so that all begin with memory that must be fetched
		}
	}
	return nil
}
