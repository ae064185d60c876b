package envoyconfig

import (
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// defaultTimeout is how long a filter waits that does not say.
const defaultTimeout = 20 * time.Millisecond

// leastTimeout is what a call over a quiet network does not take, and one on a busy node does now and then.
const leastTimeout = 5 * time.Millisecond

// defaultRequests is how many calls a cluster lets be in flight that does not say.
const defaultRequests = 1024

// checkFilter looks at an HTTP filter for itself.
func (k *checker) checkFilter(f *filter) {
	k.checkNewFields(f.config, newFilterFields)
	if enabled := f.config.Field("filter_enabled"); isNever(enabled) {
		k.report(NeverAsked, rules.Error, enabled.Pos(), "filter_enabled is 0 %%, so that the filter never asks")
	}
	if why, never := k.config.runtime.disabled(filterEnabled); never && !f.config.Field("filter_enabled").Exists() {
		k.report(NeverAsked, rules.Error, f.node.Pos(), "%s, so that the filter never asks", why)
	}
	if enforced := f.config.Field("filter_enforced"); isNever(enforced) {
		k.report(NeverAsked, rules.Warning, enforced.Pos(), "filter_enforced is 0 %%, so that the filter asks and lets every request pass, whatever the answer: for a trial of rules shadow_mode is better, which metrics tell of")
	}
	k.checkService(f)
}

// checkService looks at how a filter, of HTTP or of connections, asks the service.
func (k *checker) checkService(f *filter) {
	service := f.config.At("rate_limit_service", "grpc_service")
	if at := f.config.Field("timeout"); !at.Exists() {
		more := ""
		if own := service.Field("timeout"); own.Exists() {
			more = "; the timeout of its grpc_service, at " + own.Pos().String() + ", has no effect"
		}
		k.reportPerFile(Timeout, "no timeout", "filter", f.node.Pos(), "the filter has no timeout and waits 20 ms, which is short for a busy node, and then %s: set timeout: 0.25s%s", f.unanswered(), more)
	}
	if at := f.config.Field("timeout"); at.Exists() && f.timeout() > 0 && f.timeout() < leastTimeout {
		k.report(Timeout, rules.Warning, at.Pos(), "the filter waits %v, which a pause of a node outlasts, and then %s: set timeout: 0.25s", f.timeout(), f.unanswered())
	}
	if len(k.config.clusters) == 0 {
		return // Envoy's configuration is not whole
	}
	if name := service.At("envoy_grpc", "cluster_name"); name.Exists() {
		k.checkServiceCluster(name)
	}
}

// unanswered describes how the filter treats a request or connection about which the service does not answer in time.
func (f *filter) unanswered() string {
	switch deny := f.config.Field("failure_mode_deny").Bool(false); {
	case deny && f.typeName == api.NetworkRateLimit:
		return "closes the connection"
	case deny:
		return "denies the request"
	default:
		return "goes on without an answer"
	}
}

// checkRequestType holds that a filter for internal requests has some.
func (k *checker) checkRequestType(m *manager, f *filter) {
	kind := f.config.Field("request_type")
	switch {
	case kind.Text != "internal" || m.node.Field("internal_address_config").Exists():
	case m.fragments:
		k.report(NeverAsked, rules.Warning, kind.Pos(), "request_type is internal, and Envoy takes no request for an internal one unless its connection manager has internal_address_config: leave request_type out, or write both")
	default:
		k.report(NeverAsked, rules.Error, kind.Pos(), "request_type is internal, and without internal_address_config in the connection manager Envoy takes no request for an internal one, so that the filter never asks: leave request_type out, or write both")
	}
}

// isNever reports whether a fraction is none, whatever the runtime says.
func isNever(fraction *tree.Node) bool {
	value := fraction.Field("default_value")
	return value.Exists() && !fraction.Field("runtime_key").Exists() && value.Field("numerator").Uint(0) == 0
}

// timeout returns how long the filter waits; 0 is for ever.
func (f *filter) timeout() time.Duration {
	at := f.config.Field("timeout")
	if !at.Exists() {
		return defaultTimeout
	}
	d, err := time.ParseDuration(at.Text)
	if err != nil || !strings.HasSuffix(at.Text, "s") {
		return 0
	}
	return d
}

// checkMaxWait holds that replies that are held come within the filter's timeout.
func (k *checker) checkMaxWait(f *filter, reach *descriptors.Reach) {
	timeout := f.timeout()
	for _, r := range reach.Rules {
		for _, l := range r.Limits {
			if longest := l.Policy.MaxWait; timeout > 0 && longest >= timeout {
				at := f.config.Field("timeout")
				if !at.Exists() {
					at = f.node
				}
				k.report(Timeout, rules.Error, at.Pos(), "the filter waits %v, but %s holds replies up to %v (max_wait at %v): set timeout above that", timeout, r.Path(), longest, l.Pos)
			}
		}
	}
}

// findServiceCluster returns the cluster of the service; nil if it is not in these files, or Envoy cannot ask it.
func (k *checker) findServiceCluster(name *tree.Node) *tree.Node {
	n := k.config.clusters[name.Text]
	switch {
	case n != nil && !speaksHTTP2(n):
		k.report(Cluster, rules.Error, n.Pos(), "the cluster %s does not speak HTTP/2, which gRPC needs, so that every call fails: "+
			"set explicit_http_config: { http2_protocol_options: {} } in its HttpProtocolOptions", name.Describe())
		return nil
	case n != nil, k.config.fragments != nil: // it may be one that Istio makes of a Service
	case !k.config.allClusters:
		k.report(Unknown, rules.Note, name.Pos(), "the cluster %s of the service is not in these files: give it, or the answer of /config_dump, too", name.Describe())
	default:
		k.report(Cluster, rules.Error, name.Pos(), "the cluster %s of the service is not in these files: add it, or correct the name", name.Describe())
	}
	return n
}

// checkServiceCluster holds that Envoy can ask the service, and as often as it needs.
func (k *checker) checkServiceCluster(name *tree.Node) {
	n := k.findServiceCluster(name)
	if n == nil {
		return
	}
	most := uint64(defaultRequests)
	for t := range n.At("circuit_breakers", "thresholds").Elements() {
		if t.Field("priority").Enum("DEFAULT", "HIGH") == "DEFAULT" {
			most = t.Field("max_requests").Uint(defaultRequests)
		}
	}
	checked := false
	for check := range n.Field("health_checks").Elements() {
		checked = checked || check.Field("grpc_health_check").Exists()
	}
	var lacks []string
	if most <= defaultRequests {
		lacks = append(lacks, "it lets 1024 calls be in flight or fewer, and calls beyond fail: set max_requests: 10000 in circuit_breakers")
	}
	if !checked {
		lacks = append(lacks, "it has no gRPC health check, so that a service that is about to stop is still asked: add one to health_checks")
	}
	if len(lacks) > 0 {
		k.reportPerFile(Cluster, "bounds", "cluster", n.Pos(), "cluster %s: %s", name.Describe(), strings.Join(lacks, "; "))
	}
}

// protocolOptions returns how a cluster speaks HTTP, missing if it does not say.
func protocolOptions(n *tree.Node) *tree.Node {
	return n.Field("typed_extension_protocol_options").Value("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")
}

// speaksHTTP2 reports whether a cluster uses HTTP/2, always or where the other end offers it.
func speaksHTTP2(n *tree.Node) bool {
	options := protocolOptions(n)
	return n.Field("http2_protocol_options").Exists() || // as it was before Envoy 1.17
		options.At("explicit_http_config", "http2_protocol_options").Exists() ||
		options.Field("auto_config").Exists() || options.Field("use_downstream_protocol_config").Exists()
}
