package rlqs

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/quota"
)

// Roles is where several sluices agree who of them divides a domain, such as a store that they share.
type Roles interface {
	// Hold has holder have the role of dividing each domain for a length of time, unless another has it; 0 gives roles
	// back. Answer is told who had a role before, "" for nobody. Of a role of which it is not told nothing is known. Hold
	// may take for ever.
	Hold(holder string, length time.Duration, domains []string, answer func(i int, before string))
}

// A role lasts roleLength where it is kept. Who has it believes so for roleBelieved only, from before it asked on: by the
// difference clocks may be wrong, and it may take as long to write what was taken. It asks each rolePace.
//
// An Envoy whose stream broke has a share for seven seconds more, and asks anew within five and each five after. So when
// a sluice dies, another has its roles before Envoys ask for the second time.
const (
	roleLength   = 4 * time.Second
	roleBelieved = 3 * time.Second
	rolePace     = 500 * time.Millisecond
)

// mostName is how much of the name of another holder is told to people.
const mostName = 60

// role is what is known of the role of dividing a domain.
type role struct {
	until quota.Time // it is ours until then; 0: it is not
	since quota.Time // [quota.Limit.Since]
	other string     // who else has it, "" if nobody is known to
	told  news
}

// news are what [Options.Role] was told last.
type news struct {
	domain, other string
	ours          bool
}

// holdsLocked reports whether this service divides a domain. Who shares roles with nobody divides all.
func (s *Service) holdsLocked(domain []byte) bool {
	r := s.roles[string(domain)]
	return r == nil || s.options.Elapsed() < r.until
}

// elsewhereLocked is the answer to who asks this service to divide a domain that it does not.
func (s *Service) elsewhereLocked(domain []byte) error {
	s.options.Metrics.Quota.Elsewhere.Inc()
	if other := s.roles[string(domain)].other; other != "" {
		return status.Errorf(codes.Unavailable, "%.*s divides domain %q, not this server", mostName, other, domain)
	}
	return status.Errorf(codes.Unavailable, "nobody is known to divide domain %q", domain)
}

// expectLocked makes the roles those of the domains that the set divides. Those that are new are nobody's yet.
func (s *Service) expectLocked() {
	if s.options.Roles == nil {
		s.options.Metrics.Quota.Roles.Set(float64(len(s.set.Divided())))
		return
	}
	roles := map[string]*role{}
	for _, domain := range s.set.Divided() {
		if roles[domain] = s.roles[domain]; roles[domain] == nil {
			roles[domain] = &role{}
		}
	}
	for domain, r := range s.roles {
		if roles[domain] == nil && r.until > 0 {
			s.left = append(s.left, domain)
		}
	}
	begun := map[string]bool{}
	for domain := range roles {
		begun[domain] = s.roles[domain] == nil
	}
	s.roles = roles
	s.endStreamsOfLocked(begun)
	s.countLocked()
}

func (s *Service) countLocked() {
	ours := 0
	for domain := range s.roles {
		if s.holdsLocked([]byte(domain)) {
			ours++
		}
	}
	s.options.Metrics.Quota.Roles.Set(float64(ours))
}

// follow looks after the roles, each rolePace.
func (s *Service) follow() {
	defer func() {
		if p := recover(); p != nil {
			s.options.Panics.Caught(p)
		}
	}()
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if s.closed || s.resigned {
		return
	}
	defer s.pace.Reset(rolePace)
	s.currentLocked()
	lost := map[string]bool{}
	for domain, r := range s.roles {
		if !s.holdsLocked([]byte(domain)) && r.until > 0 {
			r.until, lost[domain] = 0, true
		}
		s.reportLocked(domain, r)
	}
	s.endStreamsOfLocked(lost)
	s.countLocked()
	if s.asking || len(s.roles)+len(s.left) == 0 {
		return
	}
	s.asking = true
	domains := make([]string, 0, len(s.roles))
	for domain := range s.roles {
		domains = append(domains, domain)
	}
	left := s.left
	s.left = nil
	s.asks.Go(func() { s.ask(domains, left) })
}

// ask asks for roles, and gives those back that were left.
func (s *Service) ask(domains, left []string) {
	asked := s.options.Elapsed()
	s.hold(roleLength, domains, func(i int, before string) { s.heard(asked, domains[i], before) })
	s.hold(0, left, func(int, string) {})
	s.mu.Lock()
	s.asking = false
	s.mu.Unlock()
}

// hold is [Roles.Hold], which may panic.
func (s *Service) hold(length time.Duration, domains []string, answer func(i int, before string)) {
	defer func() {
		if p := recover(); p != nil {
			s.options.Panics.Caught(p)
		}
	}()
	if len(domains) > 0 {
		s.options.Roles.Hold(s.holder, length, domains, answer)
	}
}

// heard is told who had a role when it was asked for.
func (s *Service) heard(asked quota.Time, domain, before string) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	r, now := s.roles[domain], s.options.Elapsed()
	if r == nil || s.closed || s.resigned {
		return
	}
	switch {
	case before == s.holder && now < r.until:
		r.until = max(r.until, asked+roleBelieved)
	case before == s.holder || before == "":
		// It is ours anew. Who had it may believe so for a while yet, if the store has forgotten him. And so may we have:
		// others had it in between, or might have.
		r.until, r.since, r.other = asked+roleBelieved, now+roleBelieved, ""
		s.endStreamsOfLocked(map[string]bool{domain: true})
		s.forgetLimitsLocked()
	case r.until > 0:
		r.until = 0
		s.endStreamsOfLocked(map[string]bool{domain: true})
		fallthrough
	default:
		r.other = before
	}
	s.reportLocked(domain, r)
	s.countLocked()
}

// endStreamsOfLocked ends the streams of domains, whose Envoys then ask elsewhere.
func (s *Service) endStreamsOfLocked(domains map[string]bool) {
	if len(domains) == 0 {
		return
	}
	for _, st := range s.streams {
		if domains[string(st.name)] && st.Ended() == nil {
			s.endLocked(st, s.elsewhereLocked(st.name))
		}
	}
}

// reportLocked has [Options.Role] be told of a role if that is new.
func (s *Service) reportLocked(domain string, r *role) {
	if n := (news{domain, r.other, s.options.Elapsed() < r.until}); n != r.told {
		r.told = n
		s.news = append(s.news, n)
	}
}

// Resign gives all roles back, and ends the streams of their domains, so that another divides them. It waits for that,
// which may take for ever, so nobody should wait for it. It takes no new ones.
func (s *Service) Resign() {
	s.mu.Lock()
	if s.options.Roles == nil || s.resigned {
		s.mu.Unlock()
		return
	}
	s.resigned = true
	s.pace.Stop()
	left, all := s.left, map[string]bool{}
	for domain, r := range s.roles {
		if r.until > 0 {
			left = append(left, domain)
		}
		r.until, all[domain] = 0, true
		s.reportLocked(domain, r)
	}
	s.endStreamsOfLocked(all)
	s.countLocked()
	s.mu.Unlock()
	s.notify()
	s.asks.Wait() // what came to the store behind this would take the roles again
	s.hold(0, left, func(int, string) {})
}

// Serves returns the domains whose limits are divided, by this service or, where that is false, by another if any.
func (s *Service) Serves() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]bool{}
	for _, domain := range s.currentLocked().Divided() {
		all[domain] = s.holdsLocked([]byte(domain))
	}
	return all
}
