//go:build torture

package torture

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestCallsLostInRestarts counts the calls lost in a restart behind the cluster of
// ../../envoy.yaml, and prints the table in docs/failure-modes.md. No call may be lost if the drain
// is longer than Envoy's health checks need to notice it.
func TestCallsLostInRestarts(t *testing.T) {
	if !Long() {
		t.Skip("long tier only: each restart waits for Envoy's health checks")
	}
	var table strings.Builder
	for _, tt := range []struct {
		replicas int
		delay    string
		downtime time.Duration // downtime of the replica
		outliers bool
		none     bool // whether no call may fail
	}{
		{replicas: 2, delay: "12s", downtime: 15 * time.Second, outliers: true, none: true},
		{replicas: 2, delay: "12s", downtime: 15 * time.Second, none: true},
		{replicas: 2, delay: "0s", downtime: 15 * time.Second, outliers: true},
		{replicas: 2, delay: "0s", downtime: 15 * time.Second},
		{replicas: 1, delay: "12s", outliers: true},
	} {
		name := fmt.Sprintf("%d replicas, drain-delay %s, outlier_detection %v", tt.replicas, tt.delay, tt.outliers)
		t.Run(name, func(t *testing.T) {
			r := startReplicasBehind(t, quickStartCluster(t, tt.outliers), tt.replicas, tt.delay)
			load := r.load(t)
			load.Run(t, 2*time.Second)
			load.Phase("restart")
			load.AwaitEarlierPhases(t) // otherwise the restart also fails calls of "before"
			r.stop(t, 0)
			load.Run(t, tt.downtime)
			r.start(t, 0)
			r.awaitCalls(t, 0, 500)
			load.Run(t, 6*time.Second) // until a health check succeeds again
			load.Phase("after")
			load.Run(t, 2*time.Second)
			report := load.Stop(t)
			report.NoErrors(t, "before", "after")
			p := report.Phase(t, "restart")
			fmt.Fprintf(&table, "| %d | %s | %v | %v | %d of %d |\n", tt.replicas, tt.downtime, tt.delay, tt.outliers, p.Failed(), p.Failed()+p.Answered())
			if tt.none {
				report.NoErrors(t, "restart")
			}
		})
	}
	t.Logf("calls that failed:\n| replicas | downtime | drain-delay | outlier_detection | failed |\n| --- | --- | --- | --- | --- |\n%s", table.String())
}

// quickStartCluster returns the configuration of these tests with the cluster of envoy.yaml.
func quickStartCluster(t *testing.T, outliers bool) []byte {
	t.Helper()
	read := func(path string) (map[string]any, []any) {
		text, err := os.ReadFile(path)
		must.OK(t, err)
		var config map[string]any
		if err := yaml.Unmarshal(text, &config); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		static, _ := config["static_resources"].(map[string]any)
		clusters, _ := static["clusters"].([]any)
		return config, clusters
	}
	find := func(clusters []any) map[string]any {
		for _, c := range clusters {
			if c, _ := c.(map[string]any); c["name"] == "sluice" {
				return c
			}
		}
		t.Fatal("missing cluster sluice")
		return nil
	}
	_, there := read("../../envoy.yaml")
	config, here := read("testdata/envoy.yaml")
	cluster := find(here)
	clear(cluster)
	for field, value := range find(there) {
		if field != "outlier_detection" || outliers {
			cluster[field] = value
		}
	}
	text, err := yaml.Marshal(config)
	must.OK(t, err)
	return text
}
