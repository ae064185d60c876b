package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExplain(t *testing.T) {
	s := load(t, Options{}, `domain: shop
descriptors:
  - key: user
    value: vip*
    shadow_mode: true
    share_threshold: true
    descriptors:
      - key: path
        value: /api/*
        rate_limits:
          - {unit: minute, requests_per_unit: 60}
          - {unit: minute, requests_per_unit: 30, shadow: true}
          - {unit: day, requests_per_unit: 1000, name: daily, count_refused: true}
      - key: path
  - key: user
    value: "*"
    rate_limit: {unlimited: true}
  - key: free
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: white
`, "domain: shoe", "domain: stop", "domain: elsewhere", "domain: empty")
	for _, tc := range []struct{ domain, entries, want string }{
		{"shop", "user=vip1 path=/api/x", `domain "shop"
entry 1: user=vip1
  exact     user=vip1: none
  wildcard  user=vip*: hit at a.yaml:3:5
entry 2: path=/api/x
  exact     path=/api/x: none
  wildcard  path=/api/*: hit at a.yaml:8:9
rule: user=vip* > path=/api/* at a.yaml:8:9, share_threshold: true
limit: 60/minute, algorithm: fixed_window, at a.yaml:11:13
limit: 1000/day, algorithm: fixed_window, count_refused: true, name: "daily", at a.yaml:13:13
candidate (never denies): 30/minute, algorithm: fixed_window, at a.yaml:12:13
`},
		{"shop", "user=joe", `domain "shop"
entry 1: user=joe
  exact     user=joe: none
  wildcard  user=vip*: does not match, at a.yaml:3:5
  wildcard  user=*: hit at a.yaml:15:5
rule: user=* at a.yaml:15:5
limit: unlimited, at a.yaml:17:17
`},
		{"shop", "user=vip path=/", `domain "shop"
entry 1: user=vip
  exact     user=vip: none
  wildcard  user=vip*: hit at a.yaml:3:5
entry 2: path=/
  exact     path=/: none
  wildcard  path=/api/*: does not match, at a.yaml:8:9
  key only  path: hit at a.yaml:14:9
no limit: user=vip* > path at a.yaml:14:9 has no limit
`},
		{"shop", "user=vip", `domain "shop"
entry 1: user=vip
  exact     user=vip: none
  wildcard  user=vip*: hit at a.yaml:3:5
no limit: user=vip* at a.yaml:3:5 has no limit; deeper ones require path=/api/* (a.yaml:8:9), path (a.yaml:14:9)
`},
		{"shop", "user=joe path=/ x=1", `domain "shop"
entry 1: user=joe
  exact     user=joe: none
  wildcard  user=vip*: does not match, at a.yaml:3:5
  wildcard  user=*: hit at a.yaml:15:5
no limit: the rules end with user=* at a.yaml:15:5, so longer descriptors match nothing
`},
		{"shop", "user=vip method=GET", `domain "shop"
entry 1: user=vip
  exact     user=vip: none
  wildcard  user=vip*: hit at a.yaml:3:5
entry 2: method=GET
  exact     method=GET: none
  key only  method: none
no limit: nothing matches entry 2, method=GET: below user=vip* at a.yaml:3:5 the rules have path=/api/* (a.yaml:8:9), path (a.yaml:14:9)
`},
		{"shop", "", `domain "shop"
no limit: the descriptor is empty
`},
		{"empty", "a=b", `domain "empty"
no limit: the domain has no descriptors
`},
		{"shopp", "a=b", `domain "shopp" is not configured; did you mean "shop"?
no limit: domain "shopp" is not configured, so nothing is limited
`},
		{"zzzzzzzzzzzzzzzzz", "a=b", `domain "zzzzzzzzzzzzzzzzz" is not configured
no limit: domain "zzzzzzzzzzzzzzzzz" is not configured, so nothing is limited
`},
	} {
		if diff := cmp.Diff(tc.want, s.Explain(tc.domain, parseEntries(tc.entries)).String()); diff != "" {
			t.Errorf("Explain(%s, %s) (-want +got):\n%s", tc.domain, tc.entries, diff)
		}
	}
}
