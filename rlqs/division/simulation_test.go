package division_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
)

// simulation simulates Envoys with changing demand in steps of 10 ms. A message takes one step in
// each direction. Requests are evenly spread, and may be fractions, or are random.
type simulation struct {
	n      int
	limit  division.Limit
	demand func(i int, t time.Duration) float64 // requests per second
	end    time.Duration
	random *rand.Rand // nil: requests are evenly spread
	dies   func(i int, t time.Duration) bool
	// killedAt and restartedAt are the times at which the service is killed and restarted, if not
	// 0.
	killedAt, restartedAt time.Duration
	// byReports is true if a report confirms the actions sent before the previous report.
	byReports bool
	// brokenAt is the time at which all streams end, if not 0. peers is true if streams have peers,
	// so that the divider recognizes the Envoys.
	brokenAt time.Duration
	peers    bool
	// phase returns when an Envoy reports, within each five seconds.
	phase func(i int) time.Duration
}

const simStep = 10 * time.Millisecond

type simulatedEnvoy struct {
	filter.Bucket

	stream     division.StreamID
	dead       bool
	unreported float64 // requests, including fractions
	first      float64 // fraction of the first request of the bucket
	arriving   []division.Action
	// seq is the number of the last batch of actions, got the number of the batch applied in this
	// step, and sent the value of seq at the last report.
	seq, got, sent uint64
	allowed        float64 // admitted requests that are not reported yet
	extra          float64 // in this step; see result
}

// result contains, for each step, the numbers of requests and admitted requests, the tokens at its
// end, and as extra the requests admitted without an assignment and the tokens of new or larger
// token buckets. rate is R.
type result struct {
	arrived, admitted, tokens, extra []float64
	rate                             float64
}

func (s *simulation) run(t *testing.T) result {
	t.Helper()
	d := division.NewWith(0, division.Options{Fresh: true})
	envoys := make([]*simulatedEnvoy, s.n)
	for i := range envoys {
		envoys[i] = &simulatedEnvoy{stream: division.StreamID(i + 1)}
		d.OpenStream(0, envoys[i].stream, s.peer(i), 0)
	}
	r := result{rate: float64(s.limit.Hits)}
	last := division.StreamID(s.n)
	for now := simStep; now < s.end; now += simStep {
		if now == s.brokenAt || now == s.killedAt {
			for _, p := range envoys {
				d.CloseStream(now, p.stream)
				p.stream, p.arriving = 0, nil
			}
			if s.restartedAt > now {
				d = nil
			}
		}
		if now == s.restartedAt {
			d = division.NewWith(now, division.Options{})
		}
		arrived, admitted, tokens, extra := 0.0, 0.0, 0.0, 0.0
		for i, p := range envoys {
			if s.dies != nil && s.dies(i, now) {
				if !p.dead {
					d.CloseStream(now, p.stream)
					p.dead = true
				}
				continue
			}
			if p.got != 0 && p.stream != 0 && !s.byReports {
				d.Confirm(now, p.stream, p.got)
			}
			p.apply(now)
			hits := s.hits(s.demand(i, now))
			arrived += hits
			admitted += p.admit(now, hits, func() { p.report(d, now, &s.limit) })
			p.Refill(now)
			tokens += p.Tokens
			extra += p.extra
			p.extra = 0
			if (now-s.phase(i))%(5*time.Second) == 0 {
				if p.stream == 0 && d != nil {
					last++
					p.stream = last
					d.OpenStream(now, p.stream, s.peer(i), 0)
				}
				if p.Known {
					p.report(d, now, &s.limit)
				}
				if s.byReports {
					d.Confirm(now, p.stream, p.sent)
					p.sent = p.seq
				}
			}
		}
		if d != nil {
			d.Tick(now)
		}
		sum := division.Rate(0)
		for _, p := range envoys {
			if p.dead {
				continue
			}
			var seq uint64
			if d != nil {
				if p.arriving, seq, _ = d.TakeActions(now, p.stream, nil, 100); seq != 0 {
					p.seq = seq
				}
			}
			if p.Active(now) && p.Kind == division.Assign {
				sum += p.Rate
			}
		}
		if int64(sum) > int64(s.limit.Hits)*3600 && s.killedAt == 0 {
			t.Fatalf("%v: %d tokens an hour are in effect, want at most %d", now, sum, s.limit.Hits*3600)
		}
		r.arrived = append(r.arrived, arrived)
		r.admitted = append(r.admitted, admitted)
		r.tokens = append(r.tokens, tokens)
		r.extra = append(r.extra, extra)
	}
	return r
}

func (s *simulation) peer(i int) uint64 {
	if s.peers {
		return uint64(i) + 1
	}
	return 0
}

// hits returns the number of requests in a step.
func (s *simulation) hits(demand float64) float64 {
	mean := demand * simStep.Seconds()
	if s.random == nil || mean == 0 {
		return mean
	}
	n, at := 0.0, s.random.ExpFloat64() // a Poisson process has exponential gaps
	for at < mean {
		n++
		at += s.random.ExpFloat64()
	}
	return n
}

// apply applies the actions that were in transit for a step. They are confirmed in the next step.
func (p *simulatedEnvoy) apply(now division.Time) {
	p.got = 0
	if len(p.arriving) == 0 {
		return
	}
	p.got = p.seq
	for _, a := range p.arriving {
		p.Refill(now)
		before := p.Tokens
		if p.Apply(now, &a); p.Known {
			p.extra += max(p.Tokens-before, 0)
		}
	}
	p.arriving = nil
}

func (p *simulatedEnvoy) admit(now division.Time, hits float64, report func()) float64 {
	if hits == 0 {
		return 0
	}
	if !p.Known {
		if p.first += hits; p.first < 1 {
			return 0
		}
		hits, p.first = p.first, 0
		p.Start(now)
		p.count(hits, hits)
		p.extra += hits
		report()
		return hits
	}
	allowed := 0.0
	switch {
	case !p.Active(now):
		allowed = hits
		p.extra += hits
	case p.Kind == division.Assign:
		p.Refill(now)
		allowed = min(hits, p.Tokens)
		p.Tokens -= allowed
	}
	p.count(hits, allowed)
	return allowed
}

func (p *simulatedEnvoy) count(hits, allowed float64) {
	p.unreported += hits
	p.allowed += allowed
}

func (p *simulatedEnvoy) report(d *division.Divider, now division.Time, limit *division.Limit) {
	r := p.usage(now)
	if p.stream == 0 {
		return // the counts are lost
	}
	r.Limit = limit
	d.Report(now, p.stream, r)
}

// usage returns a report and resets the counts.
func (p *simulatedEnvoy) usage(now division.Time) division.Report {
	hits, allowed := max(math.Round(p.unreported), 0), max(math.Round(p.allowed), 0)
	p.unreported -= hits
	p.allowed -= allowed
	elapsed := (now - p.Reported).Truncate(time.Second)
	p.Reported = now
	return division.Report{
		Bucket: bucketOf(0), ID: []byte("x"), Allowed: uint64(allowed), Denied: uint64(max(hits-allowed, 0)), Elapsed: elapsed,
	}
}

// utilization returns the ratio of admitted to possible requests between two times: all requests,
// or R.
func (r result) utilization(from, to time.Duration) float64 {
	arrived, admitted := 0.0, 0.0
	for i := from / simStep; i < to/simStep; i++ {
		arrived += r.arrived[i]
		admitted += r.admitted[i]
	}
	return admitted / min(arrived, r.rate*(to-from).Seconds())
}

// maxAdmitted returns the maximum number of requests admitted in any interval of the given length,
// as a multiple of R.
func (r result) maxAdmitted(from, interval time.Duration, rate float64) float64 {
	n, largest, sum := int(interval/simStep), 0.0, 0.0
	for i, a := range r.admitted {
		if i < int(from/simStep) {
			continue
		}
		sum += a
		if i-n >= int(from/simStep) {
			sum -= r.admitted[i-n]
		}
		largest = max(largest, sum)
	}
	return largest / (rate * interval.Seconds())
}

// maxExcess returns the greatest excess over the bound in any interval of the given length. The
// bound is R x interval, plus the tokens at its start, plus extra.
func (r result) maxExcess(interval time.Duration, rate float64) float64 {
	n, admitted, extra, worst := int(interval/simStep), 0.0, 0.0, math.Inf(-1)
	for i := 1; i < len(r.admitted); i++ {
		admitted += r.admitted[i]
		extra += r.extra[i]
		if i > n {
			admitted -= r.admitted[i-n]
			extra -= r.extra[i-n]
		}
		if start := i - n; start >= 0 {
			worst = max(worst, admitted-extra-r.tokens[start]-rate*interval.Seconds())
		}
	}
	return worst
}
