package quota_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
)

// A simulation has Envoys with a demand that changes, in steps of 10 ms, each of which is the way to the
// divider or back. Requests are a fluid, or come by chance.
type simulation struct {
	n      int
	limit  quota.Limit
	demand func(i int, t time.Duration) float64 // requests a second
	end    time.Duration
	chance *rand.Rand
	dies   func(i int, t time.Duration) bool
	// killed and back are when the service is killed and when another one is there, if not 0.
	killed, back time.Duration
	// byReports is true if a report confirms what was sent before the previous report.
	byReports bool
	// broken is when all streams end, peers says that they are known to be of the same Envoys.
	broken time.Duration
	peers  bool
	// phase is when in its five seconds an Envoy reports.
	phase func(i int) time.Duration
}

const simStep = 10 * time.Millisecond

type proxy struct {
	filter.Bucket

	h              quota.StreamID
	dead           bool
	rest, first    float64 // of a request: not yet reported, and of the first of a bucket
	arriving       []quota.Action
	seq, got, sent uint64
	allowedAll     float64
	extra          float64 // of a step, see result
}

// result has, of each step, what came and was admitted; how many tokens there were at its end; and what
// was admitted without an assignment or given by token buckets that began anew or became larger. Rate is R.
type result struct {
	came, admitted, tokens, extra []float64
	rate                          float64
}

func (s *simulation) run(t *testing.T) result {
	t.Helper()
	d := quota.New(0, quota.Options{Fresh: true})
	proxies := make([]*proxy, s.n)
	for i := range proxies {
		proxies[i] = &proxy{h: quota.StreamID(i + 1)}
		d.OpenStream(0, proxies[i].h, s.peer(i), 0)
	}
	r := result{rate: float64(s.limit.Hits)}
	last := quota.StreamID(s.n)
	for now := simStep; now < s.end; now += simStep {
		if now == s.broken || now == s.killed {
			for _, p := range proxies {
				d.CloseStream(now, p.h)
				p.h, p.arriving = 0, nil
			}
			if s.back > now {
				d = nil
			}
		}
		if now == s.back {
			d = quota.New(now, quota.Options{})
		}
		came, admitted, tokens, extra := 0.0, 0.0, 0.0, 0.0
		for i, p := range proxies {
			if s.dies != nil && s.dies(i, now) {
				if !p.dead {
					d.CloseStream(now, p.h)
					p.dead = true
				}
				continue
			}
			if p.got != 0 && p.h != 0 && !s.byReports {
				d.Confirm(now, p.h, p.got)
			}
			p.apply(now)
			hits := s.hits(s.demand(i, now))
			came += hits
			admitted += p.admit(now, hits, func() { p.report(d, now, &s.limit) })
			p.Refill(now)
			tokens += p.Tokens
			extra += p.extra
			p.extra = 0
			if (now-s.phase(i))%(5*time.Second) == 0 {
				if p.h == 0 && d != nil {
					last++
					p.h = last
					d.OpenStream(now, p.h, s.peer(i), 0)
				}
				if p.Known {
					p.report(d, now, &s.limit)
				}
				if s.byReports {
					d.Confirm(now, p.h, p.sent)
					p.sent = p.seq
				}
			}
		}
		if d != nil {
			d.Tick(now)
		}
		sum := quota.Rate(0)
		for _, p := range proxies {
			if p.dead {
				continue
			}
			var seq uint64
			if d != nil {
				if p.arriving, seq, _ = d.TakeActions(now, p.h, nil, 100); seq != 0 {
					p.seq = seq
				}
			}
			if p.Active(now) && p.Kind == quota.Assign {
				sum += p.Rate
			}
		}
		if int64(sum) > int64(s.limit.Hits)*3600 && s.killed == 0 {
			t.Fatalf("%v: %d tokens an hour in force of %d", now, sum, s.limit.Hits*3600)
		}
		r.came = append(r.came, came)
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

// hits returns how many requests come in a step.
func (s *simulation) hits(demand float64) float64 {
	mean := demand * simStep.Seconds()
	if s.chance == nil || mean == 0 {
		return mean
	}
	n, left := 0.0, s.chance.ExpFloat64() // Poisson: exponential gaps
	for left < mean {
		n++
		left += s.chance.ExpFloat64()
	}
	return n
}

// apply applies the actions that were in transit for a step, and confirms them in the next.
func (p *proxy) apply(now quota.Time) {
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

func (p *proxy) admit(now quota.Time, hits float64, report func()) float64 {
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
	case p.Kind == quota.Assign:
		p.Refill(now)
		allowed = min(hits, p.Tokens)
		p.Tokens -= allowed
	}
	p.count(hits, allowed)
	return allowed
}

func (p *proxy) count(hits, allowed float64) {
	p.rest += hits
	p.allowedAll += allowed
}

func (p *proxy) report(d *quota.Divider, now quota.Time, limit *quota.Limit) {
	r := p.usage(now)
	if p.h == 0 {
		return // what was counted is lost
	}
	r.Limit = limit
	d.Report(now, p.h, r)
}

// usage returns a report and resets the counts.
func (p *proxy) usage(now quota.Time) quota.Report {
	hits, allowed := max(math.Round(p.rest), 0), max(math.Round(p.allowedAll), 0)
	p.rest -= hits
	p.allowedAll -= allowed
	elapsed := (now - p.Reported).Truncate(time.Second)
	p.Reported = now
	return quota.Report{
		Bucket: bucketOf(0), ID: []byte("x"), Allowed: uint64(allowed), Denied: uint64(max(hits-allowed, 0)), Elapsed: elapsed,
	}
}

// used returns the ratio of admitted to possible requests between two times: all requests, or R.
func (r result) used(from, to time.Duration) float64 {
	came, admitted := 0.0, 0.0
	for i := from / simStep; i < to/simStep; i++ {
		came += r.came[i]
		admitted += r.admitted[i]
	}
	return admitted / min(came, r.rate*(to-from).Seconds())
}

// most returns the most that was admitted in any interval, as a multiple of R.
func (r result) most(from, interval time.Duration, rate float64) float64 {
	n, most, sum := int(interval/simStep), 0.0, 0.0
	for i, a := range r.admitted {
		if i < int(from/simStep) {
			continue
		}
		sum += a
		if i-n >= int(from/simStep) {
			sum -= r.admitted[i-n]
		}
		most = max(most, sum)
	}
	return most / (rate * interval.Seconds())
}

// beyond returns by how much the bound was exceeded in any interval: R x interval, the tokens that
// buckets had at its begin, and what was extra.
func (r result) beyond(interval time.Duration, rate float64) float64 {
	n, admitted, extra, worst := int(interval/simStep), 0.0, 0.0, math.Inf(-1)
	for i := 1; i < len(r.admitted); i++ {
		admitted += r.admitted[i]
		extra += r.extra[i]
		if i > n {
			admitted -= r.admitted[i-n]
			extra -= r.extra[i-n]
		}
		if begin := i - n; begin >= 0 {
			worst = max(worst, admitted-extra-r.tokens[begin]-rate*interval.Seconds())
		}
	}
	return worst
}
