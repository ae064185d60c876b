package answer

import (
	"errors"
	"math"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
)

// Errors of [Service.Answer], in addition to errMalformed, *boundError and *access.DeniedError.
// errLate has grpc-go's text, the others those of envoyproxy/ratelimit.
var (
	errLate          = errors.New("context deadline exceeded")
	errEmptyDomain   = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
	errNoRules       = errors.New("no rate limit configuration loaded")
)

// Answer answers a request, an encoded RateLimitRequest, at the time now. It blocks until a store
// has decided the request. The reply is an encoded RateLimitResponse in x's memory, valid until the
// next use of x. The caller sends it after delay, which is at most budget, or calls
// [Service.Cancel]. Without a reply, the error is one of those above or a *storeError.
func (s *Service) Answer(now limiter.Time, budget time.Duration, x *Exchange, request []byte) (reply []byte, delay time.Duration, err error) {
	if err := x.await(s.Begin(now, budget, x, request, x.waiter())); err != nil {
		return nil, 0, err
	}
	delay = s.Finish(x)
	return x.reply, delay, nil
}

// Begin is the part of [Service.Answer] up to the decision. If done is false, w.Decided is called
// once the decision is made, and the caller must not use x or the request until then. After a
// decision without an error, the caller calls [Service.Finish].
func (s *Service) Begin(now limiter.Time, budget time.Duration, x *Exchange, request []byte, w limiter.Waiter) (done bool, err error) {
	x.decoder.reset()
	x.overLimit = false
	x.large = x.large || len(request) > MaxReusableRequest
	if err := x.decoder.decode(request, &s.settings.Bounds); err != nil {
		return true, err
	}
	req := &x.decoder.req
	rules := s.rules.Load()
	switch {
	case len(req.Domain) == 0:
		return true, errEmptyDomain
	case s.settings.Allow != nil && !x.Client.CanAccess(req.Domain):
		return true, access.Denied(x.Client, req.Domain)
	case len(req.Descriptors) == 0:
		return true, errNoDescriptors
	case rules == nil:
		return true, errNoRules
	}
	x.rules = rules

	s.planRequest(x, descriptors.Global{Quota: s.settings.QuotaMode}, budget)
	if x.DeadlinePassed && !x.plan.ReturnsLease() {
		x.rules = nil
		return true, errLate
	}
	if x.plan.Leases {
		x.leaseTime = now
	}
	return s.decide(now, x, w)
}

// planRequest fills x's batch with the charges of its request.
func (s *Service) planRequest(x *Exchange, global descriptors.Global, budget time.Duration) {
	global.Rows = x.rules.rows
	x.rules.set.Plan(&x.plan, &x.decoder.req, global)
	b := &x.plan.Batch
	b.Budget, b.Partition, b.Clock = max(0, budget), nil, s.now
	if i := x.plan.DomainIndex; i >= 0 {
		b.Partition = x.rules.partitions[i]
	}
	if s.decidesAsync {
		s.settings.Namer.Name(&x.plan, &x.decoder.req)
		b.Budget = max(1, b.Budget) // 0 would mean that the call has no deadline
	}
}

// Finish encodes the reply after the decision. The caller sends it after delay.
func (s *Service) Finish(x *Exchange) (delay time.Duration) {
	rules := x.rules
	x.rules = nil // a pooled exchange must not keep old rules in memory
	x.overLimit = x.plan.Batch.Denied
	if x.overLimit && s.settings.ShadowMode {
		x.overLimit = false
		s.metrics.GlobalShadow.Inc()
	}
	x.fillStatuses()
	if x.plan.Leases {
		x.plan.RecordCosts()
		s.recordLeases(rules, x)
	}
	if countingEnabled {
		s.countRequest(rules, x)
		if x.overLimit {
			s.metrics.Calls.Denied.Inc()
		}
	}

	overall := byte(codeOK)
	if x.overLimit {
		overall = codeOverLimit
	}
	b := x.reply[:0]
	b = append(b, 1<<3, overall) // overall_code
	for i := range x.statuses {
		b = appendStatus(b, &x.statuses[i])
	}
	var soft *descriptors.Limit
	if rules.reportsSoft {
		soft = x.softLimit(false)
	}
	if s.adds.headers || soft != nil || x.overLimit && rules.describesDenials {
		b = s.appendHeaders(b, x, rules, soft)
	}
	if s.adds.metadata || s.settings.DeniedBy && (x.overLimit || soft != nil) || x.plan.Leases && x.plan.Batch.HasLease() {
		b = s.appendMetadata(b, x, rules, soft)
	}
	x.reply = b
	return x.plan.Batch.Wait
}

// Cancel cancels the charges of a reply that is delayed, and releases their leases. It is called
// when the client has disconnected or reset the call before the reply was sent.
func (s *Service) Cancel(now limiter.Time, x *Exchange) {
	if x.plan.Leases {
		s.recordCancellation(x)
	}
	s.decider.Cancel(now, &x.plan.Batch, x.plan.Names)
}

// decide starts the decision of x's batch. If done is false, w.Decided is called when it completes.
func (s *Service) decide(now limiter.Time, x *Exchange, w limiter.Waiter) (done bool, err error) {
	if len(x.plan.Batch.Charges) == 0 { // nothing is limited
		return true, nil
	}
	if s.decidesAsync {
		x.undecided, x.service = true, s
	}
	done, err = s.decider.Decide(now, &x.plan.Batch, x.plan.Names, w)
	if done || err != nil {
		x.undecided = false
	}
	return done, WrapStoreError(err)
}

// describedMatch returns the index of the match that the headers describe: the last one that is over
// its limit and not a quota. If there is none, it is the first one with the fewest remaining hits, or
// -1 if none has a limit that is not hidden.
func (s *Service) describedMatch(x *Exchange) (described int) {
	described, fewest := -1, uint32(math.MaxUint32)
	for i := range x.statuses {
		st := &x.statuses[i]
		if st.limit == nil || st.hidden() {
			continue
		}
		if st.remaining < fewest {
			described, fewest = i, st.remaining
		}
		if st.code == codeOverLimit {
			if !s.isQuota(x, i) {
				described, fewest = i, 0
			}
		}
	}
	return described
}

// deniedMatch returns the index of the match that denied_by and the response to a denial describe,
// or -1: of those that deny the request, the last one that is not a quota, or the first one if all
// are quotas. One with a hidden limit is only described if all have one.
func (s *Service) deniedMatch(x *Exchange) (denied int) {
	denied = -1
	for i := range x.statuses {
		if !x.denies(i) {
			continue
		}
		hidden, hides := x.statuses[i].hidden(), denied >= 0 && x.statuses[denied].hidden()
		if denied < 0 || hides && !hidden || hides == hidden && !s.isQuota(x, i) {
			denied = i
		}
	}
	return denied
}

// denies reports whether match i denies the request. A quota over its limit does not if another
// quota passes.
func (x *Exchange) denies(i int) bool {
	if x.statuses[i].code != codeOverLimit {
		return false
	}
	at := x.statusCharge(&x.plan.Matches[i])
	return denies(&x.plan.Batch.Charges[at], &x.plan.Batch.Decisions[at])
}

// isQuota reports whether match i is a quota.
func (s *Service) isQuota(x *Exchange, i int) bool {
	rule := x.plan.Matches[i].Rule
	return s.settings.QuotaMode || rule != nil && rule.Quota
}

// appendHeaders appends the response headers and those of the forwarded request, and the body of a
// denial. soft is the result of [Exchange.softLimit].
func (s *Service) appendHeaders(b []byte, x *Exchange, rules *activeRules, soft *descriptors.Limit) []byte {
	described := s.describedMatch(x)
	var visible *descriptorStatus
	if described >= 0 {
		visible = &x.statuses[described]
	}
	if visible != nil && s.adds.limits {
		b = visible.appendHeaders(b, fieldResponseHeaders, &s.settings.Headers)
	}
	if s.adds.structured {
		b = x.appendStructured(b)
	}
	denying := s.deniedMatch(x)
	denied := s.deniedResponse(x, rules, denying)
	if x.overLimit {
		wait, never := x.retryAfter()
		if wait > 0 && (s.settings.RetryAfterHeader || !denied.IsNone()) && !s.adds.ownRetryAfter {
			b = appendHeader(b, fieldResponseHeaders, "Retry-After", ceilSeconds(wait))
		}
		if denied != nil {
			b = s.appendDenied(b, x, denied, denying, wait, never)
		}
	}
	if visible != nil && s.settings.RequestHeaders {
		names := Headers(s.settings.RequestNames)
		b = visible.appendHeaders(b, fieldRequestHeaders, &names)
	}
	if soft != nil && s.settings.SoftHeader != "" {
		b = s.appendSoftHeaders(b, x, soft)
	}
	return b
}
