package kustomize

import (
	"maps"
	"strings"
	"testing"
)

// TestMistakesAreFound inserts mistakes, one at a time.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, m := range mistakes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			m.check(t, func(mistaken tree, c combo) string { return strings.Join(mistaken.examine(c), "\n") })
		})
	}
}

// mistake is an edit of a file that makes a combination invalid.
type mistake struct {
	in, file, right, wrong string
	want                   string
}

func (m mistake) String() string { return m.file + "/" + m.wrong }

// check makes the mistake in a copy of the manifests, and checks that examine finds it.
func (m mistake) check(t *testing.T, examine func(tree, combo) string) {
	t.Helper()
	if strings.Count(manifests[m.file], m.right) == 0 {
		t.Fatalf("%s has no %q", m.file, m.right)
	}
	mistaken := maps.Clone(manifests)
	mistaken[m.file] = strings.Replace(manifests[m.file], m.right, m.wrong, 1)
	if found := examine(mistaken, parseCombo(m.in)); !strings.Contains(found, m.want) {
		t.Errorf("found %q, want %q", found, m.want)
	}
}

// mistakes are one or two for each check. Other mistakes are found by the comparison with the chart or with the source
// of a copy.
var mistakes = []mistake{
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "rateLimitDeployment:", "ratelimitDeployment:", "unknown field"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "url: not-used.invalid:6379", "url: ''", "redis"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "value: memory", "value: memroy", "BACKEND_TYPE"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "- name: BACKEND_TYPE", "- name: BACKEND_TYP", "BACKEND_TYPE"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "sluice:v0.1.0", "sluice:v0.0.1", "want that of components/version"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "name: envoy-ratelimit", "name: ratelimit", "makes 2 containers"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "- --drain-timeout=10s", "- --drain-timeuot=10s", "are unknown"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "containers:", "container:", "unknown field"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "replicas: 1", "replicas: 2", "want one replica"},
	{"envoy-gateway", "overlays/envoy-gateway/envoy-gateway.yaml", "limits: { memory: 192Mi }", "limits: { memory: 128Mi }", "a memory limit of 128Mi leaves"},
	{"envoy-gateway", "overlays/envoy-gateway/kustomization.yaml", "name: envoy-gateway-config", "name: envoy-gateway-conf", "does not read"},
	{"standalone", "base/deployment.yaml", "enableServiceLinks:", "enableServiceLink:", `unknown field "spec.template.spec.enableServiceLink"`},
	{"standalone", "base/deployment.yaml", "maxSurge: 1", "maxSurge: 1\n      maxSurge: 2", "already defined"},
	{"standalone", "base/serviceaccount.yaml", "kind: ServiceAccount", "kind: ServiceAcount", "no kind"},
	{"standalone+monitoring", "components/monitoring/prometheusrule.yaml", "expr:", "expression:", "unknown field"},
	{"standalone+state", "components/state/kustomization.yaml", "{ sizeLimit: 256Mi }", "{}", "has no sizeLimit"},
	{"standalone", "base/deployment.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
	{"standalone", "base/deployment.yaml", "drop: [ALL]", "drop: [KILL]", "capabilities"},
	{"standalone", "base/deployment.yaml", "--counter-memory=64MiB", "--counter-memry=64MiB", "counter-memry"},
	{"standalone", "base/deployment.yaml", "--log-format=json", "--log-format=jason", "log-format"},
	{"standalone", "base/deployment.yaml", "- serve\n", "- sreve\n", "want serve first"},
	{"standalone", "base/deployment.yaml", "command: [/bin/sluice]", "command: [/bin/ratelimit]", "want /bin/sluice"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-tls-key=", "--grpc-tls-keys=", "grpc-tls-key"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-allow=envoy=*", "--grpc-allow=envoi=*", "PermissionDenied"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-allow=envoy=*", "--log-level=info", "/json on a port"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "            - --no-json\n", "", "/json on a port"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "--no-json", "--no-jason", "no-jason"},
	{"standalone", "base/deployment.yaml", "--config=/etc/sluice/rules", "--config=/etc/sluice/rule", "nothing is mounted"},
	{"standalone", "base/deployment.yaml", "mountPath: /etc/sluice/rules", "mountPath: /etc/sluice/rules\n              subPath: rules.yaml", "subPath"},
	{"standalone", "base/deployment.yaml", "            name: sluice-rules", "            name: sluice-rules\n            items: [{ key: rule.yaml, path: rules.yaml }]", "no key rule.yaml"},
	{"standalone+tls", "components/tls/kustomization.yaml", "/etc/sluice/tls/tls.crt", "/etc/sluice/tls/tls.cert", "tls.cert"},
	{"standalone", "rules/rules.yaml", "unit: minute", "unit: minuet", "minuet"},
	{"standalone", "base/deployment.yaml", "grpc: { port: 8081 }\n            periodSeconds: 5", "grpc: { port: 8081, service: slucie }\n            periodSeconds: 5", "readiness probe"},
	{"standalone+tls", "components/tls/kustomization.yaml", "path: /healthcheck", "path: /healthz", "GET /healthz returned 404"},
	{"standalone+tls", "components/tls/kustomization.yaml", "port: http }", "port: htpp }", "no port htpp"},
	{"standalone", "base/deployment.yaml", "--counter-memory=64MiB", "--counter-memory=128MiB", "a memory limit of 192Mi leaves"},
	{"standalone", "base/deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds is shorter"},
	{"standalone", "base/deployment.yaml", "--drain-delay=15s", "--drain-delay=5s", "two health checks"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "--drain-delay=0s", "--drain-delay=15s", "in a sidecar"},
	{"istio", "overlays/istio/filter.yaml", "configPatches:", "configPatch:", "decode: "},
}
