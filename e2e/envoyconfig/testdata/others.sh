#!/bin/sh
# Takes configurations of Envoy out of public repositories, and shows what sluice finds in them:
#
#	others.sh CLONES OUT sluice
#
# CLONES/OWNER/NAME is a clone of github.com/OWNER/NAME. What it takes is other people's, and is not
# to be committed. OUT/NUMBER/ has a configuration and its rules, OUT/NUMBER.found the findings. In the
# list, after the repository, are files of rules with commas between them, or - for rules that take every
# descriptor of every domain that the configuration names, so that findings are of Envoy's half alone.
set -u
clones=$1 out=$2
shift 2
mkdir -p "$out"
n=0

# anything prints rules for each domain that the files name, which take descriptors of up to eight entries.
anything() {
	grep -hoE '"?domain"?: *"?[^",}[:space:]]+' "$@" | sed 's/.*: *//; s/"//g; s/'"'"'//g' | sort -u | grep . | { grep . || echo any; } | awk '
		{ print "---\ndomain: \"" $0 "\"\ndescriptors:"; in_ = "  "
		  for (i = 0; i < 8; i++) { print in_ "- key: \"*\" # sluice:allow unsent\n" in_ "  rate_limit: { unit: hour, requests_per_unit: 1 }"; if (i < 7) print in_ "  descriptors:"; in_ = in_ "    " } }'
}

printf '%3s %6s %8s %5s %4s  %s\n' n errors warnings notes exit configuration
while read -r repository rules paths; do
	n=$((n + 1))
	of=$out/$n
	rm -rf "$of"
	mkdir -p "$of"
	i=0
	for path in $paths; do
		i=$((i + 1))
		git -C "$clones/$repository" show "HEAD:$path" >"$of/$i.${path##*.}" || continue 2
	done
	if [ "$rules" = - ]; then
		anything "$of"/* >"$of/rules"
	else
		mkdir "$of/rules"
		for path in $(echo "$rules" | tr , ' '); do
			git -C "$clones/$repository" show "HEAD:$path" >"$of/rules/${path##*/}" || continue 2
		done
	fi
	"$@" envoy check -c "$of/rules" "$of"/[0-9]* >"$of.found" 2>&1
	code=$?
	count() { grep -cE ":[0-9]+: $1: |^$1: |$2" "$of.found" | tr -d '\n'; }
	printf '%3d %6s %8s %5s %4d  %s %s\n' $n "$(count error '^sluice: ')" "$(count warning ^none)" "$(count note ^none)" $code "$repository" "$paths"
done <<'LIST'
envoyproxy/ratelimit examples/ratelimit/config/config.yaml,examples/ratelimit/config/example.yaml examples/envoy/proxy.yaml
envoyproxy/examples - local_ratelimit/envoy.yaml
Kuadrant/limitador - limitador-server/examples/envoy.yaml
Kuadrant/limitador - limitador-server/sandbox/envoy.yaml
Kuadrant/limitador - limitador-server/sandbox/envoy2.yaml
Kuadrant/limitador - limitador-server/sandbox/envoy3.yaml
Kuadrant/limitador - limitador-server/kubernetes/kuard-envoy-config-configmap.yaml
aboullaite/service-mesh 4-policy/rate-limiting/global/rate-limit-service.yaml 4-policy/rate-limiting/global/rate-limit-envoy-filter.yaml
aboullaite/service-mesh - 4-policy/rate-limiting/local/rate-limit-envoy-filter.yaml
albertwidi/envoy-ratelimitsvc ratelimit-config/config.yaml envoy-ratelimit.yaml
brainfair/istio-ratelimits httpbin-global-ratelimit/rt-cm.yaml httpbin-global-ratelimit/rt-global-enable.yaml
brainfair/istio-ratelimits httpbin-global-ratelimit/rt-cm.yaml httpbin-global-ratelimit/rt-httpbin-rate-limit.yaml
brainfair/istio-ratelimits httpbin-global-ratelimit/rt-cm.yaml httpbin-global-ratelimit/rt-global-enable.yaml httpbin-global-ratelimit/rt-httpbin-rate-limit-mtls.yaml
brainfair/istio-ratelimits - httpbin-local-ratelimit/envoy-filter-rate-limit.yaml
calam1/istio_rate_limiter - deployment/envoy_filter.yml
d053/envoy_ratelimiting_poc - config/envoy.yaml
ioggstream/envoy-ratelimit-quickstart examples/ratelimit/config/config.yaml front-envoy.yaml
istio/istio - samples/bookinfo/policy/productpage_envoy_ratelimit.yaml
istio/istio - samples/ratelimit/local-rate-limit-service.yaml
istio/istio - tests/integration/telemetry/policy/testdata/enable_envoy_local_ratelimit_sa.yaml
jbarratt/envoy_ratelimit_example ratelimit-data/ratelimit/config/config.yaml envoy.yaml
johnzheng1975/istio-ratelimit-example example01/10-configmap-ratelimit.yaml example01/30-envoyfilter-ratelimit.yaml example01/40-envoyfilter-ratelimit-svc.yaml
johnzheng1975/istio-ratelimit-example example02/10-configmap-ratelimit.yaml example02/40-envoyfilter-ratelimit-svc.yaml
lirannesta/Dual-Rate-Limiting-with-Envoy-Proxy examples/ratelimit/config/config.yaml,examples/ratelimit/config/epm.yaml examples/envoy/proxy.yaml
luckyxkw/study-envoy-ratelimit ratelimit/config/example.yaml envoy-global-ratelimit.yaml
luckyxkw/study-envoy-ratelimit - envoy-local-ratelimit.yaml
medallia/ratelimit examples/ratelimit/config/config.yaml,examples/ratelimit/config/example.yaml examples/envoy/proxy.yaml
salrashid123/envoy_ratelimit runtime_root/ratelimit/config.yaml bbc.yaml
staaldraad/envoy-ratelimit-cedar - envoy.yaml
tetratecx/eks-istio-ratelimit-redis kubernetes/ratelimit-config.yaml kubernetes/ratelimit-envoyfilter-local.yaml
tetratecx/eks-istio-ratelimit-redis kubernetes/ratelimit-config.yaml kubernetes/ratelimit-envoyfilter-remote.yaml
tshaiman/istio-ratelimit-blog 2-simple-ratelimit/config.yaml 2-simple-ratelimit/envoy-filters/filter-ratelimit.yaml
tshaiman/istio-ratelimit-blog 2-simple-ratelimit/config.yaml 2-simple-ratelimit/envoy-filters/filter-ratelimit-svc.yaml
tshaiman/istio-ratelimit-blog 3-advance-ratelimit/config.yaml 3-advance-ratelimit/filter-ratelimit.yaml 3-advance-ratelimit/filter-ratelimit-svc.yaml
xujiyou/envoy-examples rls/config.yaml rls/envoy-config.yaml
ysv/envoy-ratelimiting-compose config/ratelimit/api.yml config/envoy/envoy.yaml
ysv/envoy-ratelimiting-k8s - charts/envoy/envoy-default.yaml
ysv/envoy-ratelimiting-k8s - charts/envoy/k8s.yml
kumahq/kuma - pkg/envoy/admin/testdata/full_config.json
kumahq/kuma - pkg/plugins/policies/meshratelimit/plugin/v1alpha1/testdata/basic_listener_1.golden.yaml
kumahq/kuma - test/e2e_env/universal/envoyconfig/testdata/sidecars/meshratelimit/inbound.test-server.golden.json
solo-io/gloo - projects/gateway2/setup/testdata/happypath-out.yaml
kyma-project/api-gateway - internal/ratelimit/testdata/envoy_patches.yaml
saarasio/enroute - enroute-dp/config.json
alibaba/higress - hgctl/cmd/hgctl/config/testdata/config/output/out.all.yaml
alibaba/higress - hgctl/cmd/hgctl/config/testdata/config/output/out.all.json
envoyproxy/gateway - internal/cmd/egctl/testdata/config/out/out.all.yaml
envoyproxy/gateway - internal/cmd/egctl/testdata/config/out/out.route.json
envoyproxy/gateway - internal/cmd/egctl/testdata/config/out/out.listener.yaml
envoyproxy/gateway - internal/cmd/egctl/testdata/translate/out/envoy-patch-policy.all.yaml
envoyproxy/gateway - internal/cmd/egctl/testdata/translate/out/from-gateway-api-to-xds.all.json
envoyproxy/gateway - internal/cmd/egctl/testdata/translate/out/from-gateway-api-to-xds.route.yaml
envoyproxy/gateway - internal/cmd/egctl/testdata/translate/in/envoy-patch-policy.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit.routes.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/local-ratelimit.listeners.yaml internal/xds/translator/testdata/out/xds-ir/local-ratelimit.routes.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-both-type.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-both-type.routes.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/jsonpatch.listeners.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/ratelimit-config/multiple-domains.routes.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/jsonpatch-with-jsonpath.listeners.yaml internal/xds/translator/testdata/out/xds-ir/jsonpatch-with-jsonpath.routes.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-headers-and-cidr.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-headers-and-cidr.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-headers-and-cidr.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-sourceip.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-sourceip.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-sourceip.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-sourceip-invert.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-sourceip-invert.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-sourceip-invert.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-global-shared.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-global-shared.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-global-shared.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-custom-domain.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-custom-domain.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-custom-domain.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-per-rule-headers.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-per-rule-headers.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-per-rule-headers.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/ratelimit-merge-hostnames.listeners.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-merge-hostnames.routes.yaml internal/xds/translator/testdata/out/xds-ir/ratelimit-merge-hostnames.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/jwt-ratelimit.listeners.yaml internal/xds/translator/testdata/out/xds-ir/jwt-ratelimit.routes.yaml internal/xds/translator/testdata/out/xds-ir/jwt-ratelimit.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/global-ratelimit-query-parameters.listeners.yaml internal/xds/translator/testdata/out/xds-ir/global-ratelimit-query-parameters.routes.yaml internal/xds/translator/testdata/out/xds-ir/global-ratelimit-query-parameters.clusters.yaml
envoyproxy/gateway - internal/xds/translator/testdata/out/xds-ir/local-ratelimit-distinct.listeners.yaml internal/xds/translator/testdata/out/xds-ir/local-ratelimit-distinct.routes.yaml
istio/istio tests/integration/telemetry/policy/testdata/rate-limit-configmap.yaml tests/integration/telemetry/policy/testdata/enable_envoy_ratelimit.yaml
istio/istio - tests/integration/telemetry/policy/testdata/enable_envoy_local_ratelimit_per_route.yaml
xyctruth/istio-ratelimit - charts/istio-ratelimit/templates/envoy-filter.yaml
johnzheng1975/istio-ratelimit-example example02/10-configmap-ratelimit.yaml example02/30-envoyfilter-ratelimit.yaml example02/40-envoyfilter-ratelimit-svc.yaml
brainfair/istio-ratelimits httpbin-global-ratelimit/rt-cm.yaml httpbin-global-ratelimit/headers-httpbin-mtls.yaml
tshaiman/istio-ratelimit-blog 4-Domains/config.yaml 4-Domains/filter-ratelimit.yaml 4-Domains/filter-ratelimit-svc.yaml
ArturMartini/istio-rate-limit - 7-filter-global-lua.yaml
akankshakutal/istio-rate-limit - rateLimit.yaml
andrxu/envoy-ratelimit - envoyproxy/envoy.yaml
aws-samples/istio-on-eks - modules/03-network-resiliency/rate-limiting/global-ratelimit/filter-ratelimit.yaml
boatpand/istio-rate-limit - global-rate-limit/envoy-filter-global.yaml
boatpand/istio-rate-limit - local-rate-limit/envoyconfig-local.json
giantswarm/envoy-gateway-examples - 01-envoy-proxy/11-rate-limiting-global/envoy.yaml
ikingye/hello-envoy-ratelimit - envoy.yaml
linkinghack/envoy-standalone-gateway - testdata/extauth/want-xds.json
openservicemesh/osm - pkg/cli/verifier/testdata/curl_egress.json
ramisback/istio-rate-limiter - k8s/ratelimit-filter.yaml
ravenfirstmen/istio-rate-limit - testing/gateway-rate-limit/04-envoy-filters.yaml
rmnobarra/istio-rate-limit - rate-limit/05.filter.yaml
romanlehner/envoy-ratelimit-k8s - .k8s/envoy.yaml
shivp0616/envoy-rate-limit - 7.rate-limit-envoy-filter.yaml
LIST
