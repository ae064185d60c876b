package rlqs

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// A leadership lasts leaseDuration in the store. The leader trusts it for renewDeadline, measured
// from before the request was sent, and renews it every retryPeriod. The difference between the
// first two covers clock drift and the time to write messages that were taken.
//
// An Envoy whose stream broke keeps its share for seven more seconds, and reconnects within five
// seconds and every five seconds after that. When a leader dies, another replica is therefore
// elected before Envoys reconnect for the second time.
const (
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

// maxNameBytes bounds the name of another leader in messages.
const maxNameBytes = 60

type leadership struct {
	until            division.Time // this service is the leader until this time; 0 if it is not
	predecessorUntil division.Time // until then, another leader may have assigned rates
	leader           string        // name of another leader, "" if unknown
	notified         leaderChange  // last call of Options.LeaderChanged
}

// leaderChange is a call of [Options.LeaderChanged].
type leaderChange struct {
	domain, leader string
	leads          bool
}

// leadsLocked reports whether this service divides a domain. Without an elector it divides all.
func (s *Service) leadsLocked(domain []byte) bool {
	l := s.leaderships[string(domain)]
	return l == nil || s.options.Elapsed() < l.until
}

// notLeaderErrorLocked returns the error of a stream for a domain that this service does not
// divide.
func (s *Service) notLeaderErrorLocked(domain []byte) error {
	s.options.Metrics.Quota.MisdirectedStreams.Inc()
	if leader := s.leaderships[string(domain)].leader; leader != "" {
		return status.Errorf(codes.Unavailable, "domain %q is divided by %.*s, not by this server", domain,
			maxNameBytes, leader)
	}
	return status.Errorf(codes.Unavailable, "no server is known to divide domain %q", domain)
}

// updateDomainsLocked makes leaderships match the domains that the rules divide. New domains have
// no known leader.
func (s *Service) updateDomainsLocked() {
	if s.options.Elector == nil {
		s.options.Metrics.Quota.LeaderDomains.Set(float64(len(s.set.Divided())))
		return
	}
	leaderships := map[string]*leadership{}
	for _, domain := range s.set.Divided() {
		if leaderships[domain] = s.leaderships[domain]; leaderships[domain] == nil {
			leaderships[domain] = &leadership{}
		}
	}
	for domain, l := range s.leaderships {
		if leaderships[domain] == nil && l.until > 0 {
			s.toRelease = append(s.toRelease, domain)
		}
	}
	// A restored domain is acquired again, and must not be released after that.
	s.toRelease = slices.DeleteFunc(s.toRelease, func(domain string) bool { return leaderships[domain] != nil })
	added := map[string]bool{}
	for domain := range leaderships {
		added[domain] = s.leaderships[domain] == nil
	}
	s.leaderships = leaderships
	s.failDomainStreamsLocked(added)
	s.countDomainsLocked()
}

func (s *Service) countDomainsLocked() {
	led := 0
	for domain := range s.leaderships {
		if s.leadsLocked([]byte(domain)) {
			led++
		}
	}
	s.options.Metrics.Quota.LeaderDomains.Set(float64(led))
}

// renewLeadership runs every retryPeriod. It ends leaderships that were not renewed in time and
// starts the next renewal.
func (s *Service) renewLeadership() {
	defer s.options.Panics.Recover()
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.closed || s.resigned {
		return
	}
	defer s.electionTimer.Reset(retryPeriod)
	s.activeRulesLocked()
	lost := map[string]bool{}
	for domain, l := range s.leaderships {
		if !s.leadsLocked([]byte(domain)) && l.until > 0 {
			l.until = 0
			lost[domain] = true
		}
		s.queueLeaderChangeLocked(domain, l)
	}
	s.failDomainStreamsLocked(lost)
	s.countDomainsLocked()
	if s.acquiring || len(s.leaderships)+len(s.toRelease) == 0 {
		return
	}
	s.acquiring = true
	domains := make([]string, 0, len(s.leaderships))
	for domain := range s.leaderships {
		domains = append(domains, domain)
	}
	released := s.toRelease
	s.toRelease = nil
	s.acquisitions.Go(func() { s.acquire(domains, released) })
}

// acquire acquires or renews the leadership of domains and releases that of released.
func (s *Service) acquire(domains, released []string) {
	requested := s.options.Elapsed()
	s.callElector(leaseDuration, domains,
		func(i int, previous string) { s.handleLeader(requested, domains[i], previous) })
	s.callElector(0, released, func(int, string) {})
	s.mu.Lock()
	s.acquiring = false
	s.mu.Unlock()
}

// callElector calls the elector, which may panic.
func (s *Service) callElector(ttl time.Duration, domains []string, report func(i int, previous string)) {
	defer s.options.Panics.Recover()
	if len(domains) > 0 {
		s.options.Elector.AcquireLeadership(s.candidate, ttl, domains, report)
	}
}

// handleLeader processes the elector's report of the previous leader of a domain. requested is a
// time before the request was sent.
func (s *Service) handleLeader(requested division.Time, domain, previous string) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	l := s.leaderships[domain]
	now := s.options.Elapsed()
	if l == nil || s.closed || s.resigned {
		return
	}
	switch {
	case previous == s.candidate && now < l.until:
		l.until = max(l.until, requested+renewDeadline)
	case previous == s.candidate || previous == "":
		// This service becomes the leader, maybe again. If the store lost the key, the previous
		// leader may assign rates for another renewDeadline. If this service was the leader before,
		// its rates of that time may be outdated, because another may have been the leader since.
		// predecessorUntil covers both cases.
		l.until = requested + renewDeadline
		l.predecessorUntil = now + renewDeadline
		l.leader = ""
		s.failDomainStreamsLocked(map[string]bool{domain: true})
		s.clearLimitsLocked()
	case l.until > 0:
		l.until = 0
		s.failDomainStreamsLocked(map[string]bool{domain: true})
		fallthrough
	default:
		l.leader = previous
	}
	s.queueLeaderChangeLocked(domain, l)
	s.countDomainsLocked()
}

// failDomainStreamsLocked fails the streams of domains, whose Envoys then connect to another
// replica.
func (s *Service) failDomainStreamsLocked(domains map[string]bool) {
	if len(domains) == 0 {
		return
	}
	for _, st := range s.streams {
		if domains[string(st.domain)] && st.Err() == nil {
			s.failLocked(st, s.notLeaderErrorLocked(st.domain))
		}
	}
}

// queueLeaderChangeLocked queues a call of [Options.LeaderChanged] if the state of the domain has
// changed.
func (s *Service) queueLeaderChangeLocked(domain string, l *leadership) {
	if n := (leaderChange{domain, l.leader, s.options.Elapsed() < l.until}); n != l.notified {
		l.notified = n
		s.leaderChanges = append(s.leaderChanges, n)
	}
}

// Resign releases all leaderships and fails the streams of their domains, so that another replica
// divides them. It acquires none afterwards. It waits for the store, which may block forever, so
// callers must not depend on its return.
func (s *Service) Resign() {
	domains, ok := s.resign()
	if !ok {
		return
	}
	s.acquisitions.Wait() // a request that the store receives later would acquire the leaderships again
	s.callElector(0, domains, func(int, string) {})
}

// resign ends all leaderships of this service and returns the domains to release. ok is false if
// there is no elector, or if the service has resigned before.
func (s *Service) resign() (domains []string, ok bool) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.options.Elector == nil || s.resigned {
		return nil, false
	}
	s.resigned = true
	s.electionTimer.Stop()
	domains = s.toRelease
	all := map[string]bool{}
	for domain, l := range s.leaderships {
		if l.until > 0 {
			domains = append(domains, domain)
		}
		l.until = 0
		all[domain] = true
		s.queueLeaderChangeLocked(domain, l)
	}
	s.failDomainStreamsLocked(all)
	s.countDomainsLocked()
	return domains, true
}

// DividedDomains returns the domains with divided limits. The value is true if this service divides
// the domain.
func (s *Service) DividedDomains() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]bool{}
	for _, domain := range s.activeRulesLocked().Divided() {
		all[domain] = s.leadsLocked([]byte(domain))
	}
	return all
}
