package rlqs

import (
	"crypto/rand"
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

	// mu guards all that follows but held and surveyed. It is never held for longer than a bounded amount of work takes, so that
	// rules, metrics and states need not wait. Methods whose names end in Locked need it.
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
		options: o, hasher: identity.NewKey().Hasher(), streams: map[quota.Holder]*Stream{}, slots: slots{clients: map[uint64]*client{}},
		divider: quota.New(o.Elapsed(), quota.Options{MaxBytes: mostBucketBytes}),
	}
	s.due = time.AfterFunc(time.Hour, s.tick)
	s.due.Stop()
	if o.Roles != nil {
		s.holder = o.Name[:min(len(o.Name), mostName)] + "-" + rand.Text()[:20] // which no other service has
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
	defer s.notify()
	defer s.mu.Unlock()
	s.divideLocked()
}

// divideLocked does a bounded part of the work that is due, and plans the next part.
func (s *Service) divideLocked() {
	if s.closed {
		return
	}
	now := s.options.Elapsed()
	next := min(s.divider.Tick(now), s.endLateLocked(now))
	if s.measureLocked().Buckets > 0 || len(s.streams) > 0 {
		s.due.Reset(max(next-now, time.Millisecond))
	}
}

// notify wakes the streams for which there is something to send, or that are to end, and has [Options.Role] called. It is
// called after each change, without s.mu, so that neither can wait for a lock that the caller has.
func (s *Service) notify() {
	wakes, roles := s.takeNotices()
	for _, wake := range wakes {
		wake()
	}
	if s.options.Role != nil {
		for _, n := range roles {
			s.options.Role(n.domain, n.ours, n.other)
		}
	}
}

// takeNotices returns the functions that wake streams, and the news of roles.
func (s *Service) takeNotices() (wakes []func(), roles []news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = s.divider.Ready(s.ready[:0])
	wakes, roles = slices.Grow(s.wakes, len(s.ready)), s.news
	s.wakes, s.news = nil, nil
	for _, h := range s.ready {
		if st := s.streams[h]; st != nil {
			wakes = append(wakes, st.wake)
		}
	}
	return wakes, roles
}

// limitLocked returns what is divided of a rule.
func (s *Service) limitLocked(r *descriptors.Rule) *quota.Limit {
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

// currentLocked returns the rules in force.
func (s *Service) currentLocked() *descriptors.Set {
	if set := s.options.Rules(); set != s.set || s.limits == nil {
		s.set = set
		s.forgetLimitsLocked()
		for _, domain := range set.Divided() { // so that the first bucket that no rule matches is an increase
			s.options.Metrics.Quota.Unmatched.WithLabelValues(descriptors.MetricDomain(domain))
		}
		s.expectLocked()
	}
	return s.set
}

// forgetLimitsLocked has the limits of all rules made again.
func (s *Service) forgetLimitsLocked() {
	s.limits, s.ruleOf = map[*descriptors.Rule]*quota.Limit{}, map[*quota.Limit]*descriptors.Rule{}
}

// rematchedAtOnce is how many buckets of a stream get their rule again before others may go on.
const rematchedAtOnce = 512

// RulesChanged applies the active rules to all buckets before it returns. It releases the lock now and then.
func (s *Service) RulesChanged() {
	s.mu.Lock()
	s.currentLocked()
	holders := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	s.notify()
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
	defer s.notify()
	defer s.mu.Unlock()
	st := s.streams[h]
	if st == nil {
		return 0
	}
	set, now := s.currentLocked(), s.options.Elapsed()
	left = s.divider.Each(h, left, rematchedAtOnce, func(key quota.Bucket, id string) {
		s.scratch.id = append(s.scratch.id[:0], id...)
		u := usage{entries: s.scratch.decoder.entries[:0]}
		u.readID(s.scratch.id) // it is ours
		var limit *quota.Limit
		if rule, _ := (*reader)(st).match(set, &u); rule != nil {
			limit = s.limitLocked(rule)
		}
		s.divider.Relimit(now, key, limit)
	})
	s.divideLocked()
	return left
}
