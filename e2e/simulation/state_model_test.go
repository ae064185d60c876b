package simulation

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// stateModel computes from the calls of clients what docs/state.md promises about /api/v1/state. Where
// the page leaves a time open, such as the interval of a rate, it accepts all permitted values.
type stateModel struct {
	fail      func(format string, args ...any)
	calls     []observedCall
	pending   map[string]*pendingEnds // by code, domain and rule
	steady    time.Time               // from when on rates, keys and counters are known
	ahead     time.Duration           // of the sluice's clock
	active    map[string]bool         // the conditions that have no calls, such as that of a certificate
	store     string
	removed   string // domain whose rule `path` does not exist
	lastReset time.Time
	stepped   time.Time // when the clock was set; zero for never
}

// observedCall is a call that was made at the time from and answered at the time to.
type observedCall struct {
	from, to time.Time
	outcome  outcome
	reason   telemetry.Code // of an error
	domain   string
	minute   int64
	descs    []observedDescriptor
}

// observedDescriptor is a descriptor that a rule matched.
type observedDescriptor struct {
	key, tenant string
	hits        uint64
	denied      bool
}

// pendingEnds counts requests since the last cost, or expired leases since the last return.
type pendingEnds struct {
	least, n, longest int
	ever              bool
	first, last       time.Time
	vague             bool // an event came after just ten minutes
}

func (p *pendingEnds) rest(now time.Time) {
	quiet := now.Sub(p.last) - 10*time.Minute
	if p.vague = p.vague || quiet.Abs() < 3*time.Second; quiet > 0 {
		p.n = 0
	}
}

func (p *pendingEnds) add(now time.Time) {
	if p.rest(now); p.n == 0 {
		p.first = now
	}
	p.n++
	p.last = now
}

func (p *pendingEnds) end(now time.Time) {
	p.rest(now)
	p.n, p.longest, p.ever = 0, max(p.longest, p.n), true
}

func (p *pendingEnds) isProblem(now time.Time) bool {
	p.rest(now)
	return p.n >= p.least && now.Sub(p.first) >= 2*time.Second && (!p.ever || p.n >= 10*p.longest && now.Sub(p.first) >= time.Minute)
}

func (m *stateModel) pendingOf(code telemetry.Code, domain, rule string) *pendingEnds {
	at := fmt.Sprint(code, " ", domain, " ", rule)
	if m.pending[at] == nil {
		m.pending[at] = &pendingEnds{least: map[telemetry.Code]int{telemetry.CostsMissing: 10, telemetry.LeasesNotReturned: 3}[code]}
	}
	return m.pending[at]
}

// matcher returns how much a call adds to a total.
type matcher func(*observedCall) uint64

func ofOutcome(o outcome) matcher {
	return func(c *observedCall) uint64 { return count(c.outcome == o) }
}

func ofDomain(domain string, of func(observedDescriptor) uint64) matcher {
	return func(c *observedCall) (n uint64) {
		for _, d := range c.descs {
			n += of(d) * count(c.domain == domain)
		}
		return n
	}
}

func count(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// within returns the total of the calls in the given time before now. The network takes a millisecond
// or more, so calls at the start of that time may count or not.
func (m *stateModel) within(now time.Time, length time.Duration, match matcher) (least, most float64) {
	for _, c := range slices.Backward(m.calls) {
		if now.Sub(c.to) > length+time.Millisecond {
			break
		}
		n := float64(match(&c))
		if most += n; now.Sub(c.from) <= length-time.Millisecond {
			least += n
		}
	}
	return least, most
}

// rate is a rate of the state, and the calls that it counts.
type rate struct {
	name  string
	value float64
	match matcher
}

// checkRates verifies that one interval of five to ten seconds explains all rates.
func (m *stateModel) checkRates(now time.Time, rates []rate) {
	explains := func(l time.Duration, r rate) bool {
		least, most := m.within(now, l, r.match)
		n := r.value * l.Seconds()
		return l >= 5*time.Second-time.Millisecond && l <= 10*time.Second+time.Millisecond && n > least-0.01 && n < most+0.01
	}
	var lengths []time.Duration
	_, most := m.within(now, 10*time.Second, rates[0].match)
	for n := 1.0; n <= most && rates[0].value > 0; n++ {
		lengths = append(lengths, time.Duration(n/rates[0].value*float64(time.Second)))
	}
	for l := 5 * time.Second; l <= 10*time.Second && rates[0].value == 0; l += 50 * time.Millisecond {
		lengths = append(lengths, l)
	}
	for _, r := range rates {
		before := lengths
		if lengths = slices.DeleteFunc(slices.Clone(lengths), func(l time.Duration) bool { return !explains(l, r) }); len(lengths) == 0 {
			least, _ := m.within(now, 5*time.Second, r.match)
			_, most := m.within(now, 10*time.Second, r.match)
			m.fail("%s is %v; the total of five to ten seconds is %v to %v; other rates are over one of %v", r.name, r.value, least, most, before[:min(3, len(before))])
			return
		}
	}
}

// check compares a state. It was settled if nothing has happened for some seconds, so conditions
// have begun and ended.
func (m *stateModel) check(s *live.State, connections int, settled bool) {
	now := s.Time.Add(-m.ahead)
	m.checkConditions(now, s, settled)
	if s.Status.Connections != connections || settled && s.Status.Store != m.store {
		m.fail("there are %d connections, want %d; the store is %s, want %s", s.Status.Connections, connections, s.Status.Store, m.store)
	}
	if now.Before(m.steady) {
		return
	}
	rates := []rate{
		{"calls_per_second", s.Status.Calls, func(*observedCall) uint64 { return 1 }},
		{"the status' denied_per_second", s.Status.Denied, ofOutcome(denied)},
		{"errors_per_second", s.Status.Errors, ofOutcome(failed)},
	}
	for _, d := range s.Domains {
		rates = append(rates, rate{d.Domain + " denied_requests_per_second", d.DeniedRequests, ofDomain(d.Domain, func(o observedDescriptor) uint64 { return count(o.denied) })})
		for _, r := range d.Rules {
			rates = append(rates, m.checkRule(d.Domain, &r)...)
		}
		rates = append(rates, m.checkKeys(now, &d)...)
	}
	m.checkRates(now, rates)
	if m.store == live.StoreNone && m.stepped.IsZero() {
		m.checkCounters(now, s.Status.Counters)
	}
}

// minute returns the minute of the sluice's clock.
func (m *stateModel) minute(at time.Time) int64 { return at.Add(m.ahead).Unix() / 60 }

// checkCounters verifies the number of counters of fixed windows, of five seconds ago or less.
func (m *stateModel) checkCounters(now time.Time, used int64) {
	least, most := map[string]bool{}, map[string]bool{}
	for _, c := range m.calls {
		for _, d := range c.descs {
			if name := c.domain + d.key + d.tenant; d.key == "streams" || d.hits > 0 {
				window := map[string]int64{"user": 1, "path": 60, "removed": 60, "tokens": 60, "streams": 1}[d.key]
				if d.key != "streams" && d.key != "removed" && c.minute/window == m.minute(now)/window && now.Sub(c.to) > 6*time.Second {
					least[name] = true
				}
				if d.key == "streams" || c.minute/window >= m.minute(now.Add(-6*time.Second))/window {
					most[name] = true
				}
			}
		}
	}
	if int(used) < len(least) || int(used) > len(most) {
		m.fail("%d counters are used, want %d to %d", used, len(least), len(most))
	}
}

// checkRule verifies the totals of a limit, and returns its rates.
func (m *stateModel) checkRule(domain string, r *live.RuleState) []rate {
	hits := ofDomain(domain, func(o observedDescriptor) uint64 { return o.hits * count(o.key == r.Rule) })
	over := ofDomain(domain, func(o observedDescriptor) uint64 { return o.hits * count(o.key == r.Rule && o.denied) })
	var total, deniedTotal uint64
	for i := range m.calls {
		total, deniedTotal = total+hits(&m.calls[i]), deniedTotal+over(&m.calls[i])
	}
	if r.TotalHits != total || r.TotalDenied != deniedTotal {
		m.fail("%s %s has %d hits and %d denied, want %d and %d", domain, r.Rule, r.TotalHits, r.TotalDenied, total, deniedTotal)
	}
	if domain == m.removed && r.Rule == "path" {
		m.fail("the rule path of %s was removed", domain)
	}
	name := domain + " " + r.Rule
	return []rate{{name + " hits_per_second", r.Hits, hits}, {name + " denied_per_second", r.Denied, over}}
}

// forgetPath forgets the hits of a rule that is removed. Its counters stay.
func (m *stateModel) forgetPath(domain string) {
	for i := range m.calls {
		for j := range m.calls[i].descs {
			if d := &m.calls[i].descs[j]; m.calls[i].domain == domain && d.key == "path" {
				*d = observedDescriptor{key: "removed", tenant: d.tenant, hits: d.hits}
			}
		}
	}
}

// stepClock forgets what depends on the time before the clock was set.
func (m *stateModel) stepClock() {
	now := time.Now()
	m.steady, m.lastReset, m.stepped = now.Add(11*time.Second), now, now
	for i := range m.calls {
		m.calls[i].reason = ""
	}
	for _, p := range m.pending {
		p.vague = p.vague || p.n > 0
	}
}

// checkKeys verifies which keys there are and their totals, and returns their rates.
func (m *stateModel) checkKeys(now time.Time, d *live.DomainState) (rates []rate) {
	denials := map[string][]time.Time{}
	for _, c := range m.calls {
		for _, o := range c.descs {
			if key := o.key + "=" + o.tenant; o.denied && c.domain == d.Domain {
				denials[key] = append(denials[key], c.to)
			}
		}
	}
	for _, k := range d.DeniedKeys {
		times := denials[k.Descriptor]
		delete(denials, k.Descriptor)
		rates = append(rates, rate{d.Domain + " " + k.Descriptor + " denied_per_second", k.PerSecond, ofDomain(d.Domain, func(o observedDescriptor) uint64 {
			return count(o.denied && o.key+"="+o.tenant == k.Descriptor)
		})})
		i := len(times) - int(k.Denied) // the first denial
		if i < 0 || k.Denied == 0 || math.Abs(k.Share*d.DeniedRequests-k.PerSecond) > 1e-6 {
			m.fail("%+v; it was denied at %v; the domain has %v denials per second", k, times, d.DeniedRequests)
			continue
		}
		if times[i].Before(m.stepped) {
			continue
		}
		gone := i > 0 && times[i].Sub(times[i-1]) < time.Minute && !times[i-1].Before(m.lastReset)
		for at, next := i, times[i:]; at < len(times); at, next = at+1, next[1:] {
			gone = gone || append(next[1:], now)[0].Sub(next[0]) > 2*time.Minute+time.Second
		}
		near := func(shown, actual time.Time, late time.Duration) bool {
			shown = shown.Add(-m.ahead)
			return shown.Sub(actual) > -2*time.Second && shown.Sub(actual) <= late && !shown.After(now)
		}
		if gone || !near(k.Since, times[i], 0) || !near(k.Last, times[len(times)-1], 5*time.Second) {
			m.fail("%+v; it was denied at %v", k, times)
		}
	}
	for key, times := range denials {
		last := times[len(times)-1]
		if now.Sub(last) < time.Minute && last.After(m.lastReset) {
			m.fail("%s %s was denied at %v, but is not a denied key", d.Domain, key, last)
		}
	}
	return rates
}

// checkConditions verifies which conditions are active.
func (m *stateModel) checkConditions(now time.Time, s *live.State, settled bool) {
	want := maps.Clone(m.active)
	numbers := map[string]int{}
	last := map[string]time.Time{}
	for _, c := range m.calls {
		if code := string(c.reason); code != "" {
			gap := c.to.Sub(last[code]) - time.Minute
			if numbers[code]++; gap > 0 {
				numbers[code] = 1
			}
			if gap.Abs() < 3*time.Second { // it may have ended before
				numbers[code] = math.MinInt
			}
			last[code], want[code] = c.to, now.Sub(c.to) < time.Minute
		}
	}
	for at, p := range m.pending {
		want[at], numbers[at] = p.isProblem(now), p.n
	}
	got := map[string]bool{}
	for _, c := range s.Conditions {
		at := string(c.Code)
		if c.Fields["rule"] != nil {
			at = fmt.Sprint(c.Code, " ", c.Fields["domain"], " ", c.Fields["rule"])
		}
		got[at] = true
		for _, field := range []string{"requests", "count"} {
			if n, ok := c.Fields[field].(float64); ok && settled && int(n) != numbers[at] && numbers[at] > 0 && m.stepped.IsZero() {
				m.fail("%s names %v, want %d", at, n, numbers[at])
			}
		}
	}
	if now.Sub(m.stepped) < time.Minute+10*time.Second {
		maps.DeleteFunc(got, func(at string, _ bool) bool { return !want[at] && at[:8] == "requests" })
	}
	for at, p := range m.pending {
		if p.vague {
			delete(got, at)
			delete(want, at)
		}
	}
	maps.DeleteFunc(want, func(_ string, active bool) bool { return !active })
	if settled && !maps.Equal(got, want) {
		m.fail("the conditions are %v, want %v: %+v", got, want, s.Conditions)
	}
}
