package kustomize

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const chartDir = "../charts/sluice"

// componentValues are the values of the chart that correspond to components.
var componentValues = map[string]string{
	"monitoring":        "monitoring",
	"network-policy":    "networkPolicy",
	"pdb":               "podDisruptionBudget",
	"hpa":               "autoscaling",
	"tls":               "tls",
	"topology":          "topologySpread",
	"rollout-on-config": "rolloutOnConfig",
	"state":             "state",
	"dev-valkey":        "devValkey",
}

// values returns the chart's values for a combination.
func (c combo) values() map[string]any {
	values := map[string]any{"mode": c.overlay}
	for _, component := range c.components {
		values[componentValues[component]] = true
	}
	return values
}

// loadChart loads the chart of this repository.
var loadChart = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load(chartDir) })

// render returns the documents that `helm template` prints.
func render(namespace string, values map[string]any) ([][]byte, error) {
	loaded, err := loadChart()
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "sluice", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(loaded, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	var documents [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq("\n"+files[name], "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if object != nil {
				documents = append(documents, []byte(document))
			}
		}
	}
	return documents, nil
}

// hashedName matches the name of a ConfigMap with kustomize's hash of its contents.
var hashedName = regexp.MustCompile(`\b(sluice-rules|envoy)-[a-z0-9]{10}\b`)

// byName returns the objects by kind, namespace and name, without the hashes in the names of ConfigMaps and the
// checksums of pods. The second result contains the checksums. kustomize (by hash) and Helm (by checksum) roll out new
// pods for a new ConfigMap.
func byName(t *testing.T, documents [][]byte) (objects map[string]any, checksums []string) {
	t.Helper()
	objects = map[string]any{}
	for _, document := range documents {
		var object map[string]any
		if err := yaml.Unmarshal(hashedName.ReplaceAll(document, []byte("$1")), &object); err != nil {
			t.Fatal(err)
		}
		metadata, _ := object["metadata"].(map[string]any)
		if template, is := nested(object, "spec", "template", "metadata"); is {
			annotations, _ := template["annotations"].(map[string]any)
			for name := range annotations {
				if strings.HasPrefix(name, "checksum/") {
					checksums = append(checksums, name)
					delete(annotations, name)
				}
			}
			if len(annotations) == 0 {
				delete(template, "annotations")
			}
		}
		name := fmt.Sprint(object["kind"], " ", metadata["namespace"], "/", metadata["name"])
		if objects[name] != nil {
			t.Errorf("%s occurs twice", name)
		}
		objects[name] = object
	}
	slices.Sort(checksums)
	return objects, checksums
}

// nested returns the value at a path.
func nested(object map[string]any, path ...string) (map[string]any, bool) {
	for _, step := range path {
		below, is := object[step].(map[string]any)
		if !is {
			return nil, false
		}
		object = below
	}
	return object, true
}

// compareChart compares the chart for a combination with the objects that kustomize built.
func (c combo) compareChart(t *testing.T, built [][]byte) {
	t.Helper()
	rendered, err := render("sluice", c.values())
	if err != nil {
		t.Fatal(err)
	}
	want, _ := byName(t, built)
	delete(want, "Namespace <nil>/sluice") // created by helm install --create-namespace
	got, checksums := byName(t, rendered)
	for name, object := range want {
		if !reflect.DeepEqual(got[name], object) {
			t.Errorf("%s: the chart has %s", name, firstDifference(asYAML(got[name]), asYAML(object)))
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("kustomize has no %s", name)
		}
	}
	var wantSums []string
	if c.overlay == "sharded" || strings.HasPrefix(c.overlay, "sidecar-") {
		wantSums = append(wantSums, "checksum/envoy")
	}
	if slices.Contains(c.components, "rollout-on-config") {
		wantSums = append(wantSums, "checksum/rules")
	}
	if !slices.Equal(checksums, wantSums) {
		t.Errorf("pods have the checksums %q, want %q", checksums, wantSums)
	}
}

// otherNamespaces are the objects of a mode that may be in another namespace than the release, or that refer to the
// release's namespace.
var otherNamespaces = map[string][]string{
	"istio":   {"EnvoyFilter istio-system/sluice", "EnvoyFilter istio-system/sluice-descriptors"},
	"contour": {"ContourConfiguration projectcontour/contour", "ExtensionService limits/sluice"},
	// The Service that Envoys look up, which refers to the release's namespace.
	"envoy-ai-gateway": {"Service envoy-gateway-system/envoy-ai-gateway-ratelimit", "Service limits/sluice"},
}

// checkNamespace checks which objects follow the release's namespace.
func (c combo) checkNamespace(t *testing.T) {
	t.Helper()
	documents, err := render("limits", c.values())
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := byName(t, documents)
	for name, object := range objects {
		if text := asYAML(object); strings.Contains(text, "sluice.sluice") || strings.Contains(text, "namespace: sluice\n") {
			t.Errorf("%s refers to the namespace sluice:\n%s", name, text)
		}
	}
	wanted := otherNamespaces[c.overlay]
	if c.overlay != "envoy-ai-gateway" { // its rules come over xDS
		wanted = append(slices.Clip(wanted), "ConfigMap limits/sluice-rules")
	}
	for _, name := range wanted {
		if objects[name] == nil {
			t.Errorf("in the namespace limits there is no %s", name)
		}
	}
}

// TestChartArchive compares the archive of `make chart` with this chart: only the chart's and the image's version
// differ.
func TestChartArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "-C", "../tools", "run", "-buildvcs=false", "./image", "-version", "v7.8.9", "-out", dir, "-chart")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v:\n%s", cmd.Args, err, out)
	}
	packed, err := loader.Load(filepath.Join(dir, "sluice-chart-7.8.9.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	here, err := loadChart()
	if err != nil {
		t.Fatal(err)
	}
	if err := packed.Metadata.Validate(); err != nil {
		t.Error(err)
	}
	want := *here.Metadata
	want.Version, want.AppVersion = "7.8.9", "v7.8.9"
	if !reflect.DeepEqual(*packed.Metadata, want) {
		t.Errorf("Chart.yaml is %+v, want %+v", *packed.Metadata, want)
	}
	contents := func(c *chart.Chart) map[string]string {
		files := map[string]string{}
		for _, f := range c.Raw {
			files[f.Name] = string(f.Data)
		}
		delete(files, "Chart.yaml")
		return files
	}
	if got, want := contents(packed), contents(here); !maps.Equal(got, want) {
		t.Errorf("the archive has %q, want the same contents of %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// firstDifference returns the first line in which two texts differ.
func firstDifference(got, want string) string {
	wanted := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			return fmt.Sprintf("%q, kustomize %q", line, strings.Join(wanted[min(i, len(wanted)):min(i+1, len(wanted))], ""))
		}
	}
	return "less than kustomize"
}

func asYAML(object any) string {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestChartValues checks the effect of each value.
func TestChartValues(t *testing.T) {
	t.Parallel()
	list := func(values ...any) []any { return values }
	for _, mode := range []string{"standalone", "sidecar-unix"} {
		documents, err := render("sluice", map[string]any{
			"mode":  mode,
			"rules": map[string]any{"a.yaml": "domain: a # {{ not a template }}\n", "b.yaml": "domain: b\n"},
			"image": map[string]any{"repository": "registry.example.com/sluice", "tag": "v9", "pullPolicy": "Always"},
			"args":  list("--counter-memory=128MiB"), "pullSecrets": list("pull"),
			"resources":    map[string]any{"limits": map[string]any{"memory": "300Mi"}},
			"podLabels":    map[string]any{"team": "edge"},
			"nodeSelector": map[string]any{"kubernetes.io/arch": "arm64"},
			"tolerations":  list(map[string]any{"operator": "Exists"}), "podAnnotations": map[string]any{"note": "n"},
		})
		if err != nil {
			t.Fatal(err)
		}
		text := string(bytes.Join(documents, []byte("\n---\n")))
		for _, want := range []string{
			"domain: a # {{ not a template }}", "b.yaml", "image: \"registry.example.com/sluice:v9\"", "imagePullPolicy: Always", "- --counter-memory=128MiB",
			"memory: 300Mi", "team: edge", "kubernetes.io/arch: arm64", "operator: Exists", "note: \"n\"", "- name: pull",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %s in\n%s", mode, want, text)
			}
		}
		if strings.Contains(text, "per-user") {
			t.Errorf("%s: the example rules are rendered in addition to the values'", mode)
		}
		o := decode(documents)
		for _, found := range o.problems {
			t.Errorf("%s: %s", mode, found)
		}
	}
	rules := func(values map[string]any) string {
		documents, err := render("sluice", values)
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := byName(t, documents)
		return asYAML(objects["Deployment sluice/sluice"]) + asYAML(objects["StatefulSet sluice/sluice"])
	}
	for replicas, values := range map[string]map[string]any{
		"replicas: 0\n": {"replicas": 0}, "replicas: 5\n": {"replicas": 5, "mode": "sharded"}, "replicas: 6\n": {"replicas": 6, "mode": "store"},
		"replicas: 1\n":  {"replicas": 1},
		"name: sluice\n": {"autoscaling": true, "mode": "istio", "args": list("--store=redis://valkey:6379/0")},
		"replicas: 2\n":  {"replicas": 2, "limitsPerReplica": true},
		// The last flag wins, so the store is that of args.
		"replicas: 7\n": {"replicas": 7, "mode": "istio", "args": list("--store=redis://valkey:6379/0")},
		"replicas: 8\n": {"replicas": 8, "mode": "contour", "args": list("--sharded")},
	} {
		if text := rules(values); !strings.Contains(text, replicas) {
			t.Errorf("%v: no %s in %s", values, replicas, text)
		}
	}
}

// TestChartRejectsInvalidValues renders the chart with invalid values and invalid combinations.
func TestChartRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values map[string]any
		want   string
	}{
		{map[string]any{"mode": "envoy-gateway"}, "mode"},
		{map[string]any{"replica": 3}, "replica"},
		{map[string]any{"args": []any{"serve"}}, "args"},
		{map[string]any{"rules": map[string]any{"rules.txt": ""}}, "rules"},
		{map[string]any{"mode": "store", "networkPolicy": true}, "networkPolicy: it would block connections to the store"},
		{map[string]any{"mode": "envoy-ai-gateway", "networkPolicy": true}, "networkPolicy: it would block the connection to AI Gateway"},
		{map[string]any{"mode": "envoy-ai-gateway", "rolloutOnConfig": true}, "rolloutOnConfig: in mode envoy-ai-gateway the rules come from AI Gateway"},
		{map[string]any{"mode": "envoy-ai-gateway", "rules": map[string]any{"a.yaml": "domain: a"}}, "rules: in mode envoy-ai-gateway the rules come"},
		{map[string]any{"mode": "store", "state": true}, "state: in mode store the counters are in the store"},
		{map[string]any{"devValkey": true}, "devValkey: mode standalone does not use a store"},
		{map[string]any{"mode": "sidecar-unix", "state": true}, "state: a sidecar has no separate pod"},
		{map[string]any{"mode": "sharded", "tls": true}, "tls: the Envoys of mode sharded do not use TLS for sluice"},
		{map[string]any{"mode": "sidecar-unix", "networkPolicy": true}, "networkPolicy: a sidecar has no separate pod"},
		{map[string]any{"mode": "sidecar-unix", "replicas": 2}, "replicas: each Envoy has its own sidecar"},
		{map[string]any{"mode": "sharded", "autoscaling": true}, "autoscaling is true: the replicas of mode sharded"},
		{map[string]any{"limitsPerReplica": true}, "limitsPerReplica is true: in mode standalone"},
		{map[string]any{"mode": "sharded", "replicas": 4, "limitsPerReplica": true}, "limitsPerReplica is true: in mode sharded"},
		{map[string]any{"mode": "store", "replicas": 4, "limitsPerReplica": true}, "limitsPerReplica is true: in mode store"},
		{map[string]any{"mode": "standalone", "envoyConfig": "admin: {}"}, "envoyConfig: mode standalone does not contain an Envoy"},
	} {
		if _, err := render("sluice", c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.values, err, c.want)
		}
	}
}

// TestChartRejectsReplicasThatCountSeparately expects the value, the reason and the values to set in the error.
func TestChartRejectsReplicasThatCountSeparately(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"standalone", "istio", "contour", "envoy-ai-gateway"} {
		for _, c := range []struct {
			values map[string]any
			want   []string
		}{
			{map[string]any{"replicas": 3}, []string{"replicas is 3", "mode " + mode + " count separately", "3 times each limit", "replicas: 1", "mode: store", "args: [--store=redis://", "limitsPerReplica: true"}},
			{map[string]any{"replicas": 2, "args": []any{"--store-fallback=deny"}}, []string{"replicas is 2", "2 times each limit"}},
			{map[string]any{"autoscaling": true}, []string{"autoscaling is true", "mode " + mode + " do not share counters", "up to 10 times each limit", "mode: store", "autoscaling: false"}},
			{map[string]any{"replicas": 2, "args": []any{"--sharded=false"}}, []string{"replicas is 2", "2 times each limit"}},
			{map[string]any{"replicas": 2, "args": []any{"--store="}}, []string{"replicas is 2", "2 times each limit"}},
			{map[string]any{"autoscaling": true, "limitsPerReplica": true}, []string{"autoscaling is true"}},
			{map[string]any{"autoscaling": true, "args": []any{"--sharded"}}, []string{"autoscaling is true"}},
		} {
			c.values["mode"] = mode
			_, err := render("sluice", c.values)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: %v, want %q", c.values, err, want)
				}
			}
		}
	}
}

// TestCheckAcceptsLimitsPerReplica checks the rendered chart with `sluice check --strict`.
func TestCheckAcceptsLimitsPerReplica(t *testing.T) {
	t.Parallel()
	documents, err := render("sluice", map[string]any{"replicas": 2, "limitsPerReplica": true, "rules": map[string]any{
		"a.yaml": "domain: a\ndescriptors: [{ key: k, rate_limit: { unit: minute, requests_per_unit: 1 } }]\n",
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, bytes.Join(documents, []byte("\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(binary, "check", "--strict", file)
	if err != nil || !strings.Contains(out, "0 warnings") {
		t.Errorf("sluice check: %v, want 0 warnings:\n%s", err, out)
	}
}

// TestChartLint runs Helm's linter on the chart.
func TestChartLint(t *testing.T) {
	t.Parallel()
	for _, m := range lint.RunAll(chartDir, map[string]any{}, "sluice").Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}
