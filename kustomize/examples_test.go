package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gateway "github.com/envoyproxy/gateway/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// TestPolicy decodes the policies of examples/envoy-gateway strictly as Envoy Gateway's types.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for file, rules := range map[string]int{"policy.yaml": 3, "streams.yaml": 1} {
		checkPolicy(t, "../examples/envoy-gateway/"+file, rules)
	}
}

func checkPolicy(t *testing.T, path string, rules int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := decode([][]byte{text})
	for _, found := range o.problems {
		t.Error(found)
	}
	if len(o.all) != 1 {
		t.Fatalf("the policy is %d objects", len(o.all))
	}
	policy, is := o.all[0].(*gateway.BackendTrafficPolicy)
	if !is || policy.Spec.RateLimit == nil || policy.Spec.RateLimit.Global == nil || len(policy.Spec.RateLimit.Global.Rules) != rules {
		t.Errorf("the policy is %+v, want %d global rules", o.all[0], rules)
	}
	wrong := strings.Replace(string(text), "clientSelectors:", "clientSelector:", 1)
	if o := decode([][]byte{[]byte(wrong)}); len(o.problems) == 0 {
		t.Error("a misspelt field is not found")
	}
}

// TestExamples builds the kustomizations of examples/, which e2e/examples runs without a cluster: they have the rules
// of the example, and otherwise equal overlays/standalone.
func TestExamples(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../examples/*/kustomization.yaml")
	if err != nil || len(paths) < 2 {
		t.Fatalf("kustomizations of the examples are %q, %v", paths, err)
	}
	for _, path := range paths {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			user := tree{}
			names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				// In these tests kustomize/ is the root.
				user[filepath.Base(name)] = strings.ReplaceAll(string(text), "../../kustomize/", "../")
			}
			o := buildObjects(t, user)
			inForce := false
			for _, one := range o.all {
				if c, is := one.(*corev1.ConfigMap); is && c.Name == "sluice-rules" {
					inForce = c.Namespace == "sluice" && len(c.Data) == 1 && c.Data["rules.yaml"] == user["rules.yaml"]
				}
			}
			if !inForce {
				t.Error("the ConfigMap of rules is not that of the example")
			}
			for _, found := range o.examine() {
				t.Error(found)
			}
		})
	}
}
