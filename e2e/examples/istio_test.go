package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// envoyFilter contains the fields of Istio's EnvoyFilter that the examples use. Other fields are
// errors.
type envoyFilter struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Spec       struct {
		WorkloadSelector struct{ Labels map[string]string } `yaml:"workloadSelector"`
		ConfigPatches    []configPatch                      `yaml:"configPatches"`
	}
}

type configPatch struct {
	ApplyTo string `yaml:"applyTo"`
	Match   struct {
		Context  string
		Listener struct {
			FilterChain struct {
				Filter struct {
					Name      string
					SubFilter struct{ Name string } `yaml:"subFilter"`
				}
			} `yaml:"filterChain"`
		}
		RouteConfiguration struct {
			Vhost struct {
				Name  string
				Route struct{ Name string }
			}
		} `yaml:"routeConfiguration"`
	}
	Patch struct {
		Operation string
		Value     object
	}
}

// gateway is an Envoy configuration to which EnvoyFilters are applied as by istiod.
type gateway struct {
	*bootstrapv3.Bootstrap
	context string
}

// apply applies a patch. A patch that matches nothing is an error, unlike in Istio, because the
// example would have no effect.
func (g gateway) apply(p configPatch) error {
	if p.Match.Context != g.context {
		return fmt.Errorf("context is %q, want %s", p.Match.Context, g.context)
	}
	var matched int
	var err error
	switch kind := p.ApplyTo + " " + p.Patch.Operation; kind {
	case "CLUSTER ADD":
		var added clusterv3.Cluster
		if err := decodeStrict(p.Patch.Value, &added); err != nil {
			return err
		}
		g.StaticResources.Clusters = append(g.GetStaticResources().GetClusters(), &added)
		return nil
	case "HTTP_FILTER INSERT_BEFORE":
		matched, err = g.insertBefore(p)
	case "VIRTUAL_HOST MERGE", "HTTP_ROUTE MERGE":
		matched, err = g.mergeRoutes(p)
	default:
		err = fmt.Errorf("unsupported kind %s", kind)
	}
	if err == nil && matched == 0 {
		err = errors.New("nothing matches")
	}
	return err
}

// eachManager calls change with each connection manager, and stores the changed one.
func (g gateway) eachManager(change func(filter string, m *hcmv3.HttpConnectionManager) error) error {
	for _, l := range g.GetStaticResources().GetListeners() {
		for _, chain := range l.GetFilterChains() {
			for _, filter := range chain.GetFilters() {
				var m hcmv3.HttpConnectionManager
				config, ok := filter.GetConfigType().(*listenerv3.Filter_TypedConfig)
				if !ok || config.TypedConfig.UnmarshalTo(&m) != nil {
					continue
				}
				if err := change(filter.GetName(), &m); err != nil {
					return err
				}
				if err := config.TypedConfig.MarshalFrom(&m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g gateway) insertBefore(p configPatch) (matched int, err error) {
	var added hcmv3.HttpFilter
	if err := decodeStrict(p.Patch.Value, &added); err != nil {
		return 0, err
	}
	want := p.Match.Listener.FilterChain.Filter
	return matched, g.eachManager(func(filter string, m *hcmv3.HttpConnectionManager) error {
		if filter != want.Name {
			return nil
		}
		at := slices.IndexFunc(m.GetHttpFilters(), func(f *hcmv3.HttpFilter) bool { return f.GetName() == want.SubFilter.Name })
		if at >= 0 {
			m.HttpFilters = slices.Insert(m.GetHttpFilters(), at, &added)
			matched++
		}
		return nil
	})
}

func (g gateway) mergeRoutes(p configPatch) (matched int, err error) {
	want := p.Match.RouteConfiguration.Vhost
	return matched, g.eachManager(func(_ string, m *hcmv3.HttpConnectionManager) error {
		for _, host := range m.GetRouteConfig().GetVirtualHosts() {
			if host.GetName() != want.Name {
				continue
			}
			if p.ApplyTo == "VIRTUAL_HOST" {
				var value routev3.VirtualHost
				if err := decodeStrict(p.Patch.Value, &value); err != nil {
					return err
				}
				proto.Merge(host, &value)
				matched++
				continue
			}
			for _, route := range host.GetRoutes() {
				if route.GetName() != want.Route.Name {
					continue
				}
				var value routev3.Route
				if err := decodeStrict(p.Patch.Value, &value); err != nil {
					return err
				}
				proto.Merge(route, &value)
				matched++
			}
		}
		return nil
	})
}

// decodeStrict decodes a value as Envoy does: unknown fields are errors.
func decodeStrict(value any, into proto.Message) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, into)
}

// applyPatches applies the EnvoyFilters in a file to the configuration of a proxy in the given context.
func applyPatches(config object, filters []byte, context string) (object, error) {
	g := gateway{&bootstrapv3.Bootstrap{}, context}
	if err := decodeStrict(config, g.Bootstrap); err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(filters))
	decoder.KnownFields(true)
	for {
		var f envoyFilter
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if got := f.APIVersion + " " + f.Kind; got != "networking.istio.io/v1alpha3 EnvoyFilter" {
			return nil, fmt.Errorf("is a %s", got)
		}
		for i, p := range f.Spec.ConfigPatches {
			if err := g.apply(p); err != nil {
				return nil, fmt.Errorf("%s, patch %d: %w", f.Metadata.Name, i+1, err)
			}
		}
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(g.Bootstrap)
	if err != nil {
		return nil, err
	}
	var result object
	return result, yaml.Unmarshal(text, &result)
}

// TestIstio applies examples/istio/envoyfilter.yaml to a gateway's configuration from istiod. Envoy
// validates the result, and the README is run.
func TestIstio(t *testing.T) {
	t.Parallel()
	filters, err := os.ReadFile(filepath.Join(root, "examples", "istio", "envoyfilter.yaml"))
	must.OK(t, err)
	config, err := applyPatches(testdata(t, "istio-gateway.yaml"), filters, "GATEWAY")
	must.OK(t, err)
	validate(t, config)
	testGateway(t, gatewayCase{
		name: "istio", config: config, listener: "0.0.0.0_8080",
		address: "sluice.sluice.svc.cluster.local:8081",
	})
}

// TestEnvoyFiltersLoadInOlderEnvoys checks for fields that only Envoy 1.40 and later have. Gateways
// use older Envoys, which reject a filter with an unknown field.
func TestEnvoyFiltersLoadInOlderEnvoys(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"examples/istio/envoyfilter.yaml", "kustomize/overlays/istio/filter.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		must.OK(t, err)
		if bytes.Contains(text, []byte("enable_retry_after_header")) {
			t.Errorf("%s: enable_retry_after_header needs Envoy 1.40", path)
		}
	}
}

// validate has the real Envoy check a configuration.
func validate(t *testing.T, config object) {
	t.Helper()
	text, err := json.Marshal(config)
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "envoy.json")
	must.OK(t, os.WriteFile(path, text, 0o600))
	if err := envoy.Validate(t.Context(), suite.Envoy(t, root), path); err != nil {
		t.Error(err)
	}
}
