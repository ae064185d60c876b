package kustomize

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write files of which the source is elsewhere")

// TestPrometheusRule holds the alerts here against those in dashboards/. A
// kustomization cannot take a file from outside of its folder.
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
	hold(t, "components/monitoring/prometheusrule.yaml", rule.String())
}

// TestSharded holds the Envoy of overlays/sharded against that of examples/sharded,
// which a test runs: only the replicas' addresses differ.
func TestSharded(t *testing.T) {
	for _, name := range []string{"envoy.yaml", "rules.yaml"} {
		example, err := os.ReadFile("../examples/sharded/" + name)
		if err != nil {
			t.Fatal(err)
		}
		want := string(example)
		if name == "envoy.yaml" {
			for i := range 3 {
				there := fmt.Sprintf("address: 127.0.0.1, port_value: 808%d } } }", 1+i)
				if strings.Count(want, there) != 1 {
					t.Fatalf("examples/sharded/%s does not say %q once", name, there)
				}
				want = strings.Replace(want, there, fmt.Sprintf("address: sluice-%d.sluice, port_value: 8081 } } }", i), 1)
			}
		}
		hold(t, "overlays/sharded/"+name, want)
	}
}

// TestIstio holds the filter and the cluster of overlays/istio against those of
// examples/istio, which a test runs: only the domain differs.
func TestIstio(t *testing.T) {
	example, err := os.ReadFile("../examples/istio/envoyfilter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	filter, _, _ := strings.Cut(string(example), "---\n")
	if strings.Count(filter, "domain: istio\n") != 1 {
		t.Fatal("examples/istio/envoyfilter.yaml does not say `domain: istio` once")
	}
	hold(t, "overlays/istio/filter.yaml", strings.Replace(filter, "domain: istio\n", "domain: sluice\n", 1))
}

// TestSidecarsDifferInTheAddress holds the two configurations of an Envoy with a
// sidecar against each other.
func TestSidecarsDifferInTheAddress(t *testing.T) {
	loopback, err := os.ReadFile("overlays/sidecar-loopback/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hold(t, "overlays/sidecar-unix/envoy.yaml", strings.Replace(string(loopback),
		"socket_address: { address: 127.0.0.1, port_value: 8081 }", "pipe: { path: /run/sluice/grpc.sock }", 1))
}

// hold wants a file to have a text.
func hold(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s is not as its source says, %v: run go test -run '%s' -update", name, err, t.Name())
	}
}
