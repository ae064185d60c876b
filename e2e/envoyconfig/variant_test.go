//go:build more

package envoyconfig_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// variant is a configuration of Envoy, rules, and requests that show which limits work.
type variant struct {
	name string
	// bootstrap is a complete bootstrap as JSON. Its ports, all on 127.0.0.1, are the texts {{sluice}} and {{backend}} in
	// the clusters of these names, and {{port}} in the only listener, "ingress".
	bootstrap []byte
	// rules is a rule file. Its limits allow 60 hits in a year.
	rules []byte
	// requests are the kinds of requests. 100 of each are sent.
	requests []request
}

// request is a kind of HTTP request.
type request struct {
	method, path string
	headers      map[string]string
}

var (
	plain  = request{method: "GET", path: "/", headers: map[string]string{"x-other": "1"}}
	alice  = request{method: "GET", path: "/", headers: map[string]string{"x-user": "alice"}}
	search = request{method: "GET", path: "/search?user=alice", headers: map[string]string{"x-user": "bob"}}
)

// place is where a configuration has its rate_limits.
type place string

const (
	inFilter, inHost, inRoute, perRoute place = "filter", "host", "route", "per route"
)

// working is a configuration whose limit works.
type working struct {
	name string
	// rules are the descriptors of the rules, and limits the rate_limits of Envoy in the given place.
	rules  string
	limits list
	in     place
	// before are filters before the rate limit filter. The others are further fields.
	before                                        list
	manager, filter, host, route, action, backend object
	requests                                      []request
}

// Rules of the configurations.
const (
	limitOfUser    = "{ key: user, " + ofYear + " }"
	limitOfAddress = "{ key: remote_address, " + ofYear + " }"
	limitOfAll     = "{ key: generic_key, value: all, " + ofYear + " }"
	ofYear         = "rate_limit: { unit: year, requests_per_unit: 60, count_refused: true }"
)

var userOfHeader = object{"request_headers": object{"header_name": "x-user", "descriptor_key": "user"}}

func element(actions ...any) object { return object{"actions": actions} }

// with returns an object with further fields.
func with(o, more object) object {
	all := object{}
	maps.Copy(all, o)
	maps.Copy(all, more)
	return all
}

func userOfMetadata(namespace string, path ...string) object {
	var keys list
	for _, key := range path {
		keys = append(keys, object{"key": key})
	}
	return object{"metadata": object{"descriptor_key": "user", "source": "DYNAMIC", "metadata_key": object{"key": namespace, "path": keys}}}
}

func fixedUser(kind string, fields object) object {
	return object{kind: with(object{"descriptor_key": "user", "descriptor_value": "a"}, fields)}
}

// secret signs the tokens of jwtOfAlice.
const secret = "secretsecretsecretsecret"

// jwtOfAlice is a token with a claim that is alice.
func jwtOfAlice(claim string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","kid":"a"}`)) + "." + encode([]byte(`{"iss":"me","`+claim+`":"alice"}`))
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(text))
	return text + "." + encode(sum.Sum(nil))
}

// workingConfigurations are the configurations that the variants change.
var workingConfigurations = []working{
	{
		name: "header in the filter", rules: limitOfUser, in: inFilter, requests: []request{alice, plain},
		limits: list{with(element(userOfHeader), object{"hits_addend": object{"number": 1}})},
		filter: object{
			"filter_enabled":  object{"default_value": object{"numerator": 100, "denominator": "HUNDRED"}, "runtime_key": "enabled"},
			"filter_enforced": object{"default_value": object{"numerator": 1000000, "denominator": "MILLION"}},
		},
	},
	{
		name: "header of the host", rules: limitOfUser, in: inHost, limits: list{element(userOfHeader)}, requests: []request{alice, plain},
		filter: object{"stage": 0, "request_type": "both", "enable_x_ratelimit_headers": "OFF"},
	},
	{
		name: "route and header", in: inRoute, requests: []request{alice, plain}, action: object{"include_vh_rate_limits": true},
		rules:  "{ key: route, value: a, descriptors: [" + limitOfUser + "] }",
		limits: list{element(object{"generic_key": object{"descriptor_key": "route", "descriptor_value": "a"}}, userOfHeader)},
	},
	{
		name: "one value of a header", in: perRoute, requests: []request{alice, search},
		rules:  "{ key: user, value: alice, " + ofYear + " }",
		limits: list{element(userOfHeader)},
	},
	{
		name: "header or the address", in: inHost, requests: []request{alice, plain},
		rules:  "{ key: user, descriptors: [" + limitOfAddress + "] }, " + limitOfAddress,
		limits: list{element(object{"request_headers": object{"header_name": "x-user", "descriptor_key": "user", "skip_if_absent": true}}, object{"remote_address": object{}})},
	},
	{
		name: "query", rules: limitOfUser, in: inRoute, requests: []request{search, plain},
		limits: list{element(object{"query_parameters": object{"query_parameter_name": "user", "descriptor_key": "user"}})},
	},
	{
		name: "matching header", rules: limitOfUser, in: inHost, requests: []request{alice, search},
		limits: list{element(fixedUser("header_value_match", object{"expect_match": true, "headers": list{object{"name": "x-user", "string_match": object{"exact": "alice"}}}}))},
	},
	{
		name: "matching query", rules: limitOfUser, in: perRoute, requests: []request{search, plain},
		limits: list{element(fixedUser("query_parameter_value_match", object{"query_parameters": list{object{"name": "user", "string_match": object{"prefix": "al"}}}}))},
	},
	{
		name: "matching address", rules: limitOfUser, in: inFilter, manager: object{"xff_num_trusted_hops": 1},
		requests: []request{{method: "GET", path: "/", headers: map[string]string{"x-forwarded-for": "127.0.0.1"}}},
		limits:   list{element(fixedUser("remote_address_match", object{"address_matcher": object{"ranges": list{object{"address_prefix": "127.0.0.0", "prefix_len": 8}}}}))},
	},
	{
		name: "address", in: inRoute, requests: []request{plain}, limits: list{element(object{"masked_remote_address": object{"v4_prefix_mask_len": 24}})},
		rules: "{ key: masked_remote_address, " + ofYear + " }",
	},
	{
		name: "header to metadata", rules: limitOfUser, in: inHost, requests: []request{alice, plain}, limits: list{element(userOfMetadata("ns", "user"))},
		before: list{toMetadata(object{"header": "x-user", "on_header_present": object{"metadata_namespace": "ns", "key": "user", "type": "STRING"}, "remove": false})},
	},
	{
		name: "Lua", rules: limitOfUser, in: inRoute, requests: []request{alice, plain}, limits: list{element(userOfMetadata("ns", "user"))},
		before: list{code("function envoy_on_request(h) h:streamInfo():dynamicMetadata():set('ns', 'user', h:headers():get('x-user')) end")},
	},
	{
		name: "set metadata", in: perRoute, requests: []request{alice, plain}, rules: limitOfUser,
		limits: list{with(element(userOfMetadata("ns", "deep", "user")), object{"hits_addend": object{"format": "%DYNAMIC_METADATA(ns:cost)%"}})},
		before: list{httpFilter("sets", "set_metadata.v3.Config", object{"metadata": list{object{"metadata_namespace": "ns", "value": object{"cost": 1, "deep": object{"user": "alice"}}}}})},
	},
	{
		name: "token", rules: limitOfUser, in: inHost, limits: list{element(userOfMetadata("envoy.filters.http.jwt_authn", "payload", "tenant"))},
		requests: []request{{method: "GET", path: "/", headers: map[string]string{"authorization": "Bearer " + jwtOfAlice("tenant")}}},
		before: list{httpFilter("envoy.filters.http.jwt_authn", "jwt_authn.v3.JwtAuthentication", object{
			"providers": object{"p": object{
				"issuer": "me", "payload_in_metadata": "payload",
				"local_jwks": object{"inline_string": `{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"` + base64.RawURLEncoding.EncodeToString([]byte(secret)) + `"}]}`},
			}},
			"rules": list{object{"match": object{"prefix": "/"}, "requires": object{"provider_name": "p"}}},
		})},
	},
	{
		name: "metadata of the route", rules: limitOfUser, in: inRoute, requests: []request{alice, plain},
		route:  object{"metadata": object{"filter_metadata": object{"ns": object{"user": "a"}}}},
		limits: list{element(object{"metadata": object{"descriptor_key": "user", "source": "ROUTE_ENTRY", "metadata_key": object{"key": "ns", "path": list{object{"key": "user"}}}}})},
	},
	{
		name: "metadata of the cluster", rules: limitOfUser, in: inRoute, requests: []request{alice, plain},
		backend: object{"metadata": object{"filter_metadata": object{"ns": object{"user": "a"}}}},
		limits:  list{element(object{"metadata": object{"descriptor_key": "user", "source": "CLUSTER_ENTRY", "metadata_key": object{"key": "ns", "path": list{object{"key": "user"}}}}})},
	},
	{
		name: "charged at the end", rules: limitOfUser, in: inFilter, requests: []request{alice, plain},
		limits: list{
			with(element(userOfHeader), object{"hits_addend": object{"number": 0}}),
			with(element(userOfHeader), object{"hits_addend": object{"number": 1}, "apply_on_stream_done": true}),
		},
	},
	{
		name: "host and route", rules: limitOfUser + ", " + limitOfAll, in: inRoute, requests: []request{alice, plain},
		limits: list{element(object{"generic_key": object{"descriptor_value": "all"}})},
		host:   object{"rate_limits": list{element(userOfHeader)}}, action: object{"include_vh_rate_limits": true},
	},
	{
		name: "two stages", in: inHost, requests: []request{alice, plain}, before: list{rateLimit("other", object{"domain": "shop", "stage": 1})},
		rules:  limitOfUser + ", " + limitOfAll,
		limits: list{element(userOfHeader), with(element(object{"generic_key": object{"descriptor_value": "all"}}), object{"stage": 1})},
	},
}

func rateLimit(name string, fields object) object {
	return httpFilter(name, "ratelimit.v3.RateLimit", with(fields, object{
		"timeout":            "180s",
		"rate_limit_service": object{"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": "sluice"}}},
	}))
}

const perRouteType = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"

// variant returns the configuration without a change.
func (w *working) variant() variant {
	limiter := rateLimit("envoy.filters.http.ratelimit", with(w.filter, object{"domain": "shop"}))
	config, _ := limiter["typed_config"].(object)
	action := with(object{"cluster": "backend"}, w.action)
	route := with(object{"name": "all", "match": object{"prefix": "/"}, "route": action}, w.route)
	host := with(object{"name": "all", "domains": list{"*"}, "routes": list{route}}, w.host)
	switch w.in {
	case inFilter:
		config["rate_limits"] = w.limits
	case inHost:
		host["rate_limits"] = w.limits
	case inRoute:
		action["rate_limits"] = w.limits
	case perRoute:
		route["typed_per_filter_config"] = object{"envoy.filters.http.ratelimit": object{"@type": perRouteType, "rate_limits": w.limits}}
	}
	filters := append(append(list{}, w.before...), limiter, httpFilter("envoy.filters.http.router", "router.v3.Router", nil))
	manager := object{"stat_prefix": "ingress", "use_remote_address": true, "http_filters": filters, "route_config": object{"name": "all", "virtual_hosts": list{host}}}
	ingress := listener("ingress", with(manager, w.manager))
	ingress["address"] = addressOf("{{port}}")
	sluice := cluster("sluice", testClusters[0], object{
		"circuit_breakers": object{"thresholds": list{object{"max_requests": 10000}}},
		"health_checks":    list{object{"timeout": "1s", "interval": "5s", "unhealthy_threshold": 2, "healthy_threshold": 1, "grpc_health_check": object{}}},
	})
	text, err := json.Marshal(object{"static_resources": object{"listeners": list{ingress}, "clusters": list{sluice, cluster("backend", testClusters[1], w.backend)}}})
	if err != nil {
		panic(err)
	}
	all := "domain: shop\ndescriptors: [" + w.rules + "]\n"
	return variant{name: w.name, bootstrap: text, rules: []byte(all), requests: w.requests}
}

func addressOf(port string) object {
	return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
}

func cluster(name string, base any, more object) object {
	fields, _ := base.(object)
	endpoint := object{"endpoint": object{"address": addressOf("{{" + name + "}}")}}
	return with(with(fields, more), object{"load_assignment": object{"cluster_name": name, "endpoints": list{object{"lb_endpoints": list{endpoint}}}}})
}

// ports replaces the placeholders of ports.
func (v *variant) ports(sluice, backend, own int) []byte {
	return []byte(strings.NewReplacer(`"{{sluice}}"`, strconv.Itoa(sluice), `"{{backend}}"`, strconv.Itoa(backend), `"{{port}}"`, strconv.Itoa(own)).Replace(string(v.bootstrap)))
}

// verify returns the findings of a variant, and its statement.
func (v *variant) verify(t *testing.T) ([]envoyconfig.Finding, *envoyconfig.Statement, error) {
	t.Helper()
	configs, wrong := rulefile.Parse("rules.yaml", v.rules)
	set, more := descriptors.Compile(configs, descriptors.Options{})
	if set == nil || len(wrong) > 0 {
		t.Fatalf("%s: the rules are wrong: %v %v", v.name, wrong, more)
	}
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.json", Content: v.ports(1, 2, 3)}})
	if err != nil {
		return nil, nil, err
	}
	findings, statement := config.Verify(set)
	return findings, statement, nil
}

// TestWorkingConfigurations expects no findings in working configurations, and a statement that each limits.
func TestWorkingConfigurations(t *testing.T) {
	for _, w := range workingConfigurations {
		v := w.variant()
		findings, statement, err := v.verify(t)
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		for _, f := range findings {
			if f.Severity != rules.Note {
				t.Errorf("%s: found %v", v.name, f)
			}
		}
		limits := 0
		for _, row := range statement.Rows {
			if row.Limits() {
				limits++
			}
		}
		if limits == 0 {
			t.Errorf("%s: the statement has no limit: %v", v.name, statement.Rows)
		}
	}
}
