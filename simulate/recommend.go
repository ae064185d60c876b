package simulate

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// recommend finds the smallest number of each limit with which no more than a share of its
// hits find no room. Each limit is looked at alone, as if the others had room for all.
//
// What keys asked for in windows says about which number it is, and of fixed windows, of
// requests of one hit each, exactly. That is not enough for other algorithms. So numbers are
// tried: the logs are read again, and each charge is decided once for each of several
// numbers, by the code that serves, until the number is found that has room while the one
// below has none. So what is said of it is what a run with it found.
func (r *run) recommend(ctx context.Context, rd *readPlan, out *report.Report) error {
	t := &trials{run: r, set: r.options.Rules, searches: make([]*search, len(r.rules.tally.limits))}
	for _, i := range r.rules.tally.active {
		t.searches[i] = newSearch(&r.rules.tally.limits[i], r.options.Recommend)
	}
	for {
		open, err := t.startPass()
		if err != nil {
			return err
		}
		if !open {
			break
		}
		r.pass++
		if err := r.readLogs(ctx, rd, nil, t.request); err != nil {
			return err
		}
		if err := checkEvicted(t.tables); err != nil {
			return err
		}
		for _, s := range t.searches {
			s.update()
		}
	}
	out.Recommend = r.options.Recommend
	for n, i := range r.rules.tally.active { // sorted, as the report's limits are
		out.Rules.Limits[n].Recommended = t.searches[i].recommendation()
	}
	return nil
}

// trials are one reading of the logs, in which limits are tried with several numbers.
type trials struct {
	run        *run
	set        *descriptors.Set
	searches   []*search // parallel to the tally's limits; nil for those without hits
	tables     []*limiter.Table
	plan       descriptors.Plan
	batch      limiter.Batch
	req        descriptors.Request
	roundRobin int
}

// startPass makes ready for another reading. It reports false if nothing is left to be tried.
func (t *trials) startPass() (open bool, err error) {
	for _, s := range t.searches {
		if s != nil && s.reason == "" && s.passes.number != s.fails+1 {
			s.chooseTrials()
			open = true
		}
	}
	if !open {
		return false, nil
	}
	t.roundRobin = 0
	t.tables, err = newTables(t.run.options, 1)
	return true, err
}

// request tries the limits that a request is charged to.
func (t *trials) request(w queuedRequest) {
	var rec record
	rec.read(w.batch.arena[w.offset:])
	replica := t.run.options.target(&rec, &t.roundRobin)
	for range rec.calls {
		rec.nextCall(&t.req)
		t.set.Plan(&t.plan, &t.req, descriptors.Global{})
		for i := range t.plan.Batch.Charges {
			index := t.plan.Limits[i].Index
			if index < 0 || t.plan.Limits[i] != t.set.Limits[index] {
				continue // a number of the request's, or of a row
			}
			s, c := t.searches[index], &t.plan.Batch.Charges[i]
			if s == nil || len(s.trials) == 0 {
				continue
			}
			if !c.Refund {
				addTo(c.Hits, &s.hits)
			}
			if !t.neverOver(s, c, replica) {
				t.charge(limiter.Time(w.at), s, c, replica)
			}
		}
	}
}

// neverOver reports whether the key of a charge never asked for enough to find no room at any
// of the numbers that are tried. Nearly all keys are such, and need no counters. Whatever
// the algorithm counts together lies in three windows at most.
func (t *trials) neverOver(s *search, c *limiter.Charge, replica int) bool {
	if t.run.multiCall || s.ownBurst {
		return false // more may be asked than was, or more at once is denied
	}
	k, _ := t.run.rules.tally.keys.find(replicaID(c.ID, replica))
	return k == nil || k.peak <= s.trials[0].number/3
}

// charge decides a charge with each number.
func (t *trials) charge(at limiter.Time, s *search, c *limiter.Charge, replica int) {
	for i := range s.trials {
		trial := &s.trials[i]
		b := &t.batch
		b.Reset()
		b.Budget = t.run.options.Timeout
		id := c.ID
		id.Hi ^= uint64(i) * 0x9e3779b97f4a7c15 // a counter of its own
		id.Lo ^= uint64(i) * 0xc2b2ae3d27d4eb4f
		b.Charges = append(b.Charges, limiter.Charge{ID: id, Policy: &trial.terms.Policy, Hits: c.Hits, Refund: c.Refund})
		t.tables[replica].Decide(at, b)
		if b.Decisions[0].Over && c.Hits > 0 {
			addTo(c.Hits, &trial.over)
		}
	}
}

// search is what is known of the number that is looked for.
type search struct {
	limit *descriptors.Limit
	// percent is of how many hits there has to be room for.
	percent float64
	// hits are those of the reading.
	hits uint64
	// ownBurst says that a bucket's burst does not follow its number, or is small.
	ownBurst bool
	guess    uint64
	// fails is the greatest number that is known not to do, and passes the least that is
	// known to; its number is 0 while none is.
	fails  uint64
	passes trial
	trials []trial // in the order of their numbers
	// reason says why there is no number.
	reason string
}

// trial is a number that is tried.
type trial struct {
	number uint64
	terms  *descriptors.Terms
	// over counts the hits that found no room, of hits.
	over, hits uint64
}

func newSearch(l *limitTally, percent float64) *search {
	s := &search{limit: l.limit, percent: percent}
	switch {
	case l.limit == nil:
		s.reason = "requests bring their own numbers"
	case l.allowance == 0:
		s.reason = "it denies all, whatever is asked for"
	case l.limit.Policy.UsesLeases():
		s.reason = "what is held depends on who passes: try numbers with --against"
	case l.hits == 0:
		s.reason = "it was only peeked at"
	default:
		s.guess = max(1, l.demand.smallestLimit(s.allowedDenials(l.hits)))
		p := &l.limit.Policy
		s.ownBurst = p.Algorithm == limiter.LeakyBucket || p.Algorithm == limiter.TokenBucket && p.Burst != max(1, p.Limit)
		// A burst cannot be what takes too long to come back at a small number.
		s.fails = uint64(sort.Search(limiter.MaxLog, func(n int) bool { return s.terms(uint64(n+1)).Policy.Validate() == nil }))
	}
	return s
}

// allowedDenials is how many of so many hits may find no room. It counts in whole millionths of a
// percent, since 100-99.9 is not 0.1 to a computer.
func (s *search) allowedDenials(hits uint64) uint64 {
	hi, lo := bits.Mul64(hits, uint64(math.Round((100-s.percent)*1e6)))
	most, _ := bits.Div64(hi, lo, 100*1e6)
	return most
}

// smallestLimit returns the number of hits in a window beyond which no more than so many are asked
// for.
func (d *demand) smallestLimit(most uint64) uint64 {
	type step struct{ hits, windows uint64 }
	var all []step
	for hits, windows := range d.each {
		all = append(all, step{hits, windows})
	}
	number, beyond := d.max, uint64(0) // windows beyond the number
	for _, s := range slices.Backward(all) {
		// Each step down leaves one hit more of each window beyond.
		down := number - s.hits
		if beyond > 0 && down > most/beyond {
			return number - most/beyond
		}
		most -= down * beyond
		number = s.hits
		beyond += s.windows
	}
	return number - min(number, most/max(1, beyond))
}

// maxTrials is how many numbers are tried in one reading.
const maxTrials = 8

// maxNumber is the greatest number that the limit's algorithm can have.
func (s *search) maxNumber() uint64 {
	return uint64(rules.MaxRequests(s.limit.Policy.Algorithm))
}

// chooseTrials chooses the numbers that are tried next: at first around the guess, then evenly
// between the one that fails and the one that passes.
func (s *search) chooseTrials() {
	var numbers []uint64
	low, high := s.fails, s.passes.number
	switch {
	case high == 0:
		g := s.guess
		numbers = []uint64{g / 2, g - g/4, g - 1, g, g + g/8, g + g/2, 2 * g, s.maxNumber()}
	case float64(high) > 4*float64(low):
		step := math.Pow(float64(high)/float64(max(1, low)), 1/float64(maxTrials+1))
		for at := float64(max(1, low)); len(numbers) < maxTrials; {
			at *= step
			numbers = append(numbers, uint64(at))
		}
	default:
		for i := range uint64(maxTrials) {
			numbers = append(numbers, low+(high-low)*(i+1)/(maxTrials+1))
		}
	}
	if high == 0 {
		high = s.maxNumber() + 1
	}
	numbers = append(numbers, low+1)
	slices.Sort(numbers)
	s.hits, s.trials = 0, s.trials[:0]
	for _, n := range slices.Compact(numbers) {
		if n > low && n < high {
			s.trials = append(s.trials, trial{number: n, terms: s.terms(n)})
		}
	}
}

// terms returns the limit's terms with another number. A burst that is the number stays so.
func (s *search) terms(n uint64) *descriptors.Terms {
	t := *s.limit.Terms
	t.RequestsPerUnit = uint32(n)
	p := &t.Policy
	if p.Algorithm == limiter.TokenBucket && !s.ownBurst {
		p.Burst = t.RequestsPerUnit
	}
	p.Limit = t.RequestsPerUnit
	p.Prepare()
	return &t
}

// update takes in what was tried.
func (s *search) update() {
	if s == nil || len(s.trials) == 0 {
		return
	}
	for _, t := range s.trials {
		if t.over > s.allowedDenials(s.hits) {
			s.fails = max(s.fails, t.number)
			continue
		}
		s.passes, s.passes.hits = t, s.hits
		break
	}
	s.trials = s.trials[:0]
	if s.fails == s.maxNumber() {
		s.reason = fmt.Sprintf("no number has room for so many: %s is the greatest", s.format(s.terms(s.fails)))
		if s.ownBurst {
			s.reason = "no number has room for so many: it is the burst or slack that is too small"
		}
	}
}

// format is the limit with other terms.
func (s *search) format(terms *descriptors.Terms) string {
	l := *s.limit
	l.Terms = terms
	return l.String()
}

// recommendation is what the search came to.
func (s *search) recommendation() *report.Recommendation {
	if s.reason != "" {
		return &report.Recommendation{Reason: s.reason}
	}
	return &report.Recommendation{
		Limit: s.format(s.passes.terms), RequestsPerUnit: s.passes.terms.RequestsPerUnit, Hits: s.passes.hits, Over: s.passes.over,
	}
}
