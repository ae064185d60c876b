package kustomize

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
)

// TestMistakesAreFound inserts mistakes, one at a time.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	wanted := mistakes
	if _, err := envoy.Find(".."); err == nil { // otherwise TestEnvoy reports it
		wanted = slices.Concat(mistakes, envoyFinds)
	}
	for _, m := range wanted {
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

// envoyFinds are mistakes that only Envoy detects.
var envoyFinds = []mistake{
	{"sidecar-unix", "overlays/sidecar-unix/envoy.yaml", "timeout: 0.25s", "time_out: 0.25s", "time_out"},
	{"istio", "overlays/istio/filter.yaml", "failure_mode_deny:", "failure_mode_denied:", "failure_mode_denied"},
	{"istio", "overlays/istio/descriptors.yaml", "header_name:", "headername:", "headername"},
}

var mistakes = []mistake{
	// Fields of Kubernetes.
	{"standalone", "base/kustomization.yaml", "- service.yaml", "- services.yaml", "build: "},
	{"standalone", "base/deployment.yaml", "enableServiceLinks:", "enableServiceLink:", `unknown field "spec.template.spec.enableServiceLink"`},
	{"standalone", "base/deployment.yaml", "maxSurge: 1", "maxSurge: 1\n      maxSurge: 2", "already defined"},
	{"standalone", "base/deployment.yaml", "replicas: 1", "replicas: one", "decode: "},
	{"standalone", "base/deployment.yaml", "replicas: 1", "replicas: 2", "replicas: Deployment sluice has up to 2 replicas that count separately"},
	{"envoy-ai-gateway", "base/deployment.yaml", "replicas: 1", "replicas: 2", "has up to 2 replicas that count separately"},
	{"standalone", "base/service.yaml", "targetPort: grpc", "targetport: grpc", "unknown field"},
	{"standalone", "base/serviceaccount.yaml", "kind: ServiceAccount", "kind: ServiceAcount", "no kind"},
	{"standalone+pdb", "components/pdb/poddisruptionbudget.yaml", "maxUnavailable: 1", "maxUnavailble: 1", "unknown field"},
	{"store+hpa", "components/hpa/horizontalpodautoscaler.yaml", "minReplicas:", "minReplica:", "unknown field"},
	{"store+hpa", "components/hpa/horizontalpodautoscaler.yaml", "    name: sluice\n  #", "    name: slucie\n  #", "scales nothing"},
	{"store+hpa", "components/hpa/kustomization.yaml", "      - op: remove\n        path: /spec/replicas", "      - op: replace\n        path: /spec/replicas\n        value: 2", "a number of replicas"},
	{"store+hpa", "overlays/store/kustomization.yaml", "value: --store=redis://valkey:6379/0", "value: --store-timeout=1s", "share no store"},
	{"standalone+network-policy", "components/network-policy/networkpolicy.yaml", "podSelector:", "podselector:", "unknown field"},
	{"standalone+monitoring", "components/monitoring/podmonitor.yaml", "podMetricsEndpoints:", "podMetricsEndpoint:", "unknown field"},
	{"standalone+monitoring", "components/monitoring/prometheusrule.yaml", "expr:", "expression:", "unknown field"},
	{"standalone+state", "components/state/kustomization.yaml", "{ sizeLimit: 256Mi }", "{}", "has no sizeLimit"},
	{"standalone+state", "components/state/kustomization.yaml", "mountPath: /var/lib/sluice", "mountPath: /var/lib/state", "nothing is mounted there"},
	{"store+dev-valkey", "components/dev-valkey/deployment.yaml", "valkey:9", "valkey:latest", "image"},
	{"store+dev-valkey", "components/dev-valkey/service.yaml", "targetPort: valkey", "targetPort: redis", "port valkey leads to redis"},
	{"standalone+topology", "components/topology/kustomization.yaml", "whenUnsatisfiable:", "whenUnsatisfied:", "unknown field"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "restartPolicy: Always", "restartPolcy: Always", "unknown field"},
	{"sharded", "overlays/sharded/kustomization.yaml", "/spec/serviceName", "/spec/servicename", "unknown field"},

	// Restricted pods.
	{"standalone", "base/deployment.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
	{"standalone", "base/deployment.yaml", "drop: [ALL]", "drop: [KILL]", "capabilities"},
	{"standalone", "base/deployment.yaml", "type: RuntimeDefault", "type: Unconfined", "seccompProfile"},
	{"standalone", "base/deployment.yaml", "allowPrivilegeEscalation: false", "privileged: true", "privileged"},
	{"standalone", "base/deployment.yaml", "runAsUser: 65532", "runAsUser: 0", "runAsUser"},
	{"standalone", "base/deployment.yaml", "runAsUser: 65532", "runAsUser: 1000", "runAsUser is not 65532"},
	{"standalone", "base/deployment.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"},
	{"standalone", "base/deployment.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "automountServiceAccountToken"},
	{"standalone", "base/serviceaccount.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "without a token"},
	{"standalone", "base/deployment.yaml", "enableServiceLinks: false", "enableServiceLinks: true", "enableServiceLinks"},
	{"standalone", "base/deployment.yaml", "serviceAccountName: sluice", "serviceAccountName: sluce", "ServiceAccount"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "drop: [ALL]", "add: [NET_ADMIN]", "capabilities"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "runAsUser: 65532", "runAsUser: 65533", "runAsUser is not 65532"},
	{"sidecar-unix", "envoy/deployment.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem of envoy"},

	// The image.
	{"standalone", "components/version/kustomization.yaml", "newTag: v0.1.0", "newTag: latest", "image"},
	{"standalone", "components/version/kustomization.yaml", "sluice-ratelimit/sluice", "sluice-ratelimit/slucie", "image"},
	{"standalone", "base/deployment.yaml", "image: ghcr.io/sluice-ratelimit/sluice", "image: ghcr.io/sluice-ratelimit/slucie", "no container of"},
	{"sidecar-unix", "components/version/kustomization.yaml", "distroless-v1.40.0", "distroless-v1.4.0", "image"},
	{"sidecar-unix", "components/sidecar-unix/kustomization.yaml", "  - ../version # must come after the sidecar, to find its container\n", "", "image"},

	// Flags.
	{"standalone", "base/deployment.yaml", "--counter-memory=64MiB", "--counter-memry=64MiB", "counter-memry"},
	{"standalone", "base/deployment.yaml", "--counter-memory=64MiB", "--counter-memory=64MB2", "counter-memory"},
	{"standalone", "base/deployment.yaml", "--log-format=json", "--log-format=jason", "log-format"},
	{"standalone", "base/deployment.yaml", "- serve\n", "- sreve\n", "want serve first"},
	{"standalone", "base/deployment.yaml", "command: [/bin/sluice]", "command: [/bin/ratelimit]", "want /bin/sluice"},
	{"standalone", "base/deployment.yaml", "command: [/bin/sluice]", "command: [/bin/sluice]\n          env: [{ name: GRPC_MAX_CONNECTION_AGE, value: soon }]", "GRPC_MAX_CONNECTION_AGE"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "--on-bad-start=serve", "--on-bad-start=server", "on-bad-start"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-tls-key=", "--grpc-tls-keys=", "grpc-tls-key"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-client-ca=/etc/sluice/tls/ca.crt", "--log-level=info", "--grpc-allow requires --grpc-client-ca"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-allow=envoy=*", "--grpc-allow=envoi=*", "PermissionDenied"},
	{"standalone+tls", "components/tls/kustomization.yaml", "--grpc-allow=envoy=*", "--log-level=info", "/json on a port"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "            - --no-json\n", "", "/json on a port"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "--no-json", "--no-jason", "no-jason"},

	// Mounts and their keys.
	{"standalone", "base/deployment.yaml", "--config=/etc/sluice/rules", "--config=/etc/sluice/rule", "nothing is mounted"},
	{"standalone", "base/deployment.yaml", "mountPath: /etc/sluice/rules", "mountPath: /etc/sluice/rule", "nothing is mounted"},
	{"standalone", "base/deployment.yaml", "mountPath: /etc/sluice/rules", "mountPath: /etc/sluice/rules\n              subPath: rules.yaml", "subPath"},
	{"standalone", "base/deployment.yaml", "            name: sluice-rules", "            name: slucie-rules", "no ConfigMap slucie-rules"},
	{"standalone", "base/deployment.yaml", "            name: sluice-rules", "            name: sluice-rules\n            items: [{ key: rule.yaml, path: rules.yaml }]", "no key rule.yaml"},
	{"standalone", "base/deployment.yaml", "        - name: rules\n          configMap", "        - name: rule\n          configMap", "no volume rules"},
	{"standalone+tls", "components/tls/kustomization.yaml", "secretName: sluice-tls", "secretName: sluice-tsl", "Secret sluice-tsl"},
	{"standalone+tls", "components/tls/kustomization.yaml", "/etc/sluice/tls/tls.crt", "/etc/sluice/tls/tls.cert", "tls.cert"},
	{"store", "overlays/store/kustomization.yaml", "secretName: sluice-store", "secretName: store", "Secret store"},
	{"store", "overlays/store/kustomization.yaml", "/etc/sluice/store/auth", "/etc/sluice/store/password", "no such file"},
	{"store", "overlays/store/kustomization.yaml", "mountPath: /etc/sluice/store", "mountPath: /etc/sluice/stores", "nothing is mounted"},
	{"store", "overlays/store/kustomization.yaml", "--store=redis:", "--store=rediss+cluster+sentinel:", "--store"},
	{"sidecar-unix", "components/sidecar-unix/socket.yaml", "mountPath: /run/sluice", "mountPath: /run/slucie", "nothing is mounted"},
	{"sidecar-unix", "components/sidecar-unix/kustomization.yaml", "--grpc-socket-mode=0666", "--grpc-socket-mode=0660", "Envoy may not connect"},
	{"sidecar-unix", "components/sidecar-unix/kustomization.yaml", "--grpc-socket-mode=0666", "--grpc-socket-mode=0777", "grpc-socket-mode"},

	// Rules.
	{"standalone", "rules/rules.yaml", "unit: minute", "unit: minuet", "minuet"},
	{"standalone", "rules/rules.yaml", "algorithm: sliding_window", "algorithm: sliding_widow", "sliding_widow"},
	{"sidecar-loopback", "rules/rules.yaml", "domain: sluice", "domain: slucie", "no rules for domain sluice"},
	{"sharded", "overlays/sharded/rules.yaml", "domain: sharded", "domain: shard", "no rules for domain sharded"},

	// Ports and probes.
	{"standalone", "base/deployment.yaml", "containerPort: 8081", "containerPort: 8082", "port grpc is declared as 8082"},
	{"standalone", "base/deployment.yaml", "containerPort: 9090", "containerPort: 9091", "port metrics is declared"},
	{"standalone", "base/deployment.yaml", "grpc: { port: 8081 }", "grpc: { port: 8080 }", "startup probe"},
	{"standalone", "base/deployment.yaml", "grpc: { port: 8081 }", "grpc: { port: 8082 }", "startup probe"},
	{"standalone", "base/deployment.yaml", "grpc: { port: 8081 }\n            periodSeconds: 5", "grpc: { port: 8081, service: slucie }\n            periodSeconds: 5", "readiness probe"},
	{"standalone", "base/deployment.yaml", "grpc: { port: 8081 }\n            periodSeconds: 10", "grpc: { port: 6070 }\n            periodSeconds: 10", "liveness probe"},
	{"standalone", "base/deployment.yaml", "- --log-format=json", "- --log-format=json\n            - --grpc-addr=127.0.0.1:8081", "startup probe"},
	{"standalone", "base/deployment.yaml", "- --log-format=json", "- --log-format=json\n            - --http-addr=:8090", "port http is declared"},
	{"standalone+tls", "components/tls/kustomization.yaml", "httpGet: { path: /healthcheck, port: http }", "grpc: { port: 8081 }", "startup probe"},
	{"standalone+tls", "components/tls/kustomization.yaml", "path: /healthcheck", "path: /healthz", "GET /healthz returned 404"},
	{"standalone+tls", "components/tls/kustomization.yaml", "port: http }", "port: htpp }", "no port htpp"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "path: /healthcheck", "path: /health", "GET /health returned 404"},
	{"sidecar-loopback", "components/sidecar/sluice.yaml", "containerPort: 18080", "containerPort: 8080", "port http is declared"},
	{"standalone", "base/service.yaml", "targetPort: grpc", "targetPort: grcp", "port grpc leads to grcp"},
	{"standalone", "base/service.yaml", "targetPort: grpc", "targetPort: 8080", "port grpc leads to 8080"},
	{"sharded", "base/service.yaml", "port: 8081", "port: 80", "port grpc leads to"},

	// Memory and time.
	{"standalone", "base/deployment.yaml", "--counter-memory=64MiB", "--counter-memory=128MiB", "a memory limit of 192Mi leaves"},
	{"standalone", "base/deployment.yaml", "memory: 192Mi\n              # No", "memory: 128Mi\n              # No", "a memory limit of 128Mi leaves"},
	{"standalone", "base/deployment.yaml", "cpu: 100m\n              memory: 192Mi", "cpu: 100m\n              memory: 64Mi", "a request that is the same"},
	{"standalone", "base/deployment.yaml", "limits:\n", "limits:\n              cpu: 1\n", "no CPU limit"},
	{"standalone", "base/deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds is shorter"},
	{"standalone", "base/deployment.yaml", "--drain-timeout=10s", "--drain-timeout=30s", "terminationGracePeriodSeconds is shorter"},
	{"standalone", "base/deployment.yaml", "--drain-delay=15s", "--drain-delay=5s", "two health checks"},
	{"sidecar-unix", "components/sidecar/sluice.yaml", "--drain-delay=0s", "--drain-delay=15s", "in a sidecar"},
	{"sidecar-unix", "envoy/deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 25", "terminationGracePeriodSeconds is shorter"},

	// Selectors of pods.
	{"standalone", "base/deployment.yaml", "matchLabels:\n      app.kubernetes.io/name: sluice", "matchLabels:\n      app.kubernetes.io/name: slucie", "its selector does not match"},
	{"standalone", "base/service.yaml", "  selector:\n    app.kubernetes.io/name: sluice", "  selector:\n    app.kubernetes.io/name: slucie", "selects no pods"},
	{"standalone+pdb", "components/pdb/poddisruptionbudget.yaml", "matchLabels:\n      app.kubernetes.io/name: sluice", "matchLabels:\n      app.kubernetes.io/name: slucie", "selects no pods"},
	{"standalone+pdb", "components/pdb/poddisruptionbudget.yaml", "maxUnavailable: 1", "minAvailable: 1", "maxUnavailable"},
	{"standalone+pdb", "components/pdb/poddisruptionbudget.yaml", "namespace: sluice", "namespace: default", "selects no pods"},
	{"standalone+network-policy", "components/network-policy/networkpolicy.yaml", "- port: 8081", "- port: 8082", "opens"},
	{"standalone+network-policy", "components/network-policy/networkpolicy.yaml", "- port: 9090", "- port: 8080", "opens"},
	{"sidecar-unix", "sidecar/networkpolicy.yaml", "- port: 10000", "- port: 1000", "opens"},
	{"sidecar-unix", "sidecar/networkpolicy.yaml", "matchLabels:\n      app.kubernetes.io/name: envoy", "matchLabels:\n      app.kubernetes.io/name: envy", "selects no pods"},
	{"standalone+monitoring", "components/monitoring/podmonitor.yaml", "port: metrics", "port: metric", "want /metrics of the port metrics"},
	{"standalone+monitoring", "components/monitoring/podmonitor.yaml", "any: true", "any: false", "want all namespaces"},
	{"sidecar-unix+monitoring", "components/monitoring/podmonitor.yaml", `runs-sluice: "true"`, `runs-sluice: "yes"`, "selects no pods"},
	{"standalone", "base/deployment.yaml", `runs-sluice: "true"`, `runs-slucie: "true"`, "no label runs-sluice"},
	{"sharded+topology", "components/topology/kustomization.yaml", "app.kubernetes.io/name: sluice }", "app.kubernetes.io/name: slucie }", "does not match its pods"},

	// Envoy and its clusters.
	{"sidecar-unix", "overlays/sidecar-unix/envoy.yaml", "/run/sluice/grpc.sock", "/run/sluice/grcp.sock", "no sluice in the pod listens on"},
	{"sidecar-loopback", "overlays/sidecar-loopback/envoy.yaml", "port_value: 8081", "port_value: 8080", "no sluice in the pod listens on"},
	{"sidecar-loopback", "overlays/sidecar-loopback/envoy.yaml", "port_value: 10000", "port_value: 10010", "not declared"},
	{"sidecar-loopback", "components/sidecar-loopback/kustomization.yaml", "grpc-addr=127.0.0.1:8081", "grpc-addr=127.0.0.1:8082", "no sluice in the pod listens on"},
	{"sidecar-loopback", "envoy/deployment.yaml", "/etc/envoy/envoy.yaml", "/etc/envoy/envoy.yml", "envoy.yml"},
	{"sidecar-loopback", "envoy/deployment.yaml", "containerPort: 10000", "containerPort: 10001", "not declared"},
	{"sidecar-loopback", "overlays/sidecar-loopback/envoy.yaml", "cluster_name: sluice }", "cluster_name: slucie }", "the filter asks cluster"},
	{"sharded", "overlays/sharded/envoy.yaml", "sluice-2.sluice", "sluice-3.sluice", "there is no pod sluice-3.sluice"},
	{"sharded", "overlays/sharded/envoy.yaml", "address: sluice-0.sluice, port_value: 8081", "address: sluice-0.sluice, port_value: 8080", "is not for gRPC"},
	{"sharded", "overlays/sharded/kustomization.yaml", "count: 3", "count: 4", "3 of the 4 replicas"},
	{"sharded", "overlays/sharded/kustomization.yaml", "value: None", "value: 10.0.0.10", "not a headless Service"},
	{"sharded", "overlays/sharded/kustomization.yaml", "path: /spec/serviceName\n        value: sluice", "path: /spec/serviceName\n        value: slucie", "there is no pod"},

	// Gateways.
	{"istio", "overlays/istio/filter.yaml", "configPatches:", "configPatch:", "decode: "},
	{"istio", "overlays/istio/filter.yaml", "operation: INSERT_BEFORE", "operation: INSERT_BEFOR", "INSERT_BEFOR"},
	{"istio", "overlays/istio/filter.yaml", "operation: INSERT_BEFORE", "operation: INSERT_AFTER", "knows no INSERT_AFTER"},
	{"istio", "overlays/istio/filter.yaml", "envoy.filters.http.router }", "envoy.filters.http.rooter }", "knows no INSERT_BEFORE"},
	{"istio", "overlays/istio/filter.yaml", "domain: sluice", "domain: slucie", "no rules for domain slucie"},
	{"istio", "overlays/istio/filter.yaml", "address: sluice.sluice.svc", "address: slucie.sluice.svc", "no Service slucie"},
	{"istio", "overlays/istio/filter.yaml", "port_value: 8081", "port_value: 8080", "is not for gRPC"},
	{"istio", "overlays/istio/filter.yaml", "namespace: istio-system", "namespace: sluice", "not for the ingress gateway"},
	{"istio", "overlays/istio/filter.yaml", "istio: ingressgateway", "istio: egressgateway", "not for the ingress gateway"},
	{"istio", "overlays/istio/filter.yaml", "cluster_name: sluice }", "cluster_name: slucie }", "slucie"},
	{"contour", "overlays/contour/extensionservice.yaml", "timeoutPolicy:", "timeoutpolicy:", "unknown field"},
	{"contour", "overlays/contour/extensionservice.yaml", "port: 8081", "port: 8080", "is not for gRPC"},
	{"contour", "overlays/contour/extensionservice.yaml", "- name: sluice", "- name: slucie", "no Service slucie"},
	{"contour", "overlays/contour/extensionservice.yaml", "namespace: sluice", "namespace: projectcontour", "no Service sluice in projectcontour"},
	{"contour", "overlays/contour/extensionservice.yaml", "response: 250ms", "response: 250 ms", "unknown unit"},
	{"contour", "overlays/contour/contourconfiguration.yaml", "failOpen:", "failopen:", "unknown field"},
	{"contour", "overlays/contour/contourconfiguration.yaml", "      name: sluice", "      name: slucie", "no ExtensionService"},
	{"contour", "overlays/contour/contourconfiguration.yaml", "domain: sluice", "domain: slucie", "no rules for domain slucie"},
	{"envoy-ai-gateway", "overlays/envoy-ai-gateway/service.yaml", "externalName: sluice.sluice.", "externalName: sluice.limits.", "Service envoy-ai-gateway-ratelimit: "},
	{"envoy-ai-gateway", "overlays/envoy-ai-gateway/service.yaml", "  name: envoy-ai-gateway-ratelimit", "  name: ai-gateway-ratelimit", "no Service where AI Gateway looks"},
	{"envoy-ai-gateway", "overlays/envoy-ai-gateway/kustomization.yaml", "--xds-node-id=envoy-ai-gateway-ratelimit", "--xds-node-id=sluice", "want the address and the node"},
	{"envoy-ai-gateway", "overlays/envoy-ai-gateway/kustomization.yaml", ":18002", ":18001", "want the address and the node"},
	{"envoy-ai-gateway", "overlays/envoy-ai-gateway/kustomization.yaml", "value: --start-without-rules", "value: --log-level=info", "want --start-without-rules"},
	{"envoy-ai-gateway", "base/deployment.yaml", "- --config=/etc/sluice/rules", "- --config=/etc/sluice/rule", "build: "},
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
}
