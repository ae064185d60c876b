package proxy_test

import "testing"

var startRanges = share("ranges", `
descriptors:
  - key: remote_address
    cidr: [10.0.0.0/8, 2001:db8::/32, 192.0.2.7]
    rate_limit: { unlimited: true }
  - key: remote_address
    cidr: [10.66.0.0/16]
    share_threshold: true
    rate_limit: { unit: year, requests_per_unit: 2, name: lab }
  - key: remote_address
    prefix: { v6: 64 }
    rate_limit: { unit: year, requests_per_unit: 1, name: others }
  - key: forwarded
    cidr: [10.0.0.0/8]
    rate_limit: { unit: year, requests_per_unit: 0, name: inside }
  - key: forwarded
    rate_limit: { unit: year, requests_per_unit: 1000, name: outside }
`, listener{
	routes: `[{ match: { path: /raw }, route: { rate_limits: [{ actions: [` + byHeader("x-real-ip", "forwarded") + `] }] } },
{ match: { prefix: / }, route: { rate_limits: [{ actions: [{ remote_address: {} }] }] } }]`,
	manager: "{ use_remote_address: true, xff_num_trusted_hops: 1 }",
})

// TestAddressRanges sends requests of many clients through Envoy, which sends their addresses.
func TestAddressRanges(t *testing.T) {
	p, limits := startRanges(t)
	before := metric(t, limits, "sluice_values_not_addresses_total")
	for i, tt := range []struct {
		path, address string
		status        int
	}{
		{"/", "10.1.2.3", 200},
		{"/", "10.1.2.3", 200},
		{"/", "192.0.2.7", 200},
		{"/", "192.0.2.7", 200},
		{"/", "2001:db8::1", 200},
		{"/", "2001:db8::1", 200},
		{"/", "::ffff:10.1.2.3", 200},
		{"/", "::ffff:10.1.2.3", 200},
		{"/", "10.66.0.1", 200}, // the longest range matches
		{"/", "10.66.0.2", 200},
		{"/", "10.66.0.3", 429},
		{"/", "198.51.100.1", 200},
		{"/", "198.51.100.1", 429},
		{"/", "198.51.100.2", 200},
		{"/", "2001:db9::1", 200},
		{"/", "2001:db9::2", 429}, // the same network of 64 bits
		{"/", "2001:db9:0:1::1", 200},
		// Envoy sends the header as it is.
		{"/raw", "10.1.2.3:4711", 429},
		{"/raw", "[::ffff:10.1.2.3]:4711", 429},
		{"/raw", "10.1.2.0/24", 429},
		{"/raw", "10.0.0.0/7", 200},
		{"/raw", "010.1.2.3", 200},
		{"/raw", "unknown", 200},
	} {
		if got := p.get(t, tt.path, "x-forwarded-for: "+tt.address, "x-real-ip: "+tt.address); got.status != tt.status {
			t.Errorf("request %d, %s from %s: %d, want %d", i+1, tt.path, tt.address, got.status, tt.status)
		}
	}
	if got := metric(t, limits, "sluice_values_not_addresses_total") - before; got != 2 {
		t.Errorf("%v values are not addresses, want 2", got)
	}
}

var startExempt = share("exempt", `
exempt:
  - { key: remote_address, cidr: [10.0.0.0/8, 2001:db8::/32] }
  - { key: forwarded, cidr: [10.0.0.0/8] }
  - { key: plan, value: internal }
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1, name: users } }
  - { key: remote_address, rate_limit: { unit: year, requests_per_unit: 0, name: addresses } }
`, listener{
	routes: `[{ match: { path: /raw }, route: { rate_limits: [{ actions: [` + byHeader("x-user", "user") + `] }, { actions: [` + byHeader("x-forwarded-for", "forwarded") + `] }] } },
{ match: { path: /plan }, route: { rate_limits: [{ actions: [` + byHeader("x-user", "user") + `] }, { actions: [` + byHeader("x-plan", "plan") + `] }] } },
{ match: { prefix: / }, route: { rate_limits: [{ actions: [` + byHeader("x-user", "user") + `] }, { actions: [{ remote_address: {} }] }] } }]`,
	manager: "{ use_remote_address: true, xff_num_trusted_hops: 1 }",
})

// TestExempt sends requests of exempt clients through Envoy, with several descriptors each, and
// requests whose header X-Forwarded-For claims an exempt address.
func TestExempt(t *testing.T) {
	p, limits := startExempt(t)
	before := metric(t, limits, "sluice_exempt_requests_total")
	for i, tt := range []struct {
		path, address, plan string
		status              int
	}{
		{"/", "10.1.2.3", "", 200},
		{"/", "10.1.2.3", "", 200},
		{"/", "2001:db8::1", "", 200},
		{"/", "::ffff:10.1.2.3", "", 200},
		{"/plan", "203.0.113.9", "internal", 200},
		{"/plan", "203.0.113.9", "internal", 200},
		{"/", "203.0.113.9", "", 429},
		{"/", "10.1.2.3, 203.0.113.9", "", 429}, // the client's own address is the last
		{"/plan", "203.0.113.9", "internal,free", 429},
		{"/plan", "10.1.2.3", "free", 429},
		// Envoy sends the header with the addresses of its peers, so no value is one address.
		{"/raw", "10.1.2.3", "", 429},
		{"/raw", "10.0.0.0/8", "", 429},
		{"/", "10.1.2.3", "", 200},
	} {
		if got := p.get(t, tt.path, "x-forwarded-for: "+tt.address, "x-user: u", "x-plan: "+tt.plan); got.status != tt.status {
			t.Errorf("request %d, %s from %s: %d, want %d", i+1, tt.path, tt.address, got.status, tt.status)
		}
	}
	if got := metric(t, limits, "sluice_exempt_requests_total") - before; got != 7 {
		t.Errorf("%v requests are exempt, want 7", got)
	}
}
