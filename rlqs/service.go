package rlqs

import (
	"crypto/rand"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3" // registers the API for reflection

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// Service implements [quota.Service]: it divides the limits of rules with quota.
type Service struct {
	options quota.Options
	hasher  identity.Hasher

	// mu guards all fields below except memoryBytes and lastSurvey. It is held for a bounded amount
	// of work only, so that rules, metrics and state queries need not wait. Methods whose names end
	// in Locked require it.
	mu           sync.Mutex
	divider      *division.Divider
	streams      map[division.StreamID]*Stream
	slots        slots
	waits        waits
	lastID       division.StreamID
	set          *descriptors.Set                      // the rules from which limits were computed
	limits       map[*descriptors.Rule]*division.Limit // computed when a rule is first used
	ruleOf       map[*division.Limit]*descriptors.Rule // inverse of limits
	ready        []division.StreamID
	divideTimer  *time.Timer
	scratch      scratch
	partialBytes int // bytes of incomplete fields that streams buffer
	closed       bool

	memoryBytes atomic.Int64 // approximate memory for clients

	surveyMu   sync.Mutex // guards lastSurvey; mu may be locked while it is held
	lastSurvey survey

	// The fields below belong to leader election.
	candidate           string                 // unique name of this service for the elector
	leaderships         map[string]*leadership // by domain
	toRelease           []string               // domains whose leadership is to be released
	acquiring, resigned bool
	acquisitions        sync.WaitGroup // running calls of the elector
	electionTimer       *time.Timer
	pendingWakes        []func()       // wake functions of failed streams, to be called by notify
	leaderChanges       []leaderChange // to be reported by notify
}

// scratch is memory that all streams share; Service.mu guards it.
type scratch struct {
	decoder decoderScratch
	entries [maxEntries]descriptors.Entry
	id      []byte
	actions []division.Action
}

// New returns a service. The caller must close it.
func New(o quota.Options) *Service {
	s := &Service{
		options: o, hasher: identity.NewKey().Hasher(), streams: map[division.StreamID]*Stream{}, slots: slots{clients: map[uint64]*client{}},
		divider: division.New(o.Elapsed(), maxBucketBytes),
	}
	s.divideTimer = time.AfterFunc(time.Hour, s.tick)
	s.divideTimer.Stop()
	if o.Elector != nil {
		s.candidate = o.Name[:min(len(o.Name), maxNameBytes)] + "-" + rand.Text()[:20] // unique
		s.electionTimer = time.AfterFunc(time.Hour, s.renewLeadership)
		s.electionTimer.Reset(0) // not by AfterFunc, because renewLeadership uses electionTimer
	}
	return s
}

// Close stops the service. Its streams must be closed by their transports.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.divideTimer.Stop()
	if s.electionTimer != nil {
		s.electionTimer.Stop()
	}
}

func (s *Service) tick() {
	defer s.options.Panics.Recover()
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.divideLocked()
}

// divideLocked does a bounded part of the divider's work and schedules the next part.
func (s *Service) divideLocked() {
	if s.closed {
		return
	}
	now := s.options.Elapsed()
	next := min(s.divider.Tick(now), s.failTimedOutLocked(now))
	if s.updateGaugesLocked().Buckets > 0 || len(s.streams) > 0 {
		s.divideTimer.Reset(max(next-now, time.Millisecond))
	}
}

// notify wakes the streams that have a message to send or that failed, and calls
// [quota.Options.LeaderChanged]. It must be called after each change, without s.mu, so that the callbacks
// cannot deadlock with a lock of the caller.
func (s *Service) notify() {
	wakes, changes := s.drainNotices()
	for _, wake := range wakes {
		wake()
	}
	if s.options.LeaderChanged != nil {
		for _, c := range changes {
			s.options.LeaderChanged(c.domain, c.leads, c.leader)
		}
	}
}

// drainNotices returns the pending wake functions and leader changes, and clears them.
func (s *Service) drainNotices() (wakes []func(), changes []leaderChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = s.divider.AppendReady(s.ready[:0])
	wakes = slices.Grow(s.pendingWakes, len(s.ready))
	changes = s.leaderChanges
	s.pendingWakes = nil
	s.leaderChanges = nil
	for _, id := range s.ready {
		if st := s.streams[id]; st != nil {
			wakes = append(wakes, st.wake)
		}
	}
	return wakes, changes
}

// limitLocked returns the quota limit of a rule.
func (s *Service) limitLocked(r *descriptors.Rule) *division.Limit {
	if l := s.limits[r]; l != nil {
		return l
	}
	l := limitOf(r, s.options.ShadowMode)
	if l != nil {
		if leadership := s.leaderships[r.Domain()]; leadership != nil {
			l.PredecessorUntil = leadership.predecessorUntil
		}
		s.limits[r] = l
		s.ruleOf[l] = r
	}
	return l
}

// limitOf returns the limit that is divided among Envoys for each bucket of the rule, or nil.
// With shadow, as in shadow mode, it denies nothing, but [division.Divider.CountShadowHits] uses its numbers.
func limitOf(r *descriptors.Rule, shadow bool) *division.Limit {
	q := r.Divided()
	if q == nil {
		return nil
	}
	l := &division.Limit{Burst: q.Burst, MinTokens: q.MinTokens}
	t := r.Limits[0]
	switch {
	case r.Unlimited:
		l.Strategy = division.AllowAll
	case r.Shadow, shadow:
		l.Strategy = division.AllowAll
		l.Hits = uint64(t.RequestsPerUnit)
		l.Window = t.Policy.Window
	case t.RequestsPerUnit == 0:
		l.Strategy = division.DenyAll
	default:
		l.Hits = uint64(t.RequestsPerUnit)
		l.Window = t.Policy.Window
	}
	return l
}

// activeRulesLocked returns the active rules, and updates what depends on them if they have
// changed.
func (s *Service) activeRulesLocked() *descriptors.Set {
	if set := s.options.Rules(); set != s.set || s.limits == nil {
		s.set = set
		s.clearLimitsLocked()
		for _, domain := range set.Divided() { // create the series, so that the first unmatched bucket is an increase
			s.options.Metrics.Quota.Unmatched.WithLabelValues(descriptors.MetricDomain(domain))
		}
		s.updateDomainsLocked()
	}
	return s.set
}

// clearLimitsLocked makes the service compute all limits again.
func (s *Service) clearLimitsLocked() {
	s.limits = map[*descriptors.Rule]*division.Limit{}
	s.ruleOf = map[*division.Limit]*descriptors.Rule{}
}

// rulesBatch is the number of buckets to which new rules are applied without releasing the lock.
const rulesBatch = 512

// RulesChanged applies the active rules to all buckets before it returns. It releases the lock
// between batches.
func (s *Service) RulesChanged() {
	for _, id := range s.startReapply() {
		for left := math.MaxInt; left > 0; {
			left = s.reapplyRules(id, left)
		}
	}
	if s.options.Elector != nil {
		s.renewLeadership()
	}
}

// startReapply switches to the active rules and returns the streams to whose buckets they have to
// be applied.
func (s *Service) startReapply() []division.StreamID {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.activeRulesLocked()
	return slices.Collect(maps.Keys(s.streams))
}

// reapplyRules applies the active rules to the next batch of a stream's buckets. left is the
// argument and the result of [division.Divider.EachBucket].
func (s *Service) reapplyRules(streamID division.StreamID, left int) int {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	st := s.streams[streamID]
	if st == nil {
		return 0
	}
	set := s.activeRulesLocked()
	now := s.options.Elapsed()
	left = s.divider.EachBucket(streamID, left, rulesBatch, func(key division.Bucket, id string) {
		s.scratch.id = append(s.scratch.id[:0], id...)
		u := usage{entries: s.scratch.decoder.entries[:0]}
		u.readID(s.scratch.id) // cannot fail, because appendID has written the ID
		var limit *division.Limit
		if rule, _ := (*reader)(st).matchRule(set, &u); rule != nil {
			limit = s.limitLocked(rule)
		}
		s.divider.SetLimit(now, key, limit)
	})
	s.divideLocked()
	return left
}

const (
	// MaxMemoryBytes is the greatest value that [Service.MemoryBytes] returns.
	MaxMemoryBytes = MaxStreams*(streamBytes+maxFieldBytes) + maxBucketBytes

	// maxBucketBytes bounds the memory of all buckets.
	maxBucketBytes = 48 << 20
	// streamBytes is the approximate memory of a stream, including its transport's part.
	streamBytes = 1 << 10
)

// MemoryBytes returns the approximate memory that the service uses for its clients. It takes no
// lock.
func (s *Service) MemoryBytes() int64 { return s.memoryBytes.Load() }

// updateGaugesLocked sets the metrics of streams and buckets, and the memory in use.
func (s *Service) updateGaugesLocked() division.Counts {
	m := &s.options.Metrics.Quota
	counts := s.divider.Counts()
	m.Streams.Set(float64(len(s.streams)))
	m.Buckets.Set(float64(counts.Buckets))
	m.Shares.Set(float64(counts.Shares))
	s.memoryBytes.Store(int64(len(s.streams)*streamBytes + s.partialBytes + counts.Bytes))
	return counts
}
