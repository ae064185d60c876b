package server

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Bounds on the scrapes in flight: in total and per client address, so that a client that does not
// read its responses does not exclude Prometheus. An address gets a second scrape only while fewer
// than half of maxScrapes are in flight.
const (
	maxScrapes          = 8
	maxScrapesOfAddress = 2
)

// scrapeHandler serves metrics while the scrapes in flight are within these bounds, and status 503
// otherwise.
type scrapeHandler struct {
	metrics http.Handler

	mu        sync.Mutex
	total     int
	byAddress map[netip.Addr]int
}

func newScrapeHandler(m *telemetry.Metrics, o promhttp.HandlerOpts) *scrapeHandler {
	return &scrapeHandler{metrics: promhttp.HandlerFor(m.Registry, o), byAddress: map[netip.Addr]int{}}
}

func (s *scrapeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := clientAddress(r)
	if !s.acquire(address) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many scrapes are in flight", http.StatusServiceUnavailable)
		return
	}
	defer s.release(address)
	s.metrics.ServeHTTP(w, r)
}

// acquire counts a scrape of the address if the bounds allow it, and reports whether they do.
func (s *scrapeHandler) acquire(address netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byAddress[address]
	if s.total >= maxScrapes || n >= maxScrapesOfAddress || n > 0 && s.total >= maxScrapes/2 {
		return false
	}
	s.total++
	s.byAddress[address]++
	return true
}

func (s *scrapeHandler) release(address netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.byAddress[address]--; s.byAddress[address] == 0 {
		delete(s.byAddress, address)
	}
}
