package envoyconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const leaseRules = `domain: shop
descriptors:
  - key: user
    rate_limit: &five { unit: minute, unit_multiplier: 10, requests_per_unit: 5, algorithm: concurrency, name: streams }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 100000, name: tokens, reserve: { amount: 2000 } }
  - key: both
    rate_limits:
      - { unit: minute, unit_multiplier: 10, requests_per_unit: 5, algorithm: concurrency, name: files }
      - { unit: day, requests_per_unit: 4000000000 }
  - key: trial
    rate_limits:
      - { unit: minute, requests_per_unit: 5 }
      - { unit: minute, unit_multiplier: 10, requests_per_unit: 5, algorithm: concurrency, name: fewer, shadow: true }
  - { key: plain, rate_limit: { unit: day, requests_per_unit: 5, count_refused: true } }
  - { key: list, rate_limits: [{ unit: second, requests_per_unit: 5 }, { unit: day, requests_per_unit: 1000 }] }
`

const (
	user   = "{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }"
	tenant = "{ actions: [{ request_headers: { header_name: x-tenant, descriptor_key: tenant } }] }"
)

// withFields returns an element with additional fields.
func withFields(element, fields string) string {
	return strings.TrimSuffix(element, " }") + ", " + fields + " }"
}

// withEnd returns an element for the end of a stream, with hits of the given format.
func withEnd(element, format string) string {
	return withFields(element, `hits_addend: { format: "`+format+`", is_negative_hits: true }, apply_on_stream_done: true`)
}

func lease(name string) string {
	return "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:" + name + ")%"
}

func TestCheckLeases(t *testing.T) {
	keyed := func(key string) string {
		return strings.ReplaceAll(strings.ReplaceAll(user, "user", key), "x-"+key, "x-user")
	}
	costOf := func(format string) string {
		return withFields(tenant, `hits_addend: { format: "`+format+`" }, apply_on_stream_done: true`)
	}
	const expression = "%CEL(metadata.filter_metadata['envoy.filters.http.ratelimit'].tokens > 0.0 && response.code == 500 ? 0.0 : metadata.filter_metadata['llm'].total)%"
	cost := costOf(expression)
	const (
		isCost  = `error: leases: with hits_addend, tenant at rules.yaml:6:17 takes this element for the cost of a request and reserves nothing: remove hits_addend at the start`
		outage  = `warning: leases: no cost of tenant reads response.code, so responses without a cost, as in an outage of the backend, are charged their reservations: use the expression that sluice envoy snippet prints`
		another = `but the lease of tenant is tokens of envoy.filters.http.ratelimit: without it, the cost of a request is not sent`
	)
	for name, tt := range map[string]struct {
		elements []string
		filter   string
		want     []string // each after the index of its element
	}{
		"both":                          {elements: []string{user, withEnd(user, lease("streams"))}},
		"the end first":                 {elements: []string{withEnd(user, lease("streams")), user}},
		"positive":                      {elements: []string{user, strings.Replace(withEnd(user, lease("streams")), ", is_negative_hits: true", "", 1)}},
		"camelCase and another order":   {elements: []string{user, strings.NewReplacer("request_headers", "requestHeaders", "header_name: x-user, descriptor_key: user", "descriptorKey: user, headerName: x-user").Replace(withEnd(user, lease("streams")))}},
		"a peek":                        {elements: []string{withFields(user, "hits_addend: { number: 0 }")}},
		"a reservation":                 {elements: []string{tenant, withEnd(tenant, lease("tokens")), cost}},
		"a reservation of 0 hits":       {elements: []string{withFields(tenant, "hits_addend: { number: 0 }"), withEnd(tenant, lease("tokens")), cost}, want: []string{"0: " + isCost}},
		"a cost in bytes":               {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf("%DURATION%")}},
		"a plain cost":                  {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf("%DYNAMIC_METADATA(llm:total)%")}, want: []string{"2: " + outage}},
		"a cost and a further one":      {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf("%DYNAMIC_METADATA(llm:more)%"), cost}},
		"a status":                      {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf("%RESPONSE_CODE%"), cost}, want: []string{"2: error: leases: %RESPONSE_CODE% would be charged as the cost: use the expression that sluice envoy snippet prints, which reads response.code"}},
		"flags":                         {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf("%RESPONSE_FLAGS%"), cost}, want: []string{"2: error: no-effect: the descriptor is never sent: %RESPONSE_FLAGS% is no number, which hits must be"}},
		"a cost of another lease":       {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf(strings.Replace(expression, "tokens", "streams", 1))}, want: []string{"2: error: leases: the expression reads streams of envoy.filters.http.ratelimit, " + another}},
		"a cost of a lease elsewhere":   {elements: []string{tenant, withEnd(tenant, lease("tokens")), costOf(strings.Replace(expression, "'envoy.filters.http.ratelimit'].tokens", "'mine']['tokens']", 1))}, want: []string{"2: error: leases: the expression reads tokens of mine, " + another}},
		"a cost of the usual namespace": {elements: []string{tenant, withEnd(tenant, "%DYNAMIC_METADATA(mine:tokens)%"), cost}, filter: "metadata_namespace: mine", want: []string{"2: error: leases: the expression reads tokens of envoy.filters.http.ratelimit, " + strings.Replace(another, "of envoy.filters.http.ratelimit", "of mine", 1)}},
		"a namespace of its own":        {elements: []string{user, withEnd(user, "%DYNAMIC_METADATA(mine:streams)%")}, filter: "metadata_namespace: mine"},
		"without an end": {
			elements: []string{user},
			want: []string{`0: error: leases: the lease of user at rules.yaml:4:17 is never released: add an element with the same actions, ` +
				`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }, and apply_on_stream_done: true`},
		},
		"a reservation without an end": {
			elements: []string{tenant, cost},
			want: []string{`0: error: leases: the lease of tenant at rules.yaml:6:17 is never settled: add an element with the same actions, ` +
				`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:tokens)%", is_negative_hits: true }, and apply_on_stream_done: true`},
		},
		"a reservation without a cost": {
			elements: []string{tenant, withEnd(tenant, lease("tokens"))},
			want:     []string{`0: warning: leases: no element reports at the end of the stream the cost of a request for which tenant at rules.yaml:6:17 reserves: add one with the same actions, the cost as hits_addend, and apply_on_stream_done: true`},
		},
		"a reservation with its own number": {
			elements: []string{withFields(tenant, "hits_addend: { number: 2000 }"), withEnd(tenant, lease("tokens")), cost},
			want:     []string{"0: " + isCost},
		},
		"a candidate without an end": {
			elements: []string{keyed("trial")},
			want: []string{`0: warning: leases: the lease of trial at rules.yaml:14:9 is never released: add an element with the same actions, ` +
				`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:fewer)%", is_negative_hits: true }, and apply_on_stream_done: true`},
		},
		"a header": {
			elements: []string{user, withEnd(user, "%REQ(x-lease)%")},
			want: []string{
				`0: error: leases: the lease of user at rules.yaml:4:17 is never released: add an element with the same actions, ` +
					`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }, and apply_on_stream_done: true`,
				`1: error: leases: clients control %REQ(x-lease)%: with a number of 536870912 or more a client can release leases of other requests of user; use format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%"`,
			},
		},
		"hits of a header at the start": {
			elements: []string{withFields(user, `hits_addend: { format: "%REQ(x-cost)%" }`), withEnd(user, lease("streams"))},
			want:     []string{`0: error: leases: clients control %REQ(x-cost)%: with a number of 536870912 or more a client can release leases of other requests of user; use format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%"`},
		},
		"another name": {
			elements: []string{user, withEnd(user, lease("stream"))},
			want: []string{
				`0: error: leases: the lease of user at rules.yaml:4:17 is never released: add an element with the same actions, ` +
					`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }, and apply_on_stream_done: true`,
				`1: error: leases: no limit that this element matches grants a lease "stream": user grants streams; did you mean "streams"?`,
			},
		},
		"another namespace": {
			elements: []string{user, withEnd(user, "%DYNAMIC_METADATA(envoy.filters.http.rate_limit:streams)%")},
			want:     []string{`1: error: leases: the lease "streams" is in the metadata of the filter, envoy.filters.http.ratelimit, not in envoy.filters.http.rate_limit: use format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%"`},
		},
		"the usual namespace of a filter with its own": {
			elements: []string{user, withEnd(user, lease("streams"))}, filter: "metadata_namespace: mine",
			want: []string{`1: error: leases: the lease "streams" is in the metadata of the filter, mine, not in envoy.filters.http.ratelimit: use format: "%DYNAMIC_METADATA(mine:streams)%"`},
		},
		"a cost with permits only": {
			elements: []string{user, withEnd(user, lease("streams")), withEnd(user, "%BYTES_SENT%")},
			want:     []string{`2: error: leases: %BYTES_SENT% is not a lease of user: at the end of a stream it would acquire a permit that is never released; did you mean format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%"?`},
		},
		"the end of a stream without a lease": {
			elements: []string{user, withEnd(user, lease("streams")), withFields(user, "apply_on_stream_done: true")},
			want:     []string{`2: error: leases: at the end of a stream this element acquires a permit of user that is never released: set hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }`},
		},
		"bytes next to permits": {
			elements: []string{keyed("both"), withEnd(keyed("both"), lease("files")), withFields(keyed("both"), `hits_addend: { format: "%BYTES_SENT%" }, apply_on_stream_done: true`)},
			want: []string{
				`2: warning: uncounted-hits: hits sent at the end of a stream have already happened, but both at rules.yaml:10:9 does not count them once it is over its limit: set count_refused: true`,
				`2: warning: leases: 536870912 bytes or more are read as a lease by both and not charged: use a rule without leases for bytes`,
			},
		},
		"more hits than a limit of a list allows": {
			elements: []string{withFields(keyed("list"), `hits_addend: { number: 6 }, apply_on_stream_done: true`)},
			want: []string{
				`0: error: uncounted-hits: list at rules.yaml:16:32 is never charged: 6 hits at the end of a stream exceed the limit at rules.yaml:16:32, which allows 5: set count_refused: true`,
			},
		},
		"as many hits as a limit of a list allows": {
			elements: []string{withFields(keyed("list"), `hits_addend: { number: 5 }, apply_on_stream_done: true`)},
			want: []string{
				`0: warning: uncounted-hits: hits sent at the end of a stream have already happened, but list at rules.yaml:16:32 does not count them once it is over its limit: set count_refused: true`,
			},
		},
		"a lease at the start": {
			elements: []string{user, withFields(user, `hits_addend: { format: "`+lease("streams")+`" }`)},
			want: []string{
				`0: error: leases: the lease of user at rules.yaml:4:17 is never released: add an element with the same actions, ` +
					`hits_addend: { format: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:streams)%", is_negative_hits: true }, and apply_on_stream_done: true`,
				`1: error: leases: at the start of a request there is no lease yet, so Envoy sends nothing: add apply_on_stream_done: true to this element, and one without hits_addend for the start`,
			},
		},
		"other actions": {
			elements: []string{user, strings.Replace(withEnd(user, lease("streams")), "x-user", "x-usr", 1)},
			want:     []string{`1: error: leases: the actions differ from those of the start at envoy.yaml:24:23, so the lease "streams" is released on another counter: use the same actions in the same order`},
		},
		"an entry that may be missing at the end alone": {
			elements: []string{user, strings.Replace(withEnd(user, lease("streams")), "descriptor_key: user", "descriptor_key: user, skip_if_absent: true", 1)},
			want:     []string{`1: error: leases: the actions differ from those of the start at envoy.yaml:24:23, so the lease "streams" is released on another counter: use the same actions in the same order`},
		},
		"a list whose start has hits": {
			elements: []string{withFields(keyed("both"), "hits_addend: { number: 1 }"), withEnd(keyed("both"), lease("files"))},
			want:     []string{`0: error: leases: with hits_addend, both takes this element for the cost of a request, which acquires no permit of the limit at rules.yaml:9:9: remove hits_addend at the start`},
		},
		"without a start": {
			elements: []string{withEnd(user, lease("streams"))},
			want:     []string{`0: error: leases: no element sent at the start acquires the lease "streams" that this one releases: add an element with the same actions, without hits_addend and apply_on_stream_done`},
		},
		"a lease of other rules": {
			elements: []string{user, withEnd(user, lease("streams")), keyed("plain"), withEnd(keyed("plain"), lease("streams"))},
			want:     []string{`3: error: leases: the lease "streams" belongs to user at rules.yaml:4:17, which these actions do not match: use the actions of the start`},
		},
		"metadata that may be missing": {
			elements: []string{
				"{ actions: [{ metadata: { descriptor_key: user, skip_if_absent: true, metadata_key: { key: jwt, path: [{ key: sub }] } } }] }",
				withEnd("{ actions: [{ metadata: { descriptor_key: user, skip_if_absent: true, metadata_key: { key: jwt, path: [{ key: sub }] } } }] }", lease("streams")),
			},
			want: []string{
				"0: warning: no-effect: the entry never has a value from the metadata: no filter before the rate limit filter sets the metadata jwt: add the one that does, or correct the key",
				`1: error: leases: metadata may change until the stream ends; without this entry the lease would be released on another counter: remove skip_if_absent, here and at the start`,
			},
		},
		"two starts": {
			elements: []string{user, withEnd(user, lease("streams")), strings.Replace(user, "x-user", "x-other", 1), strings.Replace(withEnd(user, lease("streams.2")), "x-user", "x-other", 1)},
			want:     []string{`2: warning: leases: the element at envoy.yaml:24:23 acquires a lease of user, too; if Envoy sends both, the second lease is returned as "streams.2", which the release of this element must read: prefer separate rules`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var host strings.Builder
			host.WriteString(toBackend + "typed_per_filter_config:\n  limit:\n    \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute\n    rate_limits:\n")
			for _, e := range tt.elements {
				host.WriteString("    - " + e + "\n")
			}
			var got []string
			for _, f := range proxy(t, host.String(), tt.filter).Check(ruleSet(t, leaseRules)) {
				if f.Code == Unsent || f.Code == Timeout || f.Code == Version || f.Code == NeverDenies {
					continue
				}
				// The finding starts with the index of the element.
				_, text, _ := strings.Cut(f.String(), " ")
				got = append(got, fmt.Sprintf("%d: %s", f.Pos.Line-24, text))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckLeasesOfTwoFilters covers a chain whose filters use the same limit, or limits of the same name.
func TestCheckLeasesOfTwoFilters(t *testing.T) {
	const other = "---\ndomain: second\ndescriptors: [{ key: user, rate_limit: { unit: minute, unit_multiplier: 10, requests_per_unit: 5, algorithm: concurrency, name: streams } }]\n"
	chain := func(first, second string) string {
		return `resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: l
  filter_chains:
  - filters:
    - typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        http_filters:
` + first + second + `
        - { name: router, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }
        route_config: { virtual_hosts: [{ name: v, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: backend } }] }] }
`
	}
	filter := func(name, fields, namespace string) string {
		return "        - { name: " + name + `, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, timeout: 1s, rate_service, ` + fields +
			", rate_limits: [" + user + ", " + withEnd(user, "%DYNAMIC_METADATA("+namespace+":streams)%") + "] } }\n"
	}
	for name, tt := range map[string]struct {
		first, second, want string
	}{
		"one namespace": {
			filter("a", "domain: shop", filterNamespace), filter("b", "domain: second", filterNamespace),
			`the filter at envoy.yaml:9:11 acquires a lease "streams" on this route, too, and the lease of this filter overwrites it, so the first one is never released: give the limits different names, or one filter a metadata_namespace`,
		},
		"two namespaces": {filter("a", "domain: shop", filterNamespace), filter("b", "domain: second, metadata_namespace: mine", "mine"), ""},
		"one domain": {
			filter("a", "domain: shop", filterNamespace), filter("b", "domain: shop", filterNamespace),
			`the filter at envoy.yaml:9:11 acquires a lease "streams" on this route, too, and the lease of this filter overwrites it, so the first one is never released: give the limits different names, or one filter a metadata_namespace`,
		},
	} {
		text := strings.ReplaceAll(chain(tt.first, tt.second), "rate_service", "rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: sluice } } }")
		c, err := Read([]File{{"envoy.yaml", []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range c.Check(ruleSet(t, leaseRules+other)) {
			if f.Code == Leases {
				got = append(got, f.Message)
			}
		}
		if got := slices.Compact(got); strings.Join(got, "") != tt.want { // the same for both elements
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestCheckLeasesWithoutHits checks that leases are not reported for lists whose hits Envoy does not send.
func TestCheckLeasesWithoutHits(t *testing.T) {
	host := "rate_limits:\n- " + user + "\n- " + withEnd(user, lease("streams")) + "\n" + toBackend
	var got []string
	for _, f := range proxy(t, host).Check(ruleSet(t, leaseRules)) {
		if f.Code != Unsent && f.Code != Timeout && f.Code != Version {
			got = append(got, f.String())
		}
	}
	want := []string{"envoy.yaml:21:113: error: hits-dropped: Envoy does not send hits_addend from the rate_limits of a route or virtual host: " +
		"move this element to the filter's typed_per_filter_config (RateLimitPerRoute), or to the filter"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
