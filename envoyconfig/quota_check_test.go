package envoyconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

const quotaFilterText = `http_filters:
  - name: quota
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
      domain: shop
      rlqs_server: { envoy_grpc: { cluster_name: sluice } }
      bucket_matchers:
        on_no_match:
          action:
            name: bucket
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
              reporting_interval: 5s
              bucket_id_builder:
                bucket_id_builder: ID
`

// TestQuotaIDs covers bucket IDs that no rule matches, or only a rule without quota.
func TestQuotaIDs(t *testing.T) {
	const address = `{ custom_value: { name: a, typed_config: { "@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.SourceIPInput } } }`
	set := ruleSet(t, `domain: shop
descriptors:
  - key: api
    descriptors:
      - { key: user, rate_limit: &q { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: {} } }
      - { key: user, value: vip, rate_limit: { unit: second, requests_per_unit: 1000 } }
  - { key: plan, value: free }
`)
	const unsent = `rules.yaml:5:9: warning: unsent: api > user has quota, but no bucket of a quota filter has an id that it can match: add one, as in examples/quota-service`
	at := func(rest string) string { return "f:15:36: " + rest }
	for id, want := range map[string][]string{
		`{ sluice: { string_value: "api,user" }, user: { string_value: al }, api: { string_value: a } }`: nil,
		`{ sluice: { string_value: "api,user" }, user: ` + address + `, api: { string_value: a } }`: {
			"f:15:46: warning: unmatched: the bucket id (api, a)(user, *) can match api > user=vip at rules.yaml:6:9, which has no quota; such a bucket gets no assignment: add quota to the rule's rate_limit, or exclude its values from this bucket",
		},
		`{ sluice: { string_value: "api,user" }, user: { string_value: vip }, api: { string_value: a } }`: {
			"f:15:46: error: unmatched: the bucket id (api, a)(user, vip) matches api > user=vip at rules.yaml:6:9, which has no quota, so the bucket gets no assignment: add quota to the rule's rate_limit, or use the rate limit filter instead", unsent,
		},
		`{ sluice: { string_value: "user,api" }, user: { string_value: al }, api: { string_value: a } }`: {
			"f:15:46: error: unmatched: no rule of domain \"shop\" can match the bucket id (user, al)(api, a), so the bucket gets no assignment: nothing matches entry 1, user=al: the rules begin with api (rules.yaml:3:5), plan=free (rules.yaml:7:5)", unsent,
		},
		`{ sluice: { string_value: plan }, plan: { string_value: free } }`: {
			"f:15:46: error: unmatched: the bucket id (plan, free) matches a rule without a limit, so the bucket gets no assignment, and no_assignment_behavior applies forever: add quota to the rule, or remove the bucket", unsent,
		},
		`{ user: { string_value: al } }`: {
			at(`error: unmatched: the id has no entry sluice, so no rule matches it, and an id with an empty value gets no assignment: add the entry, with the other keys in the order of the descriptor: sluice: { string_value: "path,user" }`), unsent,
		},
		`{ sluice: { string_value: "api" }, user: { string_value: al }, api: { string_value: a } }`: {
			`f:15:46: error: unmatched: the entry sluice does not name each other entry once, so no rule matches the id: name "api,user", in the order of the descriptor`, unsent,
		},
		`{ sluice: { string_value: "api,api" }, api: { string_value: a } }`: {
			`f:15:46: error: unmatched: the entry sluice does not name each other entry once, so no rule matches the id: name "api", in the order of the descriptor`, unsent,
		},
		`{ sluice: ` + address + `, api: { string_value: a } }`: {
			"f:15:46: error: unmatched: the entry sluice must be the same for all requests: use string_value", unsent,
		},
	} {
		c, err := Read([]File{{"f", []byte(strings.Replace(quotaFilterText, "ID\n", id+"\n", 1))}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range c.Check(set) {
			if f.Code != Unknown {
				got = append(got, f.String())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
}

// TestMisplacedQuotaFilters covers filters that no request reaches, and matcher trees without buckets.
func TestMisplacedQuotaFilters(t *testing.T) {
	set := ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket, quota: {} } }]")
	good := strings.Replace(quotaFilterText, "ID\n", "{ sluice: { string_value: user }, user: { string_value: al } }\n", 1)
	router := "http_filters:\n  - { name: r, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }"
	beforeSettings, _, _ := strings.Cut(good, "RateLimitQuotaBucketSettings")
	beforeMatchers, _, _ := strings.Cut(good, "      bucket_matchers")
	for text, want := range map[string]string{
		good: "",
		strings.Replace(good, "http_filters:", router, 1):                                                                 "the filter is after the router",
		beforeMatchers + "      bucket_matchers: {}\n":                                                                    "bucket_matchers never selects a bucket",
		beforeSettings + "RateLimitQuotaOverride\n":                                                                       "the action is not envoy.extensions",
		strings.Replace(good, "bucket_id_builder:\n                bucket_id_builder", "deny_response_settings: {} #", 1): "the bucket has no bucket_id_builder",
		strings.Replace(good, "domain: shop", "domain: ship", 1):                                                          `there are no rules for the domain "ship"`,
		strings.Replace(good, "on_no_match:\n", "on_no_match:\n          keep_matching: true\n", 1):                       "keep_matching",
	} {
		var got []string
		c, err := Read([]File{{"f", []byte(text)}})
		if err != nil {
			got = append(got, err.Error())
		} else {
			for _, f := range c.Check(set) {
				if f.Code != Unknown {
					got = append(got, f.String())
				}
			}
		}
		if all := strings.Join(got, "\n"); want == "" && all != "" || !strings.Contains(all, want) {
			t.Errorf("want %q, found\n%s\nin\n%s", want, all, text)
		}
	}
}

// TestAssignable covers regular expressions that match values for which no quota can be assigned.
func TestAssignable(t *testing.T) {
	for pattern, want := range map[string]bool{"[!-~]{1,200}": true, "vip": true, "a*": false, "[0-9]+": false, "[^a]": false, ".{1,9}": false, "x?": false} {
		roots, err := tree.Read("f", []byte("{ regex: '"+pattern+"' }"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isAssignable(&roots[0]); got != want {
			t.Errorf("%s: %v", pattern, got)
		}
	}
}
