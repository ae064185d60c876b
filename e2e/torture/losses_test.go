//go:build torture

package torture

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestRestartLosesNoCall restarts a replica behind the cluster of ../../envoy.yaml, with a drain that is
// longer than Envoy's health checks need to notice it; see docs/failure-modes.md.
func TestRestartLosesNoCall(t *testing.T) {
	if !Long() {
		t.Skip("long tier only: each restart waits for Envoy's health checks")
	}
	for _, outliers := range []bool{true, false} {
		t.Run(fmt.Sprint("outlier_detection ", outliers), func(t *testing.T) {
			r := startReplicasBehind(t, quickStartCluster(t, outliers), 2, "12s")
			load := r.load(t)
			load.Run(t, 2*time.Second)
			load.Phase("restart")
			r.stop(t, 0)
			load.Run(t, 15*time.Second)
			r.start(t, 0)
			r.awaitCalls(t, 0, 500)
			load.Run(t, 2*time.Second)
			load.Stop(t).NoErrors(t, "before", "restart")
		})
	}
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
