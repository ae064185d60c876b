package examples_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// backendTrafficPolicy contains the fields of Envoy Gateway's object that the example uses. The
// tests of kustomize/ compare it with Envoy Gateway's types.
type backendTrafficPolicy struct {
	objectMeta `yaml:",inline"`
	Spec       struct {
		TargetRefs []struct{ Group, Kind, Name string } `yaml:"targetRefs"`
		RateLimit  struct {
			Type   string
			Global struct{ Rules []trafficRule }
		} `yaml:"rateLimit"`
	}
}

type trafficRule struct {
	ClientSelectors []struct {
		Headers    []struct{ Name, Type, Value string }
		SourceCIDR *struct{ Type, Value string } `yaml:"sourceCIDR"`
	} `yaml:"clientSelectors"`
	Limit struct {
		Requests uint32
		Unit     string
	}
	Cost struct {
		Response struct {
			From     string
			Metadata struct{ Namespace, Key string }
		}
	}
}

// rateLimits returns the rate_limits elements of a rule: one for the request, and one for the end
// of the stream if the response has a cost. It follows Envoy Gateway (rateLimitCostToHitsAddend),
// without is_negative_hits.
func (r trafficRule) rateLimits(actions list) list {
	all := list{object{"actions": actions}}
	if m := r.Cost.Response.Metadata; m.Key != "" {
		all = append(all, object{
			"actions": actions, "apply_on_stream_done": true,
			"hits_addend": object{"format": "%DYNAMIC_METADATA(" + m.Namespace + ":" + m.Key + ")%"},
		})
	}
	return all
}

// translate translates a rule like Envoy Gateway (internal/xds/translator/ratelimit.go,
// buildRouteRateLimits and buildRateLimitServiceDescriptors). It returns the actions after the one
// for the route, and the rule below that of the route.
func (r trafficRule) translate(t *testing.T, n int) (actions list, rule *pb.RateLimitDescriptor) {
	t.Helper()
	var path []*pb.RateLimitDescriptor
	add := func(action object, key, value string) {
		actions = append(actions, action)
		path = append(path, &pb.RateLimitDescriptor{Key: key, Value: value})
	}
	for _, selector := range r.ClientSelectors {
		for m, h := range selector.Headers {
			key := fmt.Sprintf("rule-%d-match-%d", n, m)
			if h.Type == "Distinct" {
				add(object{"request_headers": object{"header_name": h.Name, "descriptor_key": key}}, key, "")
				continue
			}
			add(object{"header_value_match": object{
				"descriptor_key": key, "descriptor_value": key, "expect_match": true,
				"headers": list{object{"name": h.Name, "string_match": object{"exact": h.Value}}},
			}}, key, key)
		}
		if selector.SourceCIDR == nil {
			continue
		}
		network, err := netip.ParsePrefix(selector.SourceCIDR.Value)
		must.OK(t, err)
		add(object{"masked_remote_address": object{"v4_prefix_mask_len": network.Bits()}}, "masked_remote_address", network.String())
		if selector.SourceCIDR.Type == "Distinct" {
			add(object{"remote_address": object{}}, "remote_address", "")
		}
	}
	unit, known := pb.RateLimitUnit_value[strings.ToUpper(r.Limit.Unit)]
	if !known || len(path) == 0 {
		t.Fatalf("rule %d has the unit %q and %d entries", n, r.Limit.Unit, len(path))
	}
	path[len(path)-1].RateLimit = &pb.RateLimitPolicy{RequestsPerUnit: r.Limit.Requests, Unit: pb.RateLimitUnit(unit)}
	for i := len(path) - 1; i > 0; i-- {
		path[i-1].Descriptors = []*pb.RateLimitDescriptor{path[i]}
	}
	return actions, path[0]
}

// TestEnvoyGateway translates examples/envoy-gateway/policy.yaml into the rules that sluice gets
// over xDS and the route of Envoy, and runs the README.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	config, flags := envoyGateway(t, "policy.yaml")
	testGateway(t, gatewayCase{
		name: "envoy-gateway", flags: flags,
		config: config, listener: "gateway", address: gatewayService,
	})
}

// TestEnvoyGatewayInFlight does the same for streams.yaml: each request acquires one of three slots
// and releases it.
func TestEnvoyGatewayInFlight(t *testing.T) {
	t.Parallel()
	config, flags := envoyGateway(t, "streams.yaml")
	s := &session{ports: make(map[string]string)}
	t.Cleanup(s.stop)
	must.OK(t, s.startSluice(t.Context(), append(flags, "--defaults", "examples/envoy-gateway/streams-defaults.yaml")))
	must.OK(t, s.runEnvoy(t.Context(), t, config, map[string]string{gatewayService: s.sluices[0].Addr("grpc")}))
	const request = `curl -s -o /dev/null -w '%{http_code}\n' -H 'host: shop.example.com' -H 'x-user: alice' "http://$GATEWAY/"`
	s.env = append(s.env, "GATEWAY="+s.envoy.Addr("gateway"))
	for n := range 5 {
		returned := fmt.Sprintf(`sluice_leases_released_total{by="done"} %d`, n+1)
		for _, step := range []step{
			{request, []string{"200"}},
			{"curl -s http://localhost:9090/metrics | grep '^sluice_leases_released_total.*done'", []string{returned}},
		} {
			if problems := s.runStep(t.Context(), step); problems != nil {
				t.Fatal(strings.Join(problems, "\n"))
			}
		}
	}
}

// gatewayService is the address of the rate limit service in Envoy Gateway.
const gatewayService = "envoy-ratelimit.envoy-gateway-system.svc.cluster.local:8081"

// envoyGateway translates a policy of examples/envoy-gateway. It returns sluice's flags for a
// management server with the rules, and Envoy's configuration, with the filter of
// kustomize/overlays/envoy-gateway.
func envoyGateway(t *testing.T, file string) (config object, flags []string) {
	t.Helper()
	var policy backendTrafficPolicy
	manifest(t, &policy, "BackendTrafficPolicy", "envoy-gateway", file)
	const domain, route = "default/eg/http", "httproute/default/shop/rule/0/match/0/shop_example_com"
	tree := &pb.RateLimitDescriptor{Key: route, Value: route}
	var limits list
	for n, r := range policy.Spec.RateLimit.Global.Rules {
		actions, rule := r.translate(t, n)
		tree.Descriptors = append(tree.Descriptors, rule)
		first := object{"generic_key": object{"descriptor_key": route, "descriptor_value": route}}
		limits = append(limits, r.rateLimits(append(list{first}, actions...))...)
	}

	manager, err := adstest.Start(adstest.Options{NodeID: "envoy-ratelimit"})
	must.OK(t, err)
	t.Cleanup(manager.Stop)
	rules := &pb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*pb.RateLimitDescriptor{tree}}
	must.OK(t, manager.Set("1", rules))

	backendSettings := field[object](example(t, "..", "kustomize", "overlays", "envoy-gateway", "envoy-gateway.yaml"), "rateLimit")
	filter := object{"name": "envoy.filters.http.ratelimit", "typed_config": object{
		"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
		"domain": domain, "timeout": seconds(t, field[string](backendSettings, "timeout")),
		"failure_mode_deny":          field[bool](backendSettings, "failClosed"),
		"enable_x_ratelimit_headers": "DRAFT_VERSION_03",
		"rate_limit_service": object{
			"transport_api_version": "V3",
			"grpc_service":          object{"envoy_grpc": object{"cluster_name": "ratelimit_cluster"}},
		},
	}}
	host, _, _ := strings.Cut(gatewayService, ":")
	config = gatewaySkeleton(t, filter, dnsCluster("ratelimit_cluster", host, 8081), "shop.example.com", list{object{
		"match": object{"prefix": "/"},
		"route": object{"cluster": "shop"},
		"typed_per_filter_config": object{"envoy.filters.http.ratelimit": object{
			"@type":       "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
			"rate_limits": limits,
		}},
	}})
	validate(t, config)
	return config, []string{"--xds-addr", manager.Addr(), "--xds-node-id", "envoy-ratelimit"}
}
