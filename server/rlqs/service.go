package rlqs

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3" // which reflection describes

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// ServiceName is the gRPC service's full name, and MethodName that of its only method.
const (
	ServiceName = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
	MethodName  = "StreamRateLimitQuotas"
)

// Options are a service's.
type Options struct {
	// Elapsed is a clock that never goes back.
	Elapsed func() time.Duration
	// Rules returns the rules in force, or nil.
	Rules func() *descriptors.Set
	// ShadowMode lets every request pass.
	ShadowMode bool
	// Allow says who may ask for which domain. Nil lets everybody.
	Allow *access.AllowList
	// Count is told what Envoys have done by a rule of a set. The entries are those of the bucket's descriptor. Beyond are
	// those allowed that a limit in shadow mode would have denied.
	Count func(set *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied, beyond uint64)
	// Metrics count.
	Metrics *telemetry.Metrics
	// Roles, if not nil, says which domains this service divides of those that several share. Name is its own, for people.
	Roles Roles
	Name  string
	// Role is told whether this service divides a domain, when that changes, and who else does if that is known. Optional.
	Role func(domain string, ours bool, other string)
	// Panics are told of panics of what is done by itself.
	Panics *telemetry.Panics
}

// Service divides the limits of rules that say so among those who report to it. Its methods may be called concurrently.
type Service struct {
	options Options
	hasher  identity.Hasher

	// mu is never held for longer than a bounded amount of work takes, so that rules, metrics and states need not wait.
	mu      sync.Mutex
	divider *quota.Divider
	streams map[quota.Holder]*Stream
	slots   slots
	waits   waits
	newest  quota.Holder
	set     *descriptors.Set                   // of which limits are
	limits  map[*descriptors.Rule]*quota.Limit // of the rules that were asked for
	ruleOf  map[*quota.Limit]*descriptors.Rule // is the inverse of limits
	ready   []quota.Holder
	due     *time.Timer
	scratch scratch
	parts   int // bytes that streams keep of their reports
	closed  bool

	held atomic.Int64 // see Held

	surveying sync.Mutex // guards surveyed; mu may be locked under it
	surveyed  survey

	// What follows is for roles.
	holder           string
	roles            map[string]*role // by domain
	left             []string         // domains whose roles are to be given back
	asking, resigned bool
	asks             sync.WaitGroup // of what is asked
	pace             *time.Timer
	wakes            []func() // of streams that were ended
	news             []news   // that nobody was told of
}

// scratch is memory that all streams use in turn.
type scratch struct {
	decoder decoderScratch
	entries [mostEntries]descriptors.Entry
	id      []byte
	actions []quota.Action
}

// New returns a service. Whoever makes it closes it.
func New(o Options) *Service {
	s := &Service{
		options: o, hasher: identity.NewKey().Hasher(), streams: map[quota.Holder]*Stream{}, slots: newSlots(),
		divider: quota.New(o.Elapsed(), quota.Options{MaxBytes: mostBucketBytes}),
	}
	s.due = time.AfterFunc(time.Hour, s.tick)
	s.due.Stop()
	if o.Roles != nil {
		s.holder = newHolder(o.Name)
		s.pace = time.AfterFunc(time.Hour, s.follow)
		s.pace.Reset(0) // now that there is s.pace
	}
	return s
}

// Close ends the service. Streams are those of their transports.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.due.Stop()
	if s.pace != nil {
		s.pace.Stop()
	}
}

// tick does what is due.
func (s *Service) tick() {
	defer func() {
		if p := recover(); p != nil {
			s.options.Panics.Caught(p)
		}
	}()
	s.mu.Lock()
	defer s.tell()
	s.divide()
}

// divide does a bounded part of the work that is due, and plans the next part. s.mu is held.
func (s *Service) divide() {
	if s.closed {
		return
	}
	now := s.options.Elapsed()
	next := min(s.divider.Tick(now), s.endLate(now))
	if s.measure().Buckets > 0 || len(s.streams) > 0 {
		s.due.Reset(max(next-now, time.Millisecond))
	}
}

// tell releases s.mu, and tells streams that there is something to send, or that they are to end.
func (s *Service) tell() {
	wakes, told := s.untold()
	for _, wake := range wakes {
		wake()
	}
	if s.options.Role != nil {
		for _, n := range told {
			s.options.Role(n.domain, n.ours, n.other)
		}
	}
}

// untold releases s.mu, whatever happens. It returns what wakes the streams for which there is something to send, and the news of
// roles.
func (s *Service) untold() (wakes []func(), told []news) {
	defer s.mu.Unlock()
	s.ready = s.divider.Ready(s.ready[:0])
	wakes, told = slices.Grow(s.wakes, len(s.ready)), s.news
	s.wakes, s.news = nil, nil
	for _, h := range s.ready {
		if st := s.streams[h]; st != nil {
			wakes = append(wakes, st.wake)
		}
	}
	return wakes, told
}

// limit returns what is divided of a rule. s.mu is held.
func (s *Service) limit(r *descriptors.Rule) *quota.Limit {
	if l := s.limits[r]; l != nil {
		return l
	}
	l := r.QuotaLimit(s.options.ShadowMode)
	if l != nil {
		if ours := s.roles[r.Domain()]; ours != nil {
			l.Since = ours.since
		}
		s.limits[r], s.ruleOf[l] = l, r
	}
	return l
}

// current returns the rules in force. s.mu is held.
func (s *Service) current() *descriptors.Set {
	if set := s.options.Rules(); set != s.set || s.limits == nil {
		s.set = set
		s.forgetLimits()
		for _, domain := range set.Divided() { // so that the first bucket that no rule matches is an increase
			s.options.Metrics.Quota.Unmatched.WithLabelValues(descriptors.MetricDomain(domain))
		}
		s.expect()
	}
	return s.set
}

// forgetLimits has the limits of all rules made again. s.mu is held.
func (s *Service) forgetLimits() {
	s.limits, s.ruleOf = map[*descriptors.Rule]*quota.Limit{}, map[*quota.Limit]*descriptors.Rule{}
}

// rematchedAtOnce is how many buckets of a stream get their rule again before others may go on.
const rematchedAtOnce = 512

// RulesChanged applies the active rules to all buckets before it returns. It releases the lock now and then.
func (s *Service) RulesChanged() {
	s.mu.Lock()
	s.current()
	holders := slices.Collect(maps.Keys(s.streams))
	s.tell()
	for _, h := range holders {
		for left := math.MaxInt; left > 0; {
			left = s.rematch(h, left)
		}
	}
	if s.options.Roles != nil {
		s.follow()
	}
}

// rematch applies the active rules to some of the buckets of a stream: see [quota.Divider.Each].
func (s *Service) rematch(h quota.Holder, left int) int {
	s.mu.Lock()
	defer s.tell()
	st := s.streams[h]
	if st == nil {
		return 0
	}
	set, now := s.current(), s.options.Elapsed()
	left = s.divider.Each(h, left, rematchedAtOnce, func(key quota.Bucket, id string) {
		s.scratch.id = append(s.scratch.id[:0], id...)
		u := usage{entries: s.scratch.decoder.entries[:0]}
		u.readID(s.scratch.id) // it is ours
		var limit *quota.Limit
		if rule, _ := (*reader)(st).match(set, &u); rule != nil {
			limit = s.limit(rule)
		}
		s.divider.Relimit(now, key, limit)
	})
	s.divide()
	return left
}
