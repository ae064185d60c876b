package envoyconfig_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// quotaTrap is a misleading setting of the quota filter, inserted into testdata/quota/envoy.yaml.
type quotaTrap struct {
	name     string
	old, put string
	// want is the severity and code of the expected finding,
	// and message is a part of its message.
	want, message string
	// Behaviour of the real Envoy: envoyRejects is true if it does not start; first and then are the
	// outcomes of the first and of later requests of a user whose bucket has no assignment.
	envoyRejects bool
	first, then  string
	// reported is true if Envoy reports a bucket. The test then assigns the opposite for a second,
	// and expired is the outcome of requests after that.
	reported bool
	expired  string
	// bare is true if the requests have no x-user header.
	bare bool
}

const (
	userInput     = `{ "@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-user } } }`
	denyFirst     = "no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }"
	timedOut      = "expired_assignment_behavior_timeout: 86400s, "
	allowExpired  = "fallback_rate_limit: { blanket_rule: ALLOW_ALL } }"
	userGuard     = `value_match: { safe_regex: { google_re2: {}, regex: "[!-~]{1,200}" } }`
	userPredicate = `single_predicate:
                                  input: { name: user, typed_config: { "@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-user } }
                                  ` + userGuard
	quotaDomain = "domain: shop\n                      rlqs_server"
	toBackend   = "route: { cluster: backend }"
)

func customValue(config string) string { return `{ "@type": type.googleapis.com/` + config + ` } } }` }

func ofRoute(config string) string {
	return toBackend + "\n                          typed_per_filter_config: { envoy.filters.http.rate_limit_quota: { \"@type\": type.googleapis.com/" + config + " } }"
}

var quotaTraps = []quotaTrap{
	{name: "none", first: "denied", then: "denied", reported: true, expired: "passes"},

	{
		name: "a token bucket before the first assignment", old: denyFirst, put: "no_assignment_behavior: { fallback_rate_limit: { token_bucket: { max_tokens: 5, tokens_per_fill: 5, fill_interval: 10s } } }",
		want: "error: quota", message: "no_assignment_behavior.fallback_rate_limit.token_bucket: Envoy 1.40 crashes at the second request", first: "passes", then: "dies",
	},
	{
		name: "a rate before the first assignment", old: denyFirst, put: "no_assignment_behavior: { fallback_rate_limit: { requests_per_time_unit: { requests_per_time_unit: 1, time_unit: HOUR } } }",
		want: "error: quota", message: "does not implement this strategy and allows every request", first: "passes", then: "passes", reported: true, expired: "passes",
	},
	{name: "nothing before the first assignment", old: denyFirst, put: "no_assignment_behavior: {}", envoyRejects: true},
	{name: "no strategy", old: denyFirst, put: "no_assignment_behavior: { fallback_rate_limit: {} }", envoyRejects: true},

	{name: "no time-out", old: timedOut, want: "error: quota", message: "without an expired_assignment_behavior_timeout of at least one second it has no effect", first: "denied", then: "denied", reported: true, expired: "denied"},
	{name: "a time-out below a second", old: timedOut, put: "expired_assignment_behavior_timeout: 0.9s, ", want: "error: quota", message: "of at least one second", first: "denied", then: "denied", reported: true, expired: "denied"},
	{name: "only a time-out", old: timedOut + allowExpired, put: timedOut + "}", envoyRejects: true},
	{name: "reuse of the last assignment", old: allowExpired, put: "reuse_last_assignment: {} }", want: "error: quota", message: "reuse_last_assignment: Envoy 1.40 ignores it", first: "denied", then: "denied", reported: true, expired: "denied"},
	{
		name: "half a second to fill", old: allowExpired, put: "fallback_rate_limit: { token_bucket: { max_tokens: 1, tokens_per_fill: 1, fill_interval: 0.5s } } }",
		want: "error: quota", message: "below one second", first: "denied", then: "denied", reported: true, expired: "passes",
	},
	{name: "no time to fill", old: allowExpired, put: "fallback_rate_limit: { token_bucket: { max_tokens: 1 } } }", envoyRejects: true},
	{
		name: "a rate after the last assignment", old: allowExpired, put: "fallback_rate_limit: { requests_per_time_unit: { requests_per_time_unit: 1, time_unit: HOUR } } }",
		want: "error: quota", message: "use a token_bucket, or blanket_rule", first: "denied", then: "denied", reported: true, expired: "passes",
	},

	{
		name: "keep_matching", old: "                              on_match:\n", put: "                              on_match:\n                                keep_matching: true\n",
		want: "error: quota", message: "keep_matching: Envoy 1.40 still denies", then: "denied", reported: true, expired: "passes",
	},
	{
		name: "a trial of 0 %", old: quotaDomain, put: "filter_enforced: { default_value: { numerator: 0 } }\n                      " + quotaDomain,
		want: "error: quota", message: "filter_enforced: Envoy 1.40 ignores it", first: "denied", then: "denied", reported: true, expired: "passes",
	},
	{
		name: "enabled at 0 %", old: quotaDomain, put: "filter_enabled: { default_value: { numerator: 0 } }\n                      " + quotaDomain,
		want: "error: quota", message: "filter_enabled: Envoy 1.40 ignores it", first: "denied", then: "denied", reported: true, expired: "passes",
	},
	{name: "another interval", old: "reporting_interval: 5s", put: "reporting_interval: 1s", want: "warning: quota", message: "always reports every 5 s", first: "denied", then: "denied", reported: true, expired: "passes"},
	{name: "a short interval", old: "reporting_interval: 5s", put: "reporting_interval: 0.1s", want: "warning: quota", message: "Envoy 1.40 always reports every 5 s", envoyRejects: true},
	{name: "no interval", old: "reporting_interval: 5s", envoyRejects: true},
	{name: "a configuration of a route", old: toBackend, put: ofRoute("envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride, domain: x"), envoyRejects: true},
	{name: "a configuration of a route within another", old: toBackend, put: ofRoute(`envoy.config.route.v3.FilterConfig, config: { "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride }`), envoyRejects: true},
	{name: "disabled for a route", old: toBackend, put: ofRoute("envoy.config.route.v3.FilterConfig, disabled: true"), first: "passes", then: "passes"},

	{name: "a value that is not an input", old: userInput, put: customValue("envoy.extensions.filters.http.router.v3.Router"), want: "error: quota", message: "it is not a request input, and Envoy 1.40 crashes at the first request", first: "dies", then: "dies"},
	{name: "a value of the response", old: userInput, put: customValue("envoy.type.matcher.v3.HttpResponseHeaderMatchInput, header_name: x-user"), want: "error: quota", message: "it has no text when a request arrives", first: "passes", then: "passes"},
	{name: "a value of CEL", old: userInput, put: customValue("xds.type.matcher.v3.HttpAttributesCelMatchInput"), want: "error: quota", message: "it has no text when a request arrives", first: "passes", then: "passes"},
	{name: "a value of no header", old: userInput, put: customValue("envoy.type.matcher.v3.HttpRequestHeaderMatchInput"), want: "error: quota", message: "names no header", first: "passes", then: "passes"},
	{name: "the client's address", old: userInput, put: customValue("envoy.extensions.matching.common_inputs.network.v3.SourceIPInput"), first: "denied", then: "denied", reported: true, expired: "passes"},
	{name: "a header that may be absent", old: userGuard, put: "value_match: { prefix: a }", want: "warning: quota", message: "clients control it", first: "denied", then: "denied", reported: true, expired: "passes"},
	{name: "a request without the header", old: userPredicate, put: `not_matcher: { single_predicate: { input: { name: user, typed_config: ` + strings.TrimSuffix(userInput, " }") + `, value_match: { exact: nobody } } }`, want: "warning: quota", message: "A request without it is allowed and not reported", first: "passes", then: "passes", bare: true},
	{name: "another header than that of the matcher", old: "header_name: x-user } }\n", put: "header_name: x-name } }\n", want: "warning: quota", message: "custom_value of x-user: clients control it", first: "passes", then: "passes"},
	{name: "any length", old: "{1,200}", put: "+", want: "warning: quota", message: "clients control it", first: "denied", then: "denied", reported: true, expired: "passes"},
	{name: "any characters", old: "[!-~]{1,200}", put: "[^/]{1,200}", want: "warning: quota", message: "clients control it", first: "denied", then: "denied", reported: true, expired: "passes"},

	{name: "no entry sluice", old: `                                        sluice: { string_value: "api,user" }` + "\n", want: "error: unmatched", message: "the id has no entry sluice", first: "denied", then: "denied", reported: true, expired: "passes"},
	{name: "no cluster", old: quotaDomain + ": { envoy_grpc: { cluster_name: sluice } }", put: quotaDomain + ": { envoy_grpc: { cluster_name: slice } }", want: "error: cluster", message: "not in these files", first: "denied", then: "denied"},
	{name: "another domain", old: quotaDomain, put: "domain: shops\n                      rlqs_server", want: "error: domain", message: `"shops"`, first: "denied", then: "denied", reported: true, expired: "passes"},
	{name: "no domain", old: quotaDomain, put: "rlqs_server", envoyRejects: true},
	{
		name: "the rate limit service as well", old: "descriptor_key: tenant } }]\n", put: "descriptor_key: tenant } }]\n                        - actions: [{ generic_key: { descriptor_key: api, descriptor_value: search } }, { request_headers: { header_name: x-user, descriptor_key: user } }]\n",
		want: "error: quota", message: "this element calls the rate limit service for api=search > user, whose limit is divided among Envoys", first: "denied", then: "denied", reported: true, expired: "passes",
	},
}

// TestQuotaTraps inserts each trap, expects the finding, and checks the behaviour of the real
// Envoy.
func TestQuotaTraps(t *testing.T) {
	binary := suite.Envoy(t, root)
	texts := map[string]string{}
	for _, name := range []string{"envoy.yaml", "rules.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", "quota", name))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	b, err := backend.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for _, trap := range quotaTraps {
		t.Run(strings.ReplaceAll(trap.name, " ", "-"), func(t *testing.T) {
			if !strings.Contains(texts["envoy.yaml"], trap.old) {
				t.Fatalf("envoy.yaml has no %q", trap.old)
			}
			config := strings.Replace(texts["envoy.yaml"], trap.old, trap.put, 1)
			found := slices.DeleteFunc(findingsOf(t, config, texts["rules.yaml"]), func(f string) bool { return strings.Contains(f, ": note: ") })
			if trap.want == "" && !trap.envoyRejects && len(found) > 0 || trap.want != "" && !has(found, trap.want, trap.message) {
				t.Errorf("want %s: ... %s, found\n%s", trap.want, trap.message, strings.Join(found, "\n"))
			}
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := envoy.Validate(t.Context(), binary, file); (err != nil) != trap.envoyRejects {
				t.Fatalf("Envoy returned %v", err)
			}
			if !trap.envoyRejects {
				trap.checkEnvoy(t, []byte(config), b.Addr)
			}
		})
	}
}

// checkEnvoy checks the behaviour of the real Envoy.
func (trap *quotaTrap) checkEnvoy(t *testing.T, config []byte, backend string) {
	t.Helper()
	r := startQuotaRecorder(t)
	e := r.startEnvoy(t, config, backend)
	user := "al"
	if trap.bare {
		user = ""
	}
	request := func() string { return outcome(t, e, user) }
	if got := request(); trap.first != "" && got != trap.first {
		t.Errorf("the first request %s, want %s", got, trap.first)
	}
	stays := func(want string) {
		t.Helper()
		suite.Eventually(t, "a request: "+want, func() bool { return request() == want })
		for range 3 {
			if got := request(); got != want {
				t.Errorf("a later request %s, want %s", got, want)
			}
		}
	}
	stays(trap.then)
	switch {
	case trap.then == "dies":
		return
	case !trap.reported:
		if ids := r.reported(); ids != "" {
			t.Errorf("the reported buckets are %s", ids)
		}
		return
	}
	suite.Eventually(t, "a report", func() bool { return r.reported() != "" })
	opposite, rule := "passes", typev3.RateLimitStrategy_ALLOW_ALL
	if trap.then == "passes" {
		opposite, rule = "denied", typev3.RateLimitStrategy_DENY_ALL
	}
	if trap.expired == opposite { // distinguish the outcomes
		opposite, rule = "denied", typev3.RateLimitStrategy_DENY_ALL
	}
	r.assign(t, &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
		AssignmentTimeToLive: durationpb.New(time.Second),
		RateLimitStrategy:    &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}},
	})
	suite.Eventually(t, "the outcome of the assignment: "+opposite, func() bool { return request() == opposite })
	stays(trap.expired)
}
