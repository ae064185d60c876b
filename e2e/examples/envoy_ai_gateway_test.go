package examples_test

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// quotaPolicy contains the fields of Envoy AI Gateway's object that the example uses.
type quotaPolicy struct {
	objectMeta `yaml:",inline"`
	Spec       struct {
		TargetRefs     []struct{ Group, Kind, Name string } `yaml:"targetRefs"`
		PerModelQuotas []struct {
			ModelName string `yaml:"modelName"`
			Quota     struct {
				DefaultBucket struct {
					Limit    uint32
					Duration string
				} `yaml:"defaultBucket"`
			}
		} `yaml:"perModelQuotas"`
	}
}

// TestEnvoyAIGateway translates examples/envoy-ai-gateway/quota.yaml like Envoy AI Gateway: the
// rules for sluice (internal/ratelimit/translator), and the filter and the rate_limits of a route
// (internal/extensionserver, quota_ratelimit.go). Then it runs the README.
func TestEnvoyAIGateway(t *testing.T) {
	t.Parallel()
	const domain, filterName, namespace = "ai-gateway-quota", "envoy.filters.http.ratelimit/ai-gateway-quota", "io.envoy.ai_gateway"
	var policy quotaPolicy
	manifest(t, &policy, "QuotaPolicy", "envoy-ai-gateway", "quota.yaml")
	model := policy.Spec.PerModelQuotas[0]
	backend := policy.Metadata.Namespace + "/" + policy.Spec.TargetRefs[0].Name
	unit, known := map[string]pb.RateLimitUnit{"1s": pb.RateLimitUnit_SECOND, "1m": pb.RateLimitUnit_MINUTE, "1h": pb.RateLimitUnit_HOUR, "1d": pb.RateLimitUnit_DAY}[model.Quota.DefaultBucket.Duration]
	if !known || len(policy.Spec.PerModelQuotas) != 1 || len(policy.Spec.TargetRefs) != 1 {
		t.Fatalf("the policy is %+v, want one model of one backend, and a duration of one unit", policy)
	}
	rules := &pb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*pb.RateLimitDescriptor{{
		Key: "backend_name", Value: backend, Descriptors: []*pb.RateLimitDescriptor{{
			Key: "model_name_override", Value: model.ModelName, QuotaMode: true,
			RateLimit: &pb.RateLimitPolicy{RequestsPerUnit: model.Quota.DefaultBucket.Limit, Unit: unit},
		}},
	}}}
	const node = "envoy-ai-gateway-ratelimit"
	manager, err := adstest.Start(adstest.Options{NodeID: node})
	must.OK(t, err)
	t.Cleanup(manager.Stop)
	must.OK(t, manager.Set("1", rules))

	fixed := func(key, value string) object {
		return object{"generic_key": object{"descriptor_key": key, "descriptor_value": value}}
	}
	metadataAction := func(key, name string) object {
		return object{"metadata": object{"descriptor_key": key, "source": "DYNAMIC", "metadata_key": object{"key": namespace, "path": list{object{"key": name}}}}}
	}
	limits := list{
		object{"actions": list{fixed("backend_name", backend), fixed("model_name_override", model.ModelName)}},
		object{
			"actions":     list{metadataAction("backend_name", "ai_service_backend_name"), metadataAction("model_name_override", "model_name_override")},
			"hits_addend": object{"format": "%DYNAMIC_METADATA(" + namespace + ":quota_cost)%"}, "apply_on_stream_done": true,
		},
	}
	host, _, _ := strings.Cut(aiGatewayService, ":")
	config := gatewaySkeleton(t, object{"name": filterName, "typed_config": object{
		"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
		"domain": domain, "timeout": "5s",
		"disable_x_envoy_ratelimited_header": true, "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
		"rate_limit_service": object{
			"transport_api_version": "V3",
			"grpc_service":          object{"envoy_grpc": object{"cluster_name": "ai_gateway_ratelimit_cluster"}},
		},
	}}, dnsCluster("ai_gateway_ratelimit_cluster", host, 8081), "ai.example.com", list{object{
		"match": object{"prefix": "/"},
		"route": object{"cluster": "shop"},
		"typed_per_filter_config": object{filterName: object{
			"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
			"domain": domain, "rate_limits": limits,
		}},
	}})
	// Replaces the filter that reads the tokens of a response.
	counted := object{"name": "envoy.filters.http.set_metadata", "typed_config": object{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
		"metadata": list{object{"metadata_namespace": namespace, "value": object{
			"ai_service_backend_name": backend, "model_name_override": model.ModelName, "quota_cost": 400,
		}}},
	}}
	eachObject(config, func(o object) {
		if o["stat_prefix"] == "gateway" {
			o["http_filters"] = append(list{counted}, field[list](o, "http_filters")...)
		}
	})
	validate(t, config)
	testGateway(t, gatewayCase{
		name: "envoy-ai-gateway", flags: []string{"--xds-addr", manager.Addr(), "--xds-node-id", node, "--start-without-rules"},
		config: config, listener: "gateway", address: aiGatewayService,
	})
}

// aiGatewayService is the address of the rate limit service in Envoy AI Gateway.
const aiGatewayService = "envoy-ai-gateway-ratelimit.envoy-gateway-system:8081"
