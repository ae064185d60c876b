package kustomize

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the copies from their sources")

// replacements are edits of a source. Each key must occur in it exactly once.
type replacements map[string]string

// copies are files derived from other files by edits. A kustomization cannot include files outside of its directory,
// and neither can a Helm chart. The sources in ../examples are run by tests.
var copies = map[string]struct {
	source string
	edits  replacements
}{
	"overlays/sharded/rules.yaml": {source: "../examples/sharded/rules.yaml"},
	"overlays/sharded/envoy.yaml": {"../examples/sharded/envoy.yaml", replacements{
		"address: 127.0.0.1, port_value: 8081 } } }": "address: sluice-0.sluice, port_value: 8081 } } }",
		"address: 127.0.0.1, port_value: 8082 } } }": "address: sluice-1.sluice, port_value: 8081 } } }",
		"address: 127.0.0.1, port_value: 8083 } } }": "address: sluice-2.sluice, port_value: 8081 } } }",
	}},
	"overlays/sidecar-unix/envoy.yaml": {"overlays/sidecar-loopback/envoy.yaml", replacements{
		"socket_address: { address: 127.0.0.1, port_value: 8081 }": "pipe: { path: /run/sluice/grpc.sock }",
	}},

	chartDir + "/files/contour-configuration.yaml":    {source: "overlays/contour/contourconfiguration.yaml"},
	chartDir + "/files/contour-extensionservice.yaml": {source: "overlays/contour/extensionservice.yaml"},
	chartDir + "/files/envoy-ai-gateway-service.yaml": {source: "overlays/envoy-ai-gateway/service.yaml"},
	chartDir + "/files/envoy-service.yaml":            {source: "envoy/service.yaml"},
	chartDir + "/files/envoy-serviceaccount.yaml":     {source: "envoy/serviceaccount.yaml"},
	chartDir + "/files/horizontalpodautoscaler.yaml":  {source: "components/hpa/horizontalpodautoscaler.yaml"},
	chartDir + "/files/istio-descriptors.yaml":        {source: "overlays/istio/descriptors.yaml"},
	chartDir + "/files/istio-filter.yaml":             {source: "overlays/istio/filter.yaml"},
	chartDir + "/files/networkpolicy.yaml":            {source: "components/network-policy/networkpolicy.yaml"},
	chartDir + "/files/poddisruptionbudget.yaml":      {source: "components/pdb/poddisruptionbudget.yaml"},
	chartDir + "/files/podmonitor.yaml":               {source: "components/monitoring/podmonitor.yaml"},
	chartDir + "/files/prometheusrule.yaml":           {source: "components/monitoring/prometheusrule.yaml"},
	chartDir + "/files/rules.yaml":                    {source: "rules/rules.yaml"},
	chartDir + "/files/valkey-deployment.yaml":        {source: "components/dev-valkey/deployment.yaml"},
	chartDir + "/files/valkey-secret.yaml":            {source: "components/dev-valkey/secret.yaml"},
	chartDir + "/files/valkey-service.yaml":           {source: "components/dev-valkey/service.yaml"},
	chartDir + "/files/serviceaccount.yaml":           {source: "base/serviceaccount.yaml"},
	chartDir + "/files/sharded-envoy.yaml":            {source: "overlays/sharded/envoy.yaml"},
	chartDir + "/files/sharded-rules.yaml":            {source: "overlays/sharded/rules.yaml"},
	chartDir + "/files/sidecar-loopback-envoy.yaml":   {source: "overlays/sidecar-loopback/envoy.yaml"},
	chartDir + "/files/sidecar-networkpolicy.yaml":    {source: "sidecar/networkpolicy.yaml"},
	chartDir + "/files/sidecar-unix-envoy.yaml":       {source: "overlays/sidecar-unix/envoy.yaml"},
}

// TestCopies compares each copy with its edited source, and checks that each file of the chart is a copy.
func TestCopies(t *testing.T) {
	for name, c := range copies {
		text, err := os.ReadFile(c.source)
		if err != nil {
			t.Fatal(err)
		}
		want := string(text)
		for old, replacement := range c.edits {
			if strings.Count(want, old) != 1 {
				t.Fatalf("%s does not contain %q exactly once", c.source, old)
			}
			want = strings.Replace(want, old, replacement, 1)
		}
		checkFile(t, name, want)
	}
	files, err := filepath.Glob(chartDir + "/files/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if copies[file].source == "" {
			t.Errorf("%s is not a copy", file)
		}
	}
}

// TestPrometheusRule compares the alerts here with those in dashboards/. A kustomization cannot include files outside
// of its directory.
func TestPrometheusRule(t *testing.T) {
	text, err := os.ReadFile("../dashboards/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, groups, found := strings.Cut(string(text), "\ngroups:\n")
	if !found {
		t.Fatal("dashboards/alerts.yaml has no groups")
	}
	var rule strings.Builder
	rule.WriteString(`# The alerts of dashboards/alerts.yaml, which dashboards/README.md explains. Written by
#
#     go test -run PrometheusRule -update
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sluice
  namespace: sluice
  labels:
    app.kubernetes.io/name: sluice
spec:
  groups:
`)
	for line := range strings.Lines(groups) {
		if line != "\n" {
			rule.WriteString("  ")
		}
		rule.WriteString(line)
	}
	checkFile(t, "components/monitoring/prometheusrule.yaml", rule.String())
}

// TestIstio compares the filter and the cluster of overlays/istio with those of examples/istio, which a test runs: only
// the domain differs.
func TestIstio(t *testing.T) {
	example, err := os.ReadFile("../examples/istio/envoyfilter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	filter, _, _ := strings.Cut(string(example), "---\n")
	if strings.Count(filter, "domain: istio\n") != 1 {
		t.Fatal("examples/istio/envoyfilter.yaml does not say `domain: istio` once")
	}
	checkFile(t, "overlays/istio/filter.yaml", strings.Replace(filter, "domain: istio\n", "domain: sluice\n", 1))
}

// checkFile compares the contents of a file with want, or with -update writes them.
func checkFile(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s differs from its source, %v: run go test -run '%s' -update", name, err, t.Name())
	}
}
