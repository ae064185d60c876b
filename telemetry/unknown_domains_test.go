package telemetry

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestUnknownDomainMetricNames checks that metrics have their names in envoyproxy/ratelimit. A
// label distinguishes domains whose metrics have the same name.
func TestUnknownDomainMetricNames(t *testing.T) {
	m, err := New(Options{Tags: []Tag{{"zone", "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	m.UnknownDomains.Add([]byte("my.dom-ain/x"), 1)
	m.UnknownDomains.Add([]byte("my_dom_ain_x"), 2)
	m.UnknownDomains.Add([]byte("ip-10.0.0.1:80"), 3)
	m.UnknownDomains.Add([]byte("ip-10_0_0_1_80"), 4)
	const want = `# HELP ratelimit_service_rate_limit_ip_10_0_0_1_80_domain_not_found Descriptors of requests for this domain, which has no rules.
# TYPE ratelimit_service_rate_limit_ip_10_0_0_1_80_domain_not_found counter
ratelimit_service_rate_limit_ip_10_0_0_1_80_domain_not_found{domain="ip-10_0_0_1_80",zone="a"} 7
# HELP ratelimit_service_rate_limit_my_dom_ain_x_domain_not_found Descriptors of requests for this domain, which has no rules.
# TYPE ratelimit_service_rate_limit_my_dom_ain_x_domain_not_found counter
ratelimit_service_rate_limit_my_dom_ain_x_domain_not_found{domain="my.dom-ain/x",zone="a"} 1
ratelimit_service_rate_limit_my_dom_ain_x_domain_not_found{domain="my_dom_ain_x",zone="a"} 2
# HELP sluice_unknown_domain_descriptors_total Descriptors of requests for domains without rules.
# TYPE sluice_unknown_domain_descriptors_total counter
sluice_unknown_domain_descriptors_total{zone="a"} 10
`
	names := []string{"ratelimit_service_rate_limit_my_dom_ain_x_domain_not_found", "ratelimit_service_rate_limit_ip_10_0_0_1_80_domain_not_found", "sluice_unknown_domain_descriptors_total"}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// TestUnknownDomainsAreBounded has requests for many domains, including long ones and invalid
// labels. The number of series is bounded, and all descriptors are counted.
func TestUnknownDomainsAreBounded(t *testing.T) {
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	u := m.UnknownDomains
	u.Add([]byte(strings.Repeat("x", maxRuntimeKey+1)), 1)
	u.Add([]byte("not\xffUTF-8"), 1)
	for i := range 10 * MaxUnknownDomains {
		u.Add(fmt.Appendf(nil, "domain %d", i), 1)
	}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, sum := 0, 0.0
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), notFoundEnd) {
			for _, one := range f.GetMetric() {
				series++
				sum += one.GetCounter().GetValue()
			}
		}
	}
	if want := 2.0 + 10*MaxUnknownDomains; series != MaxUnknownDomains+1 || sum != want || testutil.ToFloat64(u.total) != want {
		t.Errorf("%d series with a sum of %v, and a total of %v, want %d and %v", series, sum, testutil.ToFloat64(u.total), MaxUnknownDomains+1, want)
	}
	// The bound also holds for concurrent requests.
	if u.addDomain([]byte("late")) != (*u.counts.Load())[other] {
		t.Error("a domain beyond the bound has its own count")
	}
	known, strange := []byte("domain 1"), []byte("domain 999")
	if n := must.AllocsPerRun(100, func() { u.Add(known, 1); u.Add(strange, 1) }); n > 0 {
		t.Errorf("known domains cause %v allocations", n)
	}
}

// TestUnknownDomainsWithOneName checks that the counts of domains with the same name in StatsD and
// labels are added without an overflow.
func TestUnknownDomainsWithOneName(t *testing.T) {
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.UnknownDomains.Add([]byte("a:b"), math.MaxUint64)
	m.UnknownDomains.Add([]byte("a|b"), 5)
	if got := sumOf(t, m, "ratelimit_service_rate_limit_a_b_domain_not_found"); got < math.MaxUint64 {
		t.Errorf("the sum of 2^64-1 and 5 descriptors is %v", got)
	}
}
