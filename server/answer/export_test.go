package answer

import "testing"

// TestService is a service whose rules can be broken, for tests outside this package.
type TestService struct {
	*Service
	good   *activeRules
	faulty [3]*activeRules
}

// NewTestService returns a service with the given rules.
func NewTestService(t *testing.T, rules string) *TestService {
	t.Helper()
	s := service(t, Settings{}, rules)
	good := s.rules.Load()
	return &TestService{s, good, [3]*activeRules{
		{partitions: good.partitions, counters: good.counters, labels: good.labels}, // no set for matching
		{set: good.set, counters: good.counters, labels: good.labels},               // no partitions for charging
		{set: good.set, partitions: good.partitions, labels: good.labels},           // no counters for charged hits
	}}
}

// Break makes requests panic: 0 before they are matched, 1 before they are charged, 2 after that.
func (s *TestService) Break(stage int) { s.rules.Store(s.faulty[stage]) }

// Restore restores the rules after Break.
func (s *TestService) Restore() { s.rules.Store(s.good) }

// SimpleRequest returns a request for one hit.
var SimpleRequest = simpleRequest
