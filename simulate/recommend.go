package simulate

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// recommend finds the smallest number for each limit that admits the given share of its hits. Each
// limit is considered alone, as if the others admitted everything.
//
// The distribution of demand per window gives a first guess, which is exact for fixed windows and
// requests of one hit. Other algorithms need trials: the logs are read again, and each charge is
// decided once per tried number, until one number suffices and the one below does not. So each
// recommendation is verified by a run.
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
		if err := r.readLogs(ctx, rd, nil, t.chargeRequest); err != nil {
			return err
		}
		if err := checkEvicted(t.table); err != nil {
			return err
		}
		for _, s := range t.searches {
			s.update()
		}
	}
	out.Recommend = r.options.Recommend
	for n, i := range r.rules.tally.active { // sorted like the report's limits
		out.Rules.Limits[n].Recommended = t.searches[i].recommendation()
	}
	return nil
}

// trials is a pass over the logs that tries several numbers for each limit.
type trials struct {
	run      *run
	set      *descriptors.Set
	searches []*search // parallel to the tally's limits; nil for limits without hits
	table    *limiter.Table
	plan     descriptors.Plan
	batch    limiter.Batch
	req      descriptors.Request
}

// startPass prepares the next pass. It returns false if all searches are complete.
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
	t.table, err = newTable(t.run.options, 1)
	return true, err
}

func (t *trials) chargeRequest(w queuedRequest) {
	var rec record
	rec.read(w.batch.arena[w.offset:])
	for range rec.calls {
		rec.nextCall(&t.req)
		t.set.Plan(&t.plan, &t.req, descriptors.Global{})
		for i := range t.plan.Batch.Charges {
			index := t.plan.Limits[i].Index
			if index < 0 || t.plan.Limits[i] != t.set.Limits[index] {
				continue // set by the request or by a row
			}
			s := t.searches[index]
			c := &t.plan.Batch.Charges[i]
			if s == nil || len(s.trials) == 0 {
				continue
			}
			if !c.Refund {
				addTo(c.Hits, &s.hits)
			}
			if !t.neverOver(s, c) {
				t.charge(limiter.Time(w.at), s, c)
			}
		}
	}
}

// neverOver reports whether the demand of the charge's key is too small to exceed the limit with
// any tried number. That holds for nearly all keys, which then need no counters. Hits that an
// algorithm counts together fall into at most three windows.
func (t *trials) neverOver(s *search, c *limiter.Charge) bool {
	if t.run.multiCall || s.ownBurst {
		return false // demand may be higher than recorded, or a smaller burst may deny
	}
	k, _ := t.run.rules.tally.keys.find(c.ID)
	return k == nil || k.peak <= s.trials[0].number/3
}

// charge decides a charge with each tried number.
func (t *trials) charge(at limiter.Time, s *search, c *limiter.Charge) {
	for i := range s.trials {
		trial := &s.trials[i]
		b := &t.batch
		b.Reset()
		b.Budget = t.run.options.Timeout
		id := c.ID
		id.Hi ^= uint64(i) * 0x9e3779b97f4a7c15 // a separate counter per trial
		id.Lo ^= uint64(i) * 0xc2b2ae3d27d4eb4f
		b.Charges = append(b.Charges,
			limiter.Charge{ID: id, Policy: &trial.terms.Policy, Hits: c.Hits, Refund: c.Refund})
		t.table.Decide(at, b)
		if b.Decisions[0].Over && c.Hits > 0 {
			addTo(c.Hits, &trial.over)
		}
	}
}

type search struct {
	limit *descriptors.Limit
	// percent is the share of hits to admit.
	percent float64
	// hits counts the limit's hits in this pass.
	hits uint64
	// ownBurst reports that a bucket's burst is fixed or smaller than its number.
	ownBurst bool
	guess    uint64
	// fails is the largest number known to deny too much. passes is the trial with the smallest
	// number known to suffice; its number is 0 if none is known.
	fails  uint64
	passes trial
	trials []trial // sorted by number
	// reason explains why no number can be recommended.
	reason string
}

type trial struct {
	number uint64
	terms  *descriptors.Terms
	// hits counts the limit's hits, and over those of them that were denied.
	over, hits uint64
}

func newSearch(l *limitTally, percent float64) *search {
	s := &search{limit: l.limit, percent: percent}
	switch {
	case l.limit == nil:
		s.reason = "requests set their own limits"
	case l.allowance == 0:
		s.reason = "a limit of 0 denies all hits"
	case l.limit.Policy.UsesLeases():
		s.reason = "the number of held leases depends on which requests are admitted; try limits with --against"
	case l.limit.Rule.FirstWithRoom() && !l.limit.Candidate:
		s.reason = "a request is charged to one of several limits; try limits with --against"
	case l.hits == 0:
		s.reason = "all its requests were peeks"
	default:
		s.guess = max(1, l.demand.smallestLimit(s.allowedDenials(l.hits)))
		p := &l.limit.Policy
		s.ownBurst = p.Algorithm == limiter.LeakyBucket ||
			p.Algorithm == limiter.TokenBucket && p.Burst != max(1, p.Limit)
		// A fixed burst would take too long to refill at small numbers, which are invalid.
		s.fails = uint64(sort.Search(limiter.MaxLog,
			func(n int) bool { return s.terms(uint64(n+1)).Policy.Validate() == nil }))
	}
	return s
}

// allowedDenials returns how many of the given hits may be denied. It computes in millionths of a
// percent, because 100-99.9 is not exact in floating point.
func (s *search) allowedDenials(hits uint64) uint64 {
	hi, lo := bits.Mul64(hits, uint64(math.Round((100-s.percent)*1e6)))
	allowed, _ := bits.Div64(hi, lo, 100*1e6)
	return allowed
}

// smallestLimit returns the smallest number per window that at most maxDenied hits exceed.
func (d *demand) smallestLimit(maxDenied uint64) uint64 {
	type step struct{ hits, windows uint64 }
	var all []step
	for hits, windows := range d.each {
		all = append(all, step{hits, windows})
	}
	number := d.max
	beyond := uint64(0) // windows with a demand above number
	for _, s := range slices.Backward(all) {
		// Each step down denies one more hit in each window beyond.
		down := number - s.hits
		if beyond > 0 && down > maxDenied/beyond {
			return number - maxDenied/beyond
		}
		maxDenied -= down * beyond
		number = s.hits
		beyond += s.windows
	}
	return number - min(number, maxDenied/max(1, beyond))
}

// maxTrials is the approximate number of trials per pass and limit.
const maxTrials = 8

func (s *search) maxNumber() uint64 {
	return uint64(rules.MaxRequests(s.limit.Policy.Algorithm))
}

// chooseTrials sets the numbers of the next pass: around the guess at first, then between fails and
// passes.
func (s *search) chooseTrials() {
	low := s.fails
	high := s.passes.number
	numbers := []uint64{low + 1}
	if high == 0 {
		g := s.guess
		numbers = append(numbers, g/2, g-g/4, g-1, g, g+g/8, g+g/2, 2*g, s.maxNumber())
		high = s.maxNumber() + 1
	} else {
		step := math.Pow(float64(high)/float64(max(1, low)), 1/float64(maxTrials+1))
		for at := float64(max(1, low)); len(numbers) <= maxTrials; {
			at *= step
			numbers = append(numbers, uint64(at))
		}
	}
	slices.Sort(numbers)
	s.hits = 0
	s.trials = s.trials[:0]
	for _, n := range slices.Compact(numbers) {
		if n > low && n < high {
			s.trials = append(s.trials, trial{number: n, terms: s.terms(n)})
		}
	}
}

// terms returns the limit's terms with another number. A burst equal to the number follows it.
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

// update narrows the search with the results of a pass.
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
		s.reason = "no limit admits this share; the maximum is " + s.format(s.terms(s.fails))
		if s.ownBurst {
			s.reason = "no limit admits this share; the burst or slack is too small"
		}
	}
}

// format formats the limit with other terms.
func (s *search) format(terms *descriptors.Terms) string {
	l := *s.limit
	l.Terms = terms
	return l.String()
}

func (s *search) recommendation() *report.Recommendation {
	if s.reason != "" {
		return &report.Recommendation{Reason: s.reason}
	}
	return &report.Recommendation{
		Limit: s.format(s.passes.terms), RequestsPerUnit: s.passes.terms.RequestsPerUnit, Hits: s.passes.hits, Over: s.passes.over,
	}
}
