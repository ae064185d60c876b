package examples_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// manifest decodes the object of a kind in a file of an example. Unknown fields are errors.
func manifest(t *testing.T, into any, kind string, path ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root, "examples"}, path...)...))
	must.OK(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			t.Fatalf("%s: no %s", filepath.Join(path...), kind)
		} else if err != nil {
			t.Fatal(err)
		}
		var head struct{ Kind string }
		must.OK(t, node.Decode(&head))
		if head.Kind != kind {
			continue
		}
		one, err := yaml.Marshal(&node)
		must.OK(t, err)
		strict := yaml.NewDecoder(bytes.NewReader(one))
		strict.KnownFields(true)
		if err := strict.Decode(into); err != nil {
			t.Fatalf("%s: %s: %v", filepath.Join(path...), kind, err)
		}
		return
	}
}

// objectMeta is the metadata of a Kubernetes object.
type objectMeta struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name      string
		Namespace string
	}
}

// gatewaySkeleton returns a gateway with one host, and a backend that replaces its services. Tests
// provide the rate limit filter, the cluster of sluice and the routes.
func gatewaySkeleton(t *testing.T, filter, cluster object, host string, routes list) object {
	t.Helper()
	config := testdata(t, "gateway.yaml")
	static := field[object](config, "static_resources")
	static["clusters"] = append(field[list](static, "clusters"), cluster)
	eachObject(static["listeners"], func(o object) {
		if o["stat_prefix"] == "gateway" {
			o["http_filters"] = append(list{filter}, field[list](o, "http_filters")...)
			o["route_config"] = object{"virtual_hosts": list{
				object{"name": host, "domains": list{host}, "routes": routes},
			}}
		}
	})
	return config
}

// seconds converts a Kubernetes duration to Envoy's format.
func seconds(t *testing.T, text string) string {
	t.Helper()
	d, err := time.ParseDuration(text)
	must.OK(t, err)
	return fmt.Sprintf("%gs", d.Seconds())
}

// h2Options returns the options of a cluster with HTTP/2 without TLS.
func h2Options() object {
	return object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
		"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
		"explicit_http_config": object{"http2_protocol_options": object{}},
	}}
}

// dnsCluster returns a cluster with one endpoint.
func dnsCluster(name, host string, port int) object {
	return object{
		"name": name, "type": "STRICT_DNS", "connect_timeout": "2s",
		"typed_extension_protocol_options": h2Options(),
		"load_assignment": object{"cluster_name": name, "endpoints": list{object{"lb_endpoints": list{
			object{"endpoint": object{"address": object{"socket_address": object{"address": host, "port_value": port}}}},
		}}}},
	}
}
