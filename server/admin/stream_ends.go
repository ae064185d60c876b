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
type streamEnds struct {
	waits map[waitID]*wait
	last  map[*telemetry.RuleCounters]telemetry.StreamEnds // counts that are not all 0, at the last advance
}

// waitID identifies a rule and the condition that is raised if its requests have no call.
type waitID struct {
	code    telemetry.Code
	subject string
}

// ruleEnds are the counts of a rule or limit since the last advance.
type ruleEnds struct {
	telemetry.StreamEnds
	everReceived, everReturned bool // before or since
}

// advance raises and ends conditions at the time now. each calls its argument with the counters of
// each limit. Sums of counters would fall when a rule loses a limit, so advance adds up the growth
// of each.
func (s *streamEnds) advance(
	now time.Time, conditions *telemetry.Conditions, r *answer.Active, each func(func(
		limit int, c *telemetry.RuleCounters,
	)),
) {
	limits := map[*descriptors.Limit]ruleEnds{}
	last := map[*telemetry.RuleCounters]telemetry.StreamEnds{}
	leases := map[string]uint64{} // leases that ended, by domain
	each(func(i int, c *telemetry.RuleCounters) {
		n, known := last[c]
		if !known {
			n = c.StreamEnds()
		}
		if n == (telemetry.StreamEnds{}) {
			return
		}
		last[c] = n
		if i < 0 || i >= len(r.Set.Limits) {
			return
		}
		l := r.Set.Limits[i]
		was := s.last[c]
		leases[l.Rule.Domain()] += n.Returned - was.Returned + n.Expired - was.Expired
		if n.CostsDue == 0 && n.Expired == 0 {
			return
		}
		sum := limits[l]
		sum.CostsDue += n.CostsDue - was.CostsDue
		sum.CostsDueLeased += n.CostsDueLeased - was.CostsDueLeased
		sum.CostsReceived += n.CostsReceived - was.CostsReceived
		sum.Returned += n.Returned - was.Returned
		sum.Expired += n.Expired - was.Expired
		sum.everReceived = sum.everReceived || n.CostsReceived > 0
		sum.everReturned = sum.everReturned || n.Returned > 0
		limits[l] = sum
	})
	s.last = last
	rules := map[*descriptors.Rule]ruleEnds{}
	for l, n := range limits {
		sum := rules[l.Rule]
		sum.CostsDue = max(sum.CostsDue, n.CostsDue) // a request has one cost for all limits of its rule
		sum.CostsDueLeased = max(sum.CostsDueLeased, n.CostsDueLeased)
		sum.CostsReceived += n.CostsReceived
		sum.Returned += n.Returned
		sum.Expired += n.Expired
		sum.everReceived = sum.everReceived || n.everReceived
		sum.everReturned = sum.everReturned || n.everReturned
		rules[l.Rule] = sum
	}
	waits := map[waitID]*wait{}
	check := func(id waitID, ever bool, received, requests, ended, least uint64, fields ...zap.Field) {
		w := s.waits[id]
		if w == nil {
			w = &wait{ever: ever}
		}
		w.advance(now, received, requests, ended)
		waits[id] = w
		if missing := w.missing(now, least); missing > 0 {
			conditions.Update(id.code, id.subject, append(fields, zap.Uint64("requests", missing))...)
		} else {
			conditions.End(id.code, id.subject)
		}
	}
	for rule, n := range rules {
		subject := rule.Domain() + ": " + rule.Path()
		domain := zap.String("domain", rule.Domain())
		path := zap.String("rule", rule.Path())
		source := zap.String("source", rule.Pos().String())
		check(waitID{telemetry.CostsMissing, subject}, n.everReceived, n.CostsReceived, n.CostsDue,
			n.CostsDue-n.CostsDueLeased+leases[rule.Domain()], minCosts, domain, path, source, zap.Int("charged", 0))
		check(waitID{telemetry.LeasesNotReturned, subject}, n.everReturned, n.Returned, n.Expired, n.Expired, minLeases,
			domain, path, source, zap.Int("returned", 0))
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
	// minWait is the minimum time since the first of these requests. It is minWaitAgain if there were
	// calls before, or if their leases have not ended: streams may be long, and a rule may count only
	// failures.
	minWait, minWaitAgain = 2 * time.Second, time.Minute
	// factorAgain times the longest sequence of requests without a call is the minimum number of
	// requests if there were calls before.
	factorAgain = 10
	// waitEnds is the time without such requests after which a wait ends.
	waitEnds = 10 * time.Minute
)

// wait describes the requests of a rule since the last call at the end of a stream.
type wait struct {
	requests    uint64    // number of requests since the last call
	ended       uint64    // number of streams since then that have ended, or whose end is unknown
	longest     uint64    // most requests between two calls
	ever        bool      // there was a call
	first, last time.Time // first and last request since the last call; zero if there was none
}

// advance records the received calls, the requests and the ended streams since the last advance, at
// the time now.
func (w *wait) advance(now time.Time, received, requests, ended uint64) {
	if now.Before(w.last) { // the clock was set back
		w.first = now
		w.last = now
	}
	w.requests += requests
	w.ended += ended
	switch {
	case received > 0:
		w.longest = max(w.longest, w.requests)
		w.requests = 0
		w.ever = true
		w.first = time.Time{}
	case requests > 0 && w.first.IsZero():
		w.first = now
	case requests == 0 && now.Sub(w.last) > waitEnds:
		w.requests = 0
		w.first = time.Time{}
	}
	if w.first.IsZero() {
		w.ended = 0
	}
	if requests > 0 {
		w.last = now
	}
}

// missing returns the number of requests since the last call if that is a problem, and else 0.
func (w *wait) missing(now time.Time, least uint64) uint64 {
	waited := now.Sub(w.first)
	least = max(least, factorAgain*w.longest)
	if w.first.IsZero() || w.requests < least || waited < minWait ||
		waited < minWaitAgain && (w.ever || w.ended < least) {
		return 0
	}
	return w.requests
}
