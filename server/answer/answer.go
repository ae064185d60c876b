package answer

import (
	"errors"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
)

// Errors of [Service.Answer], beside errMalformed, *boundError and *DeniedError. Their texts are
// those of envoyproxy/ratelimit.
var (
	errLate          = errors.New("context deadline exceeded") // in grpc-go's words
	errEmptyDomain   = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
	errNoRules       = errors.New("no rate limit configuration loaded")
)

// Answer answers one request at the time now. The request is the bytes of a RateLimitRequest, the
// reply those of a RateLimitResponse. The reply is a view of x's memory, valid until x is used
// again. The caller sends it after delay, which is at most budget, or calls [Service.Cancel]. An
// error means that there is no reply; the errors above are the reasons. With a store it waits for
// the store, with this goroutine.
func (s *Service) Answer(now limiter.Time, budget time.Duration, x *Exchange, request []byte) (reply []byte, delay time.Duration, err error) {
	if err := x.await(s.Begin(now, budget, x, request, x.waiting())); err != nil {
		return nil, 0, err
	}
	delay = s.Finish(x)
	return x.reply, delay, nil
}

// Begin is the part of [Service.Answer] up to the decision. It reports whether that is done; if
// not, w.Decided is called with it, and nobody may use x or the request until then. [Service.Finish]
// is the rest, if there is no error.
func (s *Service) Begin(now limiter.Time, budget time.Duration, x *Exchange, request []byte, w limiter.Waiter) (done bool, err error) {
	x.decoder.reset()
	x.over = false
	x.large = x.large || len(request) > MostKept
	if err := x.decoder.decode(request, &s.settings.Bounds); err != nil {
		return true, err
	}
	req := &x.decoder.req
	rules := s.rules.Load()
	switch {
	case len(req.Domain) == 0:
		return true, errEmptyDomain
	case s.settings.Allow != nil && !x.Client.May(req.Domain):
		return true, access.Denied(x.Client, req.Domain)
	case len(req.Descriptors) == 0:
		return true, errNoDescriptors
	case rules == nil:
		return true, errNoRules
	}
	x.rules = rules

	s.planRequest(x, descriptors.Global{Quota: s.settings.QuotaMode}, budget)
	if x.Late && !x.plan.ReturnsLease() {
		x.rules = nil
		return true, errLate
	}
	if x.plan.Leases {
		x.at = now
	}
	return s.decide(now, x, w)
}

// planRequest makes x's batch the charges of its request.
func (s *Service) planRequest(x *Exchange, global descriptors.Global, budget time.Duration) {
	global.Rows = x.rules.rows
	x.rules.set.Plan(&x.plan, &x.decoder.req, global)
	b := &x.plan.Batch
	b.Budget, b.Partition, b.Clock = max(0, budget), nil, s.now
	if i := x.plan.DomainIndex; i >= 0 {
		b.Partition = x.rules.partitions[i]
	}
	if s.later {
		s.settings.Namer.Name(&x.plan, &x.decoder.req)
		b.Budget = max(1, b.Budget) // 0 would have it wait for the store as if it had no deadline
	}
}

// Finish is the part of [Service.Answer] from the decision on.
func (s *Service) Finish(x *Exchange) (delay time.Duration) {
	rules := x.rules
	x.rules = nil // so that calls that are kept do not keep old rules
	x.over = x.plan.Batch.Denied
	if x.over && s.settings.ShadowMode {
		x.over = false
		s.metrics.GlobalShadow.Inc()
	}
	x.fillStatuses()
	if x.plan.Leases {
		x.plan.RecordCosts()
		s.noteLeases(rules, x)
	}
	if counting {
		s.count(rules, x)
	}

	overall := byte(codeOK)
	if x.over {
		overall = codeOverLimit
	}
	b := x.reply[:0]
	b = append(b, 1<<3, overall) // overall_code
	for i := range x.statuses {
		b = appendStatus(b, &x.statuses[i])
	}
	if s.settings.ResponseHeaders || s.settings.RequestHeaders || s.settings.RetryAfterHeader {
		b = s.appendHeaders(b, x)
	}
	if s.settings.DynamicMetadata || s.settings.DecisionMetadata || x.plan.Leases && x.plan.Batch.HasLease() {
		b = s.appendMetadata(b, x, rules)
	}
	x.reply = b
	return x.plan.Batch.Wait
}

// Cancel cancels the turns of the last answer's charges that wait, and gives back what they hold under leases, when a
// client went away at the time now while its reply was held.
func (s *Service) Cancel(now limiter.Time, x *Exchange) {
	if x.plan.Leases {
		s.noteCancel(x)
	}
	s.decider.Cancel(now, &x.plan.Batch, x.plan.Names)
}

// decide has x's batch decided. It reports whether that is done; if not, w is told when it is.
func (s *Service) decide(now limiter.Time, x *Exchange, w limiter.Waiter) (done bool, err error) {
	if len(x.plan.Batch.Charges) == 0 { // nothing is limited
		return true, nil
	}
	if s.later {
		x.undecided, x.service = true, s
	}
	done, err = s.decider.Decide(now, &x.plan.Batch, x.plan.Names, w)
	if done || err != nil {
		x.undecided = false
	}
	return done, NotDecided(err)
}

// appendHeaders appends the response headers and those of the forwarded request. They describe the last
// descriptor that is over its limit and not a quota. Without such, they describe the one with the least
// remaining, the first of equals.
func (s *Service) appendHeaders(b []byte, x *Exchange) []byte {
	var told *descriptorStatus
	var retry uint64
	least := uint32(math.MaxUint32)
	for i := range x.statuses {
		st := &x.statuses[i]
		if st.limit == nil {
			continue
		}
		if st.remaining < least {
			told, least = st, st.remaining
		}
		if st.code == codeOverLimit {
			retry = max(retry, st.resetSeconds)
			if rule := x.plan.Matches[i].Rule; !s.settings.QuotaMode && (rule == nil || !rule.Quota) {
				told, least = st, 0
			}
		}
	}
	if s.settings.ResponseHeaders && told != nil {
		b = told.appendHeaders(b, fieldResponseHeaders, &s.settings.Headers)
	}
	if s.settings.RetryAfterHeader && x.over && retry > 0 {
		b = appendHeader(b, fieldResponseHeaders, "Retry-After", retry)
	}
	if s.settings.RequestHeaders && told != nil {
		names := Headers(s.settings.RequestNames)
		b = told.appendHeaders(b, fieldRequestHeaders, &names)
	}
	return b
}
