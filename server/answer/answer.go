package answer

import (
	"errors"
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
func (s *Service) Answer(
	now limiter.Time, budget time.Duration, x *Exchange, request []byte,
) (reply []byte, delay time.Duration, err error) {
	if err := x.await(s.Begin(now, budget, x, request, x.waiter())); err != nil {
		return nil, 0, err
	}
	delay = s.Finish(x)
	return x.reply, delay, nil
}

// Begin is the part of [Service.Answer] up to the decision. If done is false, w.Decided is called
// once the decision is made, and the caller must not use x or the request until then. After a
// decision without an error, the caller calls [Service.Finish].
func (s *Service) Begin(
	now limiter.Time, budget time.Duration, x *Exchange, request []byte, w limiter.Waiter,
) (done bool, err error) {
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
	if x.plan.Leases || rules.notices {
		x.time = now
	}
	return s.decide(now, x, w)
}

// planRequest fills x's batch with the charges of its request.
func (s *Service) planRequest(x *Exchange, global descriptors.Global, budget time.Duration) {
	global.Rows = x.rules.rows
	x.rules.set.Plan(&x.plan, &x.decoder.req, global)
	b := &x.plan.Batch
	b.Budget = max(0, budget)
	b.Partition = nil
	b.Clock = s.now
	if i := x.plan.DomainIndex; i >= 0 {
		b.Partition = x.rules.partitions[i]
	}
	if s.decidesAsync {
		s.settings.Namer.Name(&x.plan, &x.decoder.req)
		b.Budget = max(1, b.Budget) // 0 would mean that the call has no deadline
		if x.rules.notices && !global.ReadOnly {
			b.Observer = x
		}
	}
}

// Finish encodes the reply after the decision. The caller sends it after delay.
func (s *Service) Finish(x *Exchange) (delay time.Duration) {
	rules := x.rules
	x.rules = nil // a pooled exchange must not keep old rules in memory
	x.overLimit = x.plan.Batch.Denied
	x.quotaPasses = x.overLimit && x.findQuotaPass()
	if x.plan.Choices {
		x.plan.Choose()
	}
	if x.overLimit && s.settings.ShadowMode {
		x.overLimit = false
		s.metrics.GlobalShadow.Inc()
	}
	x.fillStatuses()
	if x.plan.Leases {
		x.plan.RecordCosts()
		s.recordLeases(rules, x)
	}
	if rules.notices {
		s.writeNotices(x)
	}
	s.countRequest(rules, x)
	if x.overLimit {
		s.metrics.Calls.Denied.Inc()
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
	headers := s.adds.headers || soft != nil || x.overLimit && rules.describesDenials
	namesLimit := s.settings.DeniedBy && (x.overLimit || soft != nil)
	metadata := s.adds.metadata || namesLimit || x.plan.Leases && x.plan.Batch.HasLease()
	if headers || metadata {
		described := s.summarize(x)
		if headers {
			b = s.appendHeaders(b, x, rules, &described, soft)
		}
		if metadata {
			b = s.appendMetadata(b, x, rules, described.denying, soft)
		}
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
		x.undecided = true
		x.service = s
	}
	done, err = s.decider.Decide(now, &x.plan.Batch, x.plan.Names, w)
	if done || err != nil {
		x.undecided = false
	}
	return done, WrapStoreError(err)
}

// appendHeaders appends the response headers and those of the forwarded request, and the body of a
// denial. soft is the result of [Exchange.softLimit].
func (s *Service) appendHeaders(
	b []byte, x *Exchange, rules *activeRules, all *summary, soft *descriptors.Limit,
) []byte {
	var visible *descriptorStatus
	if all.described >= 0 {
		visible = &x.statuses[all.described]
	}
	if visible != nil && s.adds.limits {
		b = visible.appendHeaders(b, fieldResponseHeaders, &s.settings.Headers)
	}
	if s.adds.structured {
		b = x.appendStructured(b)
	}
	if x.overLimit {
		denied := s.deniedResponse(x, rules, all.denying)
		if all.wait > 0 && !all.hopeless && (s.settings.RetryAfterHeader || !denied.IsNone()) && !s.adds.ownRetryAfter {
			b = appendHeader(b, fieldResponseHeaders, "Retry-After", ceilSeconds(all.wait))
		}
		if denied != nil {
			b = s.appendDenied(b, x, denied, all)
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
