package server

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Bounds on the scrapes in flight: of all clients, and of one client address, so that one that does not read its
// responses leaves room for Prometheus. An address gets a second one only while fewer than half are in flight.
const (
	maxScrapes          = 8
	maxScrapesOfAddress = 2
)

// scrapes answers with metrics, within bounds on the scrapes in flight. Beyond them it answers 503.
type scrapes struct {
	metrics http.Handler

	mu        sync.Mutex
	all       int
	byAddress map[netip.Addr]int
}

func newScrapes(m *telemetry.Metrics, o promhttp.HandlerOpts) *scrapes {
	return &scrapes{metrics: promhttp.HandlerFor(m.Registry, o), byAddress: map[netip.Addr]int{}}
}

func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := clientAddress(r)
	if !s.begin(address) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many scrapes are in flight", http.StatusServiceUnavailable)
		return
	}
	defer s.end(address)
	s.metrics.ServeHTTP(w, r)
}

// begin reports whether a scrape of the address has room, and counts it then.
func (s *scrapes) begin(address netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.byAddress[address]
	if s.all >= maxScrapes || of >= maxScrapesOfAddress || of > 0 && s.all >= maxScrapes/2 {
		return false
	}
	s.all++
	s.byAddress[address]++
	return true
}

func (s *scrapes) end(address netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.byAddress[address]--; s.byAddress[address] == 0 {
		delete(s.byAddress, address)
	}
}
