package examples_test

import (
	"fmt"
	"testing"
)

// extensionService, contourConfiguration and httpProxy contain the fields of Contour's objects that
// the example uses.
type extensionService struct {
	objectMeta `yaml:",inline"`
	Spec       struct {
		Protocol string
		Services []struct {
			Name string
			Port int
		}
		TimeoutPolicy struct{ Response string } `yaml:"timeoutPolicy"`
	}
}

type contourConfiguration struct {
	objectMeta `yaml:",inline"`
	Spec       struct {
		RateLimitService struct {
			ExtensionService            struct{ Name, Namespace string } `yaml:"extensionService"`
			Domain                      string
			FailOpen                    bool `yaml:"failOpen"`
			EnableXRateLimitHeaders     bool `yaml:"enableXRateLimitHeaders"`
			EnableResourceExhaustedCode bool `yaml:"enableResourceExhaustedCode"`
		} `yaml:"rateLimitService"`
	}
}

type httpProxy struct {
	objectMeta `yaml:",inline"`
	Spec       struct {
		VirtualHost struct{ FQDN string } `yaml:"virtualhost"`
		Routes      []struct {
			Conditions []struct{ Prefix string }
			Services   []struct {
				Name string
				Port int
			}
			RateLimitPolicy struct {
				Global struct {
					Descriptors []struct{ Entries []contourEntry }
				}
			} `yaml:"rateLimitPolicy"`
		}
	}
}

type contourEntry struct {
	GenericKey    *struct{ Key, Value string } `yaml:"genericKey"`
	RequestHeader *struct {
		HeaderName    string `yaml:"headerName"`
		DescriptorKey string `yaml:"descriptorKey"`
	} `yaml:"requestHeader"`
	RemoteAddress *struct{} `yaml:"remoteAddress"`
}

// action translates the entry like Contour's envoy/v3.GlobalRateLimits.
func (e contourEntry) action() object {
	switch {
	case e.GenericKey != nil:
		return object{"generic_key": object{"descriptor_key": e.GenericKey.Key, "descriptor_value": e.GenericKey.Value}}
	case e.RequestHeader != nil:
		return object{"request_headers": object{
			"header_name": e.RequestHeader.HeaderName, "descriptor_key": e.RequestHeader.DescriptorKey,
		}}
	default:
		return object{"remote_address": object{}}
	}
}

// filter translates the configuration like Contour's envoy/v3.GlobalRateLimitFilter.
func (c contourConfiguration) filter(timeout string) object {
	s := c.Spec.RateLimitService
	name := s.ExtensionService.Namespace + "/" + s.ExtensionService.Name
	config := object{
		"@type":                              "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
		"domain":                             s.Domain,
		"timeout":                            timeout,
		"failure_mode_deny":                  !s.FailOpen,
		"rate_limited_as_resource_exhausted": s.EnableResourceExhaustedCode,
		"rate_limit_service": object{
			"transport_api_version": "V3",
			"grpc_service": object{"envoy_grpc": object{
				"cluster_name": "extension/" + name,
				"authority":    "extension." + s.ExtensionService.Namespace + "." + s.ExtensionService.Name,
			}},
		},
	}
	if s.EnableXRateLimitHeaders {
		config["enable_x_ratelimit_headers"] = "DRAFT_VERSION_03"
	}
	return object{"name": "envoy.filters.http.ratelimit", "typed_config": config}
}

// TestContour translates the objects of examples/contour like Contour
// (internal/envoy/v3/ratelimit.go), and runs the README with the result.
func TestContour(t *testing.T) {
	t.Parallel()
	var service extensionService
	manifest(t, &service, "ExtensionService", "contour", "contour.yaml")
	var configuration contourConfiguration
	manifest(t, &configuration, "ContourConfiguration", "contour", "contour.yaml")
	var proxy httpProxy
	manifest(t, &proxy, "HTTPProxy", "contour", "contour.yaml")

	reference := configuration.Spec.RateLimitService.ExtensionService
	if reference.Name != service.Metadata.Name || reference.Namespace != service.Metadata.Namespace {
		t.Errorf("the ContourConfiguration uses %v, want the ExtensionService %v", reference, service.Metadata)
	}
	if len(service.Spec.Services) != 1 || service.Spec.Protocol != "h2c" {
		t.Fatalf("the ExtensionService is %+v, want one service with h2c", service.Spec)
	}
	backend := service.Spec.Services[0]
	host := fmt.Sprintf("%s.%s.svc.cluster.local", backend.Name, service.Metadata.Namespace)
	cluster := dnsCluster(fmt.Sprintf("extension/%s/%s", reference.Namespace, reference.Name), host, backend.Port)

	var routes list
	for _, r := range proxy.Spec.Routes {
		var limits list
		for _, d := range r.RateLimitPolicy.Global.Descriptors {
			var actions list
			for _, e := range d.Entries {
				actions = append(actions, e.action())
			}
			limits = append(limits, object{"actions": actions})
		}
		routes = append(routes, object{
			"match": object{"prefix": r.Conditions[0].Prefix},
			"route": object{"cluster": "shop", "rate_limits": limits},
		})
	}
	config := gatewaySkeleton(t, configuration.filter(seconds(t, service.Spec.TimeoutPolicy.Response)), cluster, proxy.Spec.VirtualHost.FQDN, routes)
	validate(t, config)
	testGateway(t, gatewayCase{
		name: "contour", config: config, listener: "gateway",
		address: fmt.Sprintf("%s:%d", host, backend.Port),
	})
}
