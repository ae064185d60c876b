package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxUnknownDomains bounds the domains without rules that have series of their own. The rest count
// as the domain "other", since clients choose the names.
const MaxUnknownDomains = 100

// UnknownDomains counts descriptors of requests for domains without rules. Its methods may be
// called concurrently.
type UnknownDomains struct {
	total prometheus.Counter
	// counts maps a domain, as in requests, to its count, and "other" to that of all others. It is
	// read without the lock and replaced under it.
	counts atomic.Pointer[map[string]*atomic.Uint64]
	mu     sync.Mutex
}

func newUnknownDomains(r *registry) *UnknownDomains {
	u := &UnknownDomains{total: r.counter("sluice_unknown_domain_descriptors_total",
		"Descriptors of requests for domains without rules.")}
	u.counts.Store(&map[string]*atomic.Uint64{other: {}})
	r.Register(u)
	return u
}

// Add counts descriptors of a request for the domain. It allocates only for a new domain.
func (u *UnknownDomains) Add(domain []byte, descriptors uint64) {
	u.total.Add(float64(descriptors))
	counts := *u.counts.Load()
	count := counts[string(domain)]
	if count == nil && len(counts) > MaxUnknownDomains {
		count = counts[other] // the bound is reached
	}
	if count == nil {
		count = u.addDomain(domain)
	}
	add(count, descriptors)
}

// addDomain returns the count of a domain, a new one if it has none.
func (u *UnknownDomains) addDomain(domain []byte) *atomic.Uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	counts := *u.counts.Load()
	name := other
	if len(counts) <= MaxUnknownDomains && len(domain) <= maxRuntimeKey && utf8.Valid(domain) {
		name = string(domain)
	}
	if counts[name] == nil {
		counts = maps.Clone(counts)
		counts[name] = &atomic.Uint64{}
		u.counts.Store(&counts)
	}
	return counts[name]
}

// Counts returns the number of descriptors by domain, those beyond the bound under "other".
func (u *UnknownDomains) Counts() map[string]uint64 {
	all := map[string]uint64{}
	for domain, count := range *u.counts.Load() {
		if n := count.Load(); n > 0 {
			all[domain] = n
		}
	}
	return all
}

var _ prometheus.Collector = (*UnknownDomains)(nil)

// Describe implements [prometheus.Collector]. It describes nothing, since the names depend on
// requests.
func (u *UnknownDomains) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector]. envoyproxy/ratelimit has a metric for each domain. The
// label distinguishes domains whose metrics have the same name.
func (u *UnknownDomains) Collect(ch chan<- prometheus.Metric) {
	sums := map[string]float64{} // float64, since each count may be 2^64-1
	for domain, count := range *u.counts.Load() {
		if n := count.Load(); n > 0 {
			sums[sanitizeName(sanitizeIPv4(domain))] += float64(n)
		}
	}
	for domain, sum := range sums {
		desc := prometheus.NewDesc(notFoundStart+metricName(domain)+notFoundEnd,
			"Descriptors of requests for this domain, which has no rules.", []string{"domain"}, nil)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, sum, domain)
	}
}

// Prefix and suffix of the metric of a domain.
const (
	notFoundStart = "ratelimit_service_rate_limit_"
	notFoundEnd   = "_domain_not_found"
)
