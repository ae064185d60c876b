package admin

import (
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// streamEnds raises conditions for rules whose requests have no call at the ends of their streams.
// It must be used by one goroutine at a time.
type streamEnds struct{ waits map[waitID]*wait }

// waitID identifies a rule and the condition that is raised if its requests have no call.
type waitID struct {
	code    telemetry.Code
	subject string
}

// ruleEnds are the counts of a rule.
type ruleEnds struct {
	telemetry.StreamEnds
	charged uint64 // hits
}

// advance raises and ends conditions at the time now. each calls its argument with the counters of
// each limit.
func (s *streamEnds) advance(now time.Time, conditions *telemetry.Conditions, r *answer.Active, each func(func(limit int, c *telemetry.RuleCounters))) {
	limits := map[*descriptors.Limit]ruleEnds{}
	each(func(i int, c *telemetry.RuleCounters) {
		n := c.StreamEnds()
		if i < 0 || i >= len(r.Set.Limits) || n.CostsDue == 0 && n.Expired == 0 {
			return
		}
		l := r.Set.Limits[i]
		sum := limits[l]
		sum.CostsDue, sum.Returned, sum.Expired, sum.charged = sum.CostsDue+n.CostsDue, sum.Returned+n.Returned, sum.Expired+n.Expired, sum.charged+c.Hits().Total
		limits[l] = sum
	})
	rules := map[*descriptors.Rule]ruleEnds{} // a request has one cost for all limits of its rule
	for l, n := range limits {
		sum := rules[l.Rule]
		sum.CostsDue, sum.Returned, sum.Expired, sum.charged = max(sum.CostsDue, n.CostsDue), sum.Returned+n.Returned, sum.Expired+n.Expired, sum.charged+n.charged
		rules[l.Rule] = sum
	}
	waits := map[waitID]*wait{}
	check := func(id waitID, received, requests, least uint64, fields ...zap.Field) {
		waits[id] = s.waits[id].advance(now, received, requests)
		if missing := waits[id].missing(now, least); missing > 0 {
			conditions.Update(id.code, id.subject, append(fields, zap.Uint64("requests", missing))...)
		} else {
			conditions.End(id.code, id.subject)
		}
	}
	for rule, n := range rules {
		subject := rule.Domain() + ": " + rule.Path()
		domain, path, source := zap.String("domain", rule.Domain()), zap.String("rule", rule.Path()), zap.String("source", rule.Pos().String())
		check(waitID{telemetry.CostsMissing, subject}, n.charged, n.CostsDue, minCosts, domain, path, source, zap.Int("charged", 0))
		check(waitID{telemetry.LeasesNotReturned, subject}, n.Returned, n.Expired, minLeases, domain, path, source, zap.Int("returned", 0))
	}
	for id := range s.waits {
		if waits[id] == nil {
			conditions.End(id.code, id.subject)
		}
	}
	s.waits = waits
}

const (
	// minCosts and minLeases are the numbers of requests without a call at the end, from which that
	// is a problem.
	minCosts, minLeases = 10, 3
	// minWait is the minimum time since the first of them, and minWaitAgain if there were calls
	// before: streams may be long, and a rule may count failures alone.
	minWait, minWaitAgain = 2 * time.Second, time.Minute
	// factorAgain times the longest sequence of requests without a call is the minimum number of
	// requests if there were calls before.
	factorAgain = 10
	// waitEnds is the time without such requests after which a wait ends.
	waitEnds = 10 * time.Minute
)

// wait describes the requests of a rule since the last call at the end of a stream.
type wait struct {
	received    uint64 // hits or leases that calls have reported
	requests    uint64
	base        uint64    // number of requests at the last call
	longest     uint64    // most requests between two calls
	ever        bool      // there was a call
	first, last time.Time // first and last request since the last call; zero if there was none
}

// advance records the counts at the time now. w is nil at the first time.
func (w *wait) advance(now time.Time, received, requests uint64) *wait {
	if w == nil {
		w = &wait{received: received, ever: received > 0}
		if w.ever {
			w.base, w.requests = requests, requests
		}
	}
	if now.Before(w.last) { // the clock was set back
		w.first, w.last = now, now
	}
	grown := requests > w.requests
	switch w.requests = requests; {
	case received > w.received:
		w.longest = max(w.longest, requests-w.base)
		w.received, w.base, w.ever, w.first = received, requests, true, time.Time{}
	case grown && w.first.IsZero():
		w.first = now
	case !grown && now.Sub(w.last) > waitEnds:
		w.base, w.first = requests, time.Time{}
	}
	if grown {
		w.last = now
	}
	return w
}

// missing returns the number of requests since the last call if that is a problem, and else 0.
func (w *wait) missing(now time.Time, least uint64) uint64 {
	n, waited := w.requests-w.base, now.Sub(w.first)
	if w.first.IsZero() || n < least || waited < minWait || w.ever && (waited < minWaitAgain || n < factorAgain*w.longest) {
		return 0
	}
	return n
}
