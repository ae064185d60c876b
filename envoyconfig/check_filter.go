package envoyconfig

import (
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// defaultTimeout is how long a filter waits that does not say.
const defaultTimeout = 20 * time.Millisecond

// defaultRequests is how many calls a cluster lets be in flight that does not say.
const defaultRequests = 1024

// filter looks at a filter for itself.
func (k *checker) filter(f *filter) {
	service := f.config.at("rate_limit_service", "grpc_service")
	if at := f.config.field("timeout"); !at.there() {
		more := ""
		if own := service.field("timeout"); own.there() {
			more = "; the timeout of its grpc_service, at " + own.pos().String() + ", has no effect"
		}
		k.report(Timeout, rules.Warning, f.node.pos(), "the filter has no timeout and waits 20 ms, which is short for a busy node, and then goes on without an answer: set timeout: 0.25s%s", more)
	}
	k.newer(f.config, newFilterFields)
	if enabled := f.config.field("filter_enabled"); isNever(enabled) {
		k.report(NeverAsked, rules.Error, enabled.pos(), "filter_enabled is 0 %%, so that the filter never asks")
	}
	if name := service.at("envoy_grpc", "cluster_name"); name.there() && len(k.config.clusters) > 0 {
		k.cluster(name)
	}
}

// isNever reports whether a fraction is none, whatever the runtime says.
func isNever(fraction *node) bool {
	value := fraction.field("default_value")
	return value.there() && !fraction.field("runtime_key").there() && value.field("numerator").uint(0) == 0
}

// timeout returns how long the filter waits; 0 is for ever.
func (f *filter) timeout() time.Duration {
	at := f.config.field("timeout")
	if !at.there() {
		return defaultTimeout
	}
	d, err := time.ParseDuration(at.str())
	if err != nil || !strings.HasSuffix(at.str(), "s") {
		return 0
	}
	return d
}

// wait holds that replies that are held come within the filter's timeout.
func (k *checker) wait(f *filter, reach *descriptors.Reach) {
	timeout := f.timeout()
	for _, r := range reach.Rules {
		for _, l := range r.Limits {
			if longest := l.Policy.MaxWait; timeout > 0 && longest >= timeout {
				at := f.config.field("timeout")
				if !at.there() {
					at = f.node
				}
				k.report(Timeout, rules.Error, at.pos(), "the filter waits %v, but %s holds replies up to %v (max_wait at %v): set timeout above that", timeout, r.Path(), longest, l.Pos)
			}
		}
	}
}

// cluster holds that Envoy can ask the service, and as often as it needs.
func (k *checker) cluster(name *node) {
	n := k.config.clusters[name.str()]
	if n == nil && k.config.patched != nil {
		return // it may be one that Istio makes of a Service
	}
	if n == nil {
		k.report(Cluster, rules.Error, name.pos(), "the cluster %s of the service is not in these files: add it, or correct the name", name.shown())
		return
	}
	if !speaksHTTP2(n) {
		k.report(Cluster, rules.Error, n.pos(), "the cluster %s does not speak HTTP/2, which gRPC needs, so that every call fails: "+
			"set explicit_http_config: { http2_protocol_options: {} } in its HttpProtocolOptions", name.shown())
		return
	}
	most := uint64(defaultRequests)
	thresholds := n.at("circuit_breakers", "thresholds")
	for i := range thresholds.elements() {
		if t := &thresholds.nodes[i]; t.field("priority").enum("DEFAULT", "HIGH") == "DEFAULT" {
			most = t.field("max_requests").uint(defaultRequests)
		}
	}
	checked := false
	checks := n.field("health_checks")
	for i := range checks.elements() {
		checked = checked || checks.nodes[i].field("grpc_health_check").there()
	}
	var lacks []string
	if most <= defaultRequests {
		lacks = append(lacks, "it lets 1024 calls be in flight or fewer, and calls beyond fail: set max_requests: 10000 in circuit_breakers")
	}
	if !checked {
		lacks = append(lacks, "it has no gRPC health check, so that a service that is about to stop is still asked: add one to health_checks")
	}
	if len(lacks) > 0 {
		k.report(Cluster, rules.Warning, n.pos(), "cluster %s: %s", name.shown(), strings.Join(lacks, "; "))
	}
}

// speaksHTTP2 reports whether a cluster uses HTTP/2, always or where the other end offers it.
func speaksHTTP2(n *node) bool {
	options := n.field("typed_extension_protocol_options").named("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")
	return n.field("http2_protocol_options").there() || // as it was before Envoy 1.17
		options.at("explicit_http_config", "http2_protocol_options").there() ||
		options.field("auto_config").there() || options.field("use_downstream_protocol_config").there()
}
