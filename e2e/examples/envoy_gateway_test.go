package examples_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// backendTrafficPolicy and envoyGateway are what Envoy Gateway's objects may say,
// as far as the example does.
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
}

type envoyGateway struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Gateway    struct {
		ControllerName string `yaml:"controllerName"`
	}
	Provider struct {
		Type       string
		Kubernetes struct {
			RateLimitDeployment struct {
				Replicas  int
				Container struct {
					Image string
					Env   []struct{ Name, Value string }
				}
			} `yaml:"rateLimitDeployment"`
		}
	}
	RateLimit struct {
		Timeout    string
		FailClosed bool `yaml:"failClosed"`
		Backend    struct {
			Type  string
			Redis struct{ URL string }
		}
	} `yaml:"rateLimit"`
}

// translate makes of a rule what Envoy Gateway does: the actions of Envoy's route
// after that for the route, and the rule below that of the route
// (internal/xds/translator/ratelimit.go, buildRouteRateLimits and
// buildRateLimitServiceDescriptors).
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
		if err != nil {
			t.Fatal(err)
		}
		add(object{"masked_remote_address": object{"v4_prefix_mask_len": network.Bits()}}, "masked_remote_address", network.String())
		if selector.SourceCIDR.Type == "Distinct" {
			add(object{"remote_address": object{}}, "remote_address", "")
		}
	}
	unit, known := pb.RateLimitUnit_value[strings.ToUpper(r.Limit.Unit)]
	if !known || len(path) == 0 {
		t.Fatalf("rule %d has the unit %q and matches by %d entries", n, r.Limit.Unit, len(path))
	}
	path[len(path)-1].RateLimit = &pb.RateLimitPolicy{RequestsPerUnit: r.Limit.Requests, Unit: pb.RateLimitUnit(unit)}
	for i := len(path) - 1; i > 0; i-- {
		path[i-1].Descriptors = []*pb.RateLimitDescriptor{path[i]}
	}
	return actions, path[0]
}

// TestEnvoyGateway makes of examples/envoy-gateway/policy.yaml the rules that sluice
// gets over xDS and the route that Envoy gets, and plays the README on them.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	var policy backendTrafficPolicy
	manifest(t, &policy, "BackendTrafficPolicy", "envoy-gateway", "policy.yaml")
	const domain, route = "default/eg/http", "httproute/default/shop/rule/0/match/0/shop_example_com"
	tree := &pb.RateLimitDescriptor{Key: route, Value: route}
	var limits list
	for n, r := range policy.Spec.RateLimit.Global.Rules {
		actions, rule := r.translate(t, n)
		tree.Descriptors = append(tree.Descriptors, rule)
		first := object{"generic_key": object{"descriptor_key": route, "descriptor_value": route}}
		limits = append(limits, object{"actions": append(list{first}, actions...)})
	}

	manager, err := adstest.Start(adstest.Options{NodeID: "envoy-ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Stop)
	rules := &pb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*pb.RateLimitDescriptor{tree}}
	if err := manager.Set("1", rules); err != nil {
		t.Fatal(err)
	}

	gateway := readEnvoyGateway(t)
	filter := object{"name": "envoy.filters.http.ratelimit", "typed_config": object{
		"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
		"domain": domain, "timeout": seconds(t, gateway.RateLimit.Timeout),
		"failure_mode_deny":          gateway.RateLimit.FailClosed,
		"enable_x_ratelimit_headers": "DRAFT_VERSION_03",
		"rate_limit_service": object{
			"transport_api_version": "V3",
			"grpc_service":          object{"envoy_grpc": object{"cluster_name": "ratelimit_cluster"}},
		},
	}}
	const host = "envoy-ratelimit.envoy-gateway-system.svc.cluster.local"
	config := gatewaySkeleton(t, filter, dnsCluster("ratelimit_cluster", host, 8081), "shop.example.com", list{object{
		"match": object{"prefix": "/"},
		"route": object{"cluster": "shop"},
		"typed_per_filter_config": object{"envoy.filters.http.ratelimit": object{
			"@type":       "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
			"rate_limits": limits,
		}},
	}})
	validate(t, config)
	playGateway(t, place{
		name:   "envoy-gateway",
		flags:  []string{"--xds-addr", manager.Addr(), "--xds-node-id", "envoy-ratelimit"},
		config: config, listener: "gateway", address: host + ":8081",
	})
}

// readEnvoyGateway reads the EnvoyGateway within the ConfigMap of the example.
func readEnvoyGateway(t *testing.T) (gateway envoyGateway) {
	t.Helper()
	var configMap struct {
		objectMeta `yaml:",inline"`
		Data       map[string]string
	}
	manifest(t, &configMap, "ConfigMap", "envoy-gateway", "envoy-gateway.yaml")
	text := configMap.Data["envoy-gateway.yaml"]
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&gateway); err != nil {
		t.Fatalf("EnvoyGateway: %v in:\n%s", err, text)
	}
	return gateway
}

// TestEnvoyGatewaysSluiceStarts starts sluice with the variables of the example beside
// those of a Redis that Envoy Gateway always sets: one of them must say that there
// is none, and it must be the example's.
func TestEnvoyGatewaysSluiceStarts(t *testing.T) {
	t.Parallel()
	gateway := readEnvoyGateway(t)
	deployment := gateway.Provider.Kubernetes.RateLimitDeployment
	if deployment.Replicas != 1 || !strings.HasPrefix(deployment.Container.Image, "ghcr.io/sluice-ratelimit/sluice:") {
		t.Errorf("the Deployment is %+v, want one replica of sluice's image", deployment)
	}
	env := []string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + gateway.RateLimit.Backend.Redis.URL}
	for _, v := range deployment.Container.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rules := []string{"-c", "examples/quickstart"}
	startSluice(t, sluice.Options{Args: rules, Env: env})
	s, err := sluice.Start(ctx, sluice.Options{Binary: sluiceBinary, Dir: root, Args: rules, Env: env[:2]})
	if err == nil {
		s.Kill()
		t.Error("sluice starts without the variables of the example, too")
	}
}
