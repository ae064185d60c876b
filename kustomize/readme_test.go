package kustomize

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const remote = "https://github.com/sluice-ratelimit/sluice//kustomize/"

// TestReadmeKustomization builds the kustomization in README.md.
func TestReadmeKustomization(t *testing.T) {
	t.Parallel()
	text := readmePart(t, "```yaml\n")
	if !strings.Contains(text, remote) {
		t.Fatalf("README.md has no kustomization: %q", text)
	}
	// Here the repository is at hand, whatever the version.
	_, version, _ := strings.Cut(text, "?ref=")
	version, _, _ = strings.Cut(version, "\n")
	if !strings.Contains(manifests["components/version/kustomization.yaml"], "newTag: "+version+"\n") {
		t.Errorf("README.md has version %s, components/version does not", version)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, remote, "../"), "?ref="+version, "")
	const rules = "domain: mine\ndescriptors:\n  - { key: k, rate_limit: { unit: minute, requests_per_unit: 1 } }\n"
	for name, hashed := range map[string]bool{"hot": false, "rollout": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := tree{"kustomization.yaml": text, "rules.yaml": rules}
			if hashed {
				user["kustomization.yaml"] = strings.Replace(text, "components:\n", "components:\n  - ../components/rollout-on-config\n", 1)
			}
			o := buildObjects(t, user)
			var deployments, configs int
			for _, one := range o.all {
				if _, isNamespace := one.(*corev1.Namespace); !isNamespace && one.GetNamespace() != "limits" {
					t.Errorf("%s is in namespace %q", one.GetName(), one.GetNamespace())
				}
				switch r := one.(type) {
				case *corev1.Namespace:
					if r.Name != "limits" {
						t.Errorf("the namespace is %s", r.Name)
					}
				case *corev1.ConfigMap:
					configs++
					if r.Data["rules.yaml"] != rules {
						t.Errorf("the rules are %q", r.Data)
					}
					if (r.Name != "sluice-rules") != hashed {
						t.Errorf("their ConfigMap is %s", r.Name)
					}
					if len(r.Annotations) > 0 {
						t.Errorf("it has annotations %v", r.Annotations)
					}
				case *appsv1.Deployment:
					deployments++
					c := &r.Spec.Template.Spec.Containers[0]
					if c.Image != "registry.example.com/sluice:"+version {
						t.Errorf("the image is %s", c.Image)
					}
					c.Image = repository + ":" + version
				}
			}
			if deployments != 1 || configs != 1 {
				t.Errorf("%d Deployments and %d ConfigMaps, want 1 each", deployments, configs)
			}
			for _, found := range o.examine() {
				t.Error(found)
			}
		})
	}
}

// readmePart returns what stands in README.md between the first place of begin and the end of
// that fence.
func readmePart(t *testing.T, begin string) string {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), begin)
	part, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("README.md has nothing that begins with %q", begin)
	}
	return part
}

// TestReadmeSidecarPorts changes a port of a sidecar as described in README.md.
func TestReadmeSidecarPorts(t *testing.T) {
	t.Parallel()
	patch := readmePart(t, "```yaml\npatches:")
	for _, overlay := range []string{"sidecar-unix", "sidecar-loopback"} {
		o := buildObjects(t, tree{"kustomization.yaml": combo{overlay: overlay}.kustomization() + "patches:" + patch})
		for _, found := range o.examine() {
			t.Errorf("%s: %s", overlay, found)
		}
		if port := o.instances()[0].externalPort("http"); port != 28080 {
			t.Errorf("%s: probes are on port %d, want 28080", overlay, port)
		}
	}
}

// TestSidecarInOtherPods gives a sidecar to workloads of the user's, which have an init container already,
// and leaves others alone. What the user says of the pod stays.
func TestSidecarInOtherPods(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ sidecar, kind string }{{"unix", "Deployment"}, {"loopback", "Deployment"}, {"unix", "DaemonSet"}} {
		yours := strings.NewReplacer(
			"kind: Deployment", "kind: "+tt.kind,
			"  name: envoy\n  labels:\n", "  name: shop\n  labels:\n    runs-sluice: \"true\"\n",
			"        runAsNonRoot: true\n        # The user of", "        runAsNonRoot: true\n        fsGroup: 2000\n        supplementalGroups: [3000]\n        # The user of",
			"      containers:\n", `      initContainers:
        - name: prepare
          image: docker.io/envoyproxy/envoy
          args: [--version]
          resources: { requests: { cpu: 10m, memory: 64Mi }, limits: { memory: 64Mi } }
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
      containers:
`).Replace(manifests["envoy/deployment.yaml"])
		if tt.kind == "DaemonSet" {
			before, rest, _ := strings.Cut(yours, "  strategy:\n")
			_, after, _ := strings.Cut(rest, "  template:\n")
			yours = strings.Replace(before, "  replicas: 1\n", "", 1) + "  template:\n" + after
		}
		o := buildObjects(t, tree{
			"shop.yaml":    yours,
			"account.yaml": manifests["envoy/serviceaccount.yaml"],
			"service.yaml": strings.Replace(manifests["envoy/service.yaml"], "  labels:\n", "  labels:\n    runs-sluice: \"true\"\n", 1),
			"envoy.yaml":   manifests["overlays/sidecar-"+tt.sidecar+"/envoy.yaml"],
			"kustomization.yaml": "namespace: shop\nresources: [shop.yaml, account.yaml, service.yaml]\n" +
				"components: [../components/sidecar-" + tt.sidecar + "]\n" +
				"configMapGenerator: [{ name: envoy, files: [envoy.yaml] }]\n",
		})
		for _, before := range decode([][]byte{[]byte(yours)}).pods() {
			for _, after := range o.pods() {
				if !equality.Semantic.DeepEqual(after.Spec.SecurityContext, before.Spec.SecurityContext) {
					t.Errorf("%v: the pod's securityContext is %v, want as before: %v", tt, after.Spec.SecurityContext, before.Spec.SecurityContext)
				}
			}
		}
		if len(o.all) != 5 || len(o.instances()) != 1 {
			t.Errorf("%v: %d objects and %d sidecars, want 5 and 1", tt, len(o.all), len(o.instances()))
		}
		for _, found := range o.examine() {
			t.Errorf("%v: %s", tt, found)
		}
	}
}
