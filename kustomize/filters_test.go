package kustomize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	istio "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// envoyFilter is Istio's type, without the dependency on Istio's client.
type envoyFilter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Raw  json.RawMessage    `json:"spec"`
	spec *istio.EnvoyFilter `json:"-"`
}

// DeepCopyObject is never called, because the tests do not modify objects.
func (f *envoyFilter) DeepCopyObject() runtime.Object { return f }

func decodeFilter(document []byte) (*envoyFilter, error) {
	text, err := yaml.ToJSON(document)
	if err != nil {
		return nil, err
	}
	f := &envoyFilter{spec: &istio.EnvoyFilter{}}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(f.Raw, f.spec); err != nil {
		return nil, err
	}
	return f, nil
}

type (
	dict = map[string]any
	list = []any
)

// checkFilters applies the patches of all EnvoyFilters to a configuration of Envoy without sluice, and validates the
// result with Envoy.
func (o *objects) checkFilters() error {
	var config dict
	if err := yaml.Unmarshal([]byte(manifests["overlays/sidecar-loopback/envoy.yaml"]), &config); err != nil {
		return err
	}
	static, manager, host := withoutSluice(config)
	var cluster []byte
	applied := map[istio.EnvoyFilter_ApplyTo]int{}
	for _, one := range o.all {
		f, ok := one.(*envoyFilter)
		if !ok {
			continue
		}
		if f.Namespace != "istio-system" || f.spec.GetWorkloadSelector().GetLabels()["istio"] != "ingressgateway" {
			return fmt.Errorf("EnvoyFilter %s is not for the ingress gateway", f.Name)
		}
		for _, p := range f.spec.GetConfigPatches() {
			if p.GetMatch().GetContext() != istio.EnvoyFilter_GATEWAY {
				return fmt.Errorf("EnvoyFilter %s is for the context %s", f.Name, p.GetMatch().GetContext())
			}
			value := p.GetPatch().GetValue().AsMap()
			at := p.GetMatch().GetListener().GetFilterChain().GetFilter()
			switch to, operation := p.GetApplyTo(), p.GetPatch().GetOperation(); {
			case to == istio.EnvoyFilter_HTTP_FILTER && operation == istio.EnvoyFilter_Patch_INSERT_BEFORE &&
				at.GetName() == "envoy.filters.network.http_connection_manager" && at.GetSubFilter().GetName() == "envoy.filters.http.router":
				filters, _ := manager["http_filters"].(list)
				manager["http_filters"] = slices.Insert(filters, len(filters)-1, any(value))
			case to == istio.EnvoyFilter_CLUSTER && operation == istio.EnvoyFilter_Patch_ADD:
				clusters, _ := static["clusters"].(list)
				static["clusters"] = append(clusters, value)
				text, err := json.Marshal(value)
				if err != nil {
					return err
				}
				cluster = text
			case to == istio.EnvoyFilter_VIRTUAL_HOST && operation == istio.EnvoyFilter_Patch_MERGE:
				maps.Copy(host, value)
			default:
				return fmt.Errorf("EnvoyFilter %s: this test knows no %s of %s there", f.Name, operation, to)
			}
			applied[p.GetApplyTo()]++
		}
	}
	if len(applied) == 0 {
		return nil
	}
	if len(applied) != 3 {
		return fmt.Errorf("EnvoyFilters patch %v, want a filter, a cluster and the descriptors of hosts", applied)
	}
	return o.checkPatched(config, cluster)
}

// checkPatched checks the configuration of an Envoy after all patches.
func (o *objects) checkPatched(config dict, patch []byte) error {
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := validate(string(text)); err != nil {
		return err
	}
	var asked cluster
	if err := json.Unmarshal(patch, &asked); err != nil {
		return err
	}
	for _, a := range asked.addresses() {
		if err := o.checkName(a.Socket.Address, a.Socket.Port, ""); err != nil {
			return err
		}
	}
	if len(asked.addresses()) == 0 || asked.Name != "sluice" {
		return fmt.Errorf("the cluster is %s", patch)
	}
	return o.checkFilter(config)
}

// withoutSluice removes the parts that call sluice from a configuration, and returns the parts to which patches apply.
func withoutSluice(config dict) (static, manager, host dict) {
	first := func(from dict, list string) dict { return from[list].([]any)[0].(dict) }
	static = config["static_resources"].(dict)
	manager = first(first(first(static, "listeners"), "filter_chains"), "filters")["typed_config"].(dict)
	host = first(manager["route_config"].(dict), "virtual_hosts")
	manager["http_filters"] = manager["http_filters"].(list)[1:]
	static["clusters"] = static["clusters"].(list)[1:]
	delete(host, "rate_limits")
	return static, manager, host
}

// rateLimitFilter returns the domain and the cluster of the rate-limit filter in a configuration.
func rateLimitFilter(config any) (domain, cluster string) {
	switch v := config.(type) {
	case dict:
		if domain, ok := v["domain"].(string); ok {
			service, _ := v["rate_limit_service"].(dict)
			grpc, _ := service["grpc_service"].(dict)
			envoy, _ := grpc["envoy_grpc"].(dict)
			cluster, _ := envoy["cluster_name"].(string)
			return domain, cluster
		}
		for _, inner := range v {
			if domain, cluster := rateLimitFilter(inner); domain != "" {
				return domain, cluster
			}
		}
	case list:
		for _, inner := range v {
			if domain, cluster := rateLimitFilter(inner); domain != "" {
				return domain, cluster
			}
		}
	}
	return "", ""
}

// checkFilter checks that a filter calls sluice, for a domain with rules.
func (o *objects) checkFilter(config dict) error {
	domain, cluster := rateLimitFilter(config)
	if cluster != "sluice" {
		return fmt.Errorf("the filter asks cluster %q", cluster)
	}
	return o.checkDomain(domain)
}
