package envoyconfig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// defaultTimeout is Envoy's timeout for a filter without one.
const defaultTimeout = 20 * time.Millisecond

// leastTimeout is the shortest timeout without a warning: a busy node sometimes takes longer to respond.
const leastTimeout = 5 * time.Millisecond

// defaultRequests is Envoy's default of max_requests, the number of concurrent calls to a cluster.
const defaultRequests = 1024

// checkFilter checks the settings of a rate limit filter.
func (k *checker) checkFilter(f *filter) {
	if why, never := k.config.runtime.disabled(filterEnabled); never && !f.config.Field("filter_enabled").Exists() {
		k.report(NoEffect, rules.Error, f.node.Pos(), "%s, so the filter never calls the service", why)
	}
	k.checkPercentage(f.config.Field("filter_enabled"), rules.Error, "the filter never calls the service")
	k.checkPercentage(f.config.Field("filter_enforced"), rules.Warning,
		"the filter calls the service but allows every request, whatever the response: to try out rules, use shadow_mode instead, whose decisions the metrics show")
	if f.matcher != nil {
		k.report(Unknown, rules.Note, f.matcher.Pos(), "this matcher may skip the rate limit filter: requests that it skips are not limited, and it is not checked")
	}
	k.checkService(f)
}

// checkService checks how an HTTP or network filter calls the service.
func (k *checker) checkService(f *filter) {
	service := f.config.At("rate_limit_service", "grpc_service")
	if at := f.config.Field("timeout"); !at.Exists() {
		more := ""
		if own := service.Field("timeout"); own.Exists() {
			more = "; the timeout of its grpc_service, at " + own.Pos().String() + ", has no effect"
		}
		k.report(Timeout, rules.Warning, f.node.Pos(), "the filter has no timeout and waits 20 ms, too short for a busy node, and then %s: set timeout: 0.25s%s", f.describeFailure(), more)
	}
	if at := f.config.Field("timeout"); at.Exists() && f.timeout() > 0 && f.timeout() < leastTimeout {
		k.report(Timeout, rules.Warning, at.Pos(), "the filter waits %v, too short for a busy node, and then %s: set timeout: 0.25s", f.timeout(), f.describeFailure())
	}
	for n := range service.Field("initial_metadata").Elements() {
		if at := n.Field("value"); strings.Contains(at.Text, "CEL(") {
			k.report(Leases, rules.Error, at.Pos(),
				"Envoy aborts at a request, since it has no CEL in initial_metadata: remove it")
		}
	}
	if len(k.config.clusters) == 0 {
		return // the configuration is incomplete
	}
	if name := service.At("envoy_grpc", "cluster_name"); name.Exists() {
		k.checkServiceCluster(name)
	}
}

// describeFailure describes how the filter handles a request if the service does not respond in time.
func (f *filter) describeFailure() string {
	switch deny := f.config.Field("failure_mode_deny").Bool(false); {
	case deny && f.typeName == api.NetworkRateLimit:
		return "closes the connection"
	case deny:
		return "denies the request"
	default:
		return "continues without a response"
	}
}

// checkRequestType checks that Envoy treats some requests as internal if the filter is for internal requests only.
func (k *checker) checkRequestType(m *manager, f *filter) {
	kind := f.config.Field("request_type")
	switch {
	case kind.Text != "internal" || m.node.Field("internal_address_config").Exists():
	case m.fragments:
		k.report(NoEffect, rules.Warning, kind.Pos(), "request_type is internal, but Envoy treats no request as internal unless its connection manager has internal_address_config: remove request_type, or set both")
	default:
		k.report(NoEffect, rules.Error, kind.Pos(), "request_type is internal, but without internal_address_config in the connection manager Envoy treats no request as internal, so the filter never calls the service: remove request_type, or set both")
	}
}

// checkPercentage checks that a runtime fraction is not 0 or nearly 0.
func (k *checker) checkPercentage(at *tree.Node, severity rules.Severity, effect string) {
	const most = 1 // percent
	p := k.config.runtime.percentOf(at)
	switch {
	case !at.Exists() || p.percent > most:
	case p.percent > 0:
		k.report(NoEffect, rules.Warning, at.Pos(), "%s is %s %%, so nearly all requests are not limited",
			tree.SnakeCase(at.Name), p.text())
	case p.key != "":
		k.report(NoEffect, rules.Warning, at.Pos(), "%s is 0 %% unless the runtime changes %s, so %s",
			tree.SnakeCase(at.Name), rules.Shorten(p.key), effect)
	default:
		k.report(NoEffect, severity, at.Pos(), "%s is 0 %%, so %s", tree.SnakeCase(at.Name), effect)
	}
}

// timeout returns the filter's timeout; 0 means no timeout.
func (f *filter) timeout() time.Duration {
	if at := f.config.Field("timeout"); at.Exists() {
		return at.Duration()
	}
	return defaultTimeout
}

// waitKey identifies a check of checkMaxWait.
type waitKey struct {
	filter *filter
	reach  *descriptors.Reach
}

// checkMaxWait checks that delayed responses arrive within the filter's timeout.
func (k *checker) checkMaxWait(f *filter, reach *descriptors.Reach) {
	if k.waits[waitKey{f, reach}] {
		return
	}
	k.waits[waitKey{f, reach}] = true
	timeout := f.timeout()
	for _, r := range reach.Rules {
		for _, l := range r.Limits {
			if longest := l.Policy.MaxWait; timeout > 0 && longest >= timeout {
				at := f.config.Field("timeout")
				if !at.Exists() {
					at = f.node
				}
				k.report(Timeout, rules.Error, at.Pos(), "the filter waits %v, but %s delays responses by up to %v (max_wait at %v): set a longer timeout", timeout, r.Path(), longest, l.Pos)
			}
		}
	}
}

// findServiceCluster returns the cluster of the service, nil if the files do not contain it. failure is the reason why
// every call fails, and remedy completes its message.
func (c *Config) findServiceCluster(name *tree.Node) (n *tree.Node, failure, remedy string) {
	const useHTTP2 = ": set explicit_http_config: { http2_protocol_options: {} } in its HttpProtocolOptions"
	n = c.clusters[name.Text]
	switch {
	case n == nil && c.fragments == nil && c.allClusters: // with fragments, Istio may generate it from a Service
		return n, fmt.Sprintf("the cluster %s of the service is not in these files", name.Describe()),
			": add it, or correct the name"
	case n == nil:
	case protocolOptions(n).Field("use_downstream_protocol_config").Exists() && !c.acceptsOnlyHTTP2():
		failure = fmt.Sprintf("the cluster %s speaks the protocol of the client (use_downstream_protocol_config), and over HTTP/1 every call fails", name.Describe())
		remedy = useHTTP2
	case !speaksHTTP2(n):
		failure = fmt.Sprintf("the cluster %s does not speak HTTP/2, which gRPC needs, so every call fails",
			name.Describe())
		remedy = useHTTP2
	default:
		if failure, remedy = dropsCalls(n); failure != "" {
			failure = fmt.Sprintf("cluster %s: %s, so every call fails", name.Describe(), failure)
		}
	}
	return n, failure, remedy
}

// callFailure returns the reason why every call of a filter fails; empty if calls may succeed.
func (c *Config) callFailure(f *filter) string {
	name := f.config.At("rate_limit_service", "grpc_service", "envoy_grpc", "cluster_name")
	if len(c.clusters) == 0 || !name.Exists() {
		return ""
	}
	_, failure, _ := c.findServiceCluster(name)
	return failure
}

// dropsCalls returns the setting of a cluster with which Envoy fails every call to it, and a remedy.
func dropsCalls(n *tree.Node) (setting, remedy string) {
	for t := range n.At("circuit_breakers", "thresholds").Elements() {
		for _, field := range []string{"max_requests", "max_pending_requests"} {
			if t.Field("priority").Enum("DEFAULT", "HIGH") == "DEFAULT" && t.Field(field).Uint(1) == 0 {
				return field + " is 0", ": set " + field + ": 10000 in circuit_breakers"
			}
		}
	}
	for drop := range n.At("load_assignment", "policy", "drop_overloads").Elements() {
		if percentOf(drop.Field("drop_percentage")) >= 100 {
			return "drop_overloads drops 100 %", ": remove it from load_assignment"
		}
	}
	if subsets := n.Field("lb_subset_config"); len(subsets.Field("subset_selectors").Nodes) > 0 &&
		subsets.Field("fallback_policy").Enum("NO_FALLBACK") == "NO_FALLBACK" {
		return "lb_subset_config has no fallback_policy, and a call selects no subset", ": set fallback_policy: ANY_ENDPOINT, or remove lb_subset_config"
	}
	return "", ""
}

// maxRequests returns how many concurrent calls a cluster allows.
func maxRequests(n *tree.Node) uint64 {
	most := uint64(defaultRequests)
	for t := range n.At("circuit_breakers", "thresholds").Elements() {
		if t.Field("priority").Enum("DEFAULT", "HIGH") == "DEFAULT" {
			most = t.Field("max_requests").Uint(defaultRequests)
		}
	}
	return most
}

// requireServiceCluster returns the cluster of the service. It returns nil, and reports the reason, if the cluster is
// missing or every call to it fails.
func (k *checker) requireServiceCluster(name *tree.Node) *tree.Node {
	n, failure, remedy := k.config.findServiceCluster(name)
	switch {
	case failure != "" && n != nil:
		k.report(Cluster, rules.Error, n.Pos(), "%s%s", failure, remedy)
		return nil
	case failure != "":
		k.report(Cluster, rules.Error, name.Pos(), "%s%s", failure, remedy)
	case n == nil && k.config.fragments == nil:
		k.report(Unknown, rules.Note, name.Pos(), "the cluster %s of the service is not in these files: also pass the cluster, or the output of /config_dump", name.Describe())
	}
	return n
}

// checkServiceCluster checks that the service's cluster is usable and allows enough concurrent calls.
func (k *checker) checkServiceCluster(name *tree.Node) {
	n := k.requireServiceCluster(name)
	if n == nil {
		return
	}
	checked := false
	for check := range n.Field("health_checks").Elements() {
		checked = checked || check.Field("grpc_health_check").Exists()
	}
	var problems []string
	if most := maxRequests(n); most <= defaultRequests {
		problems = append(problems, fmt.Sprintf("it allows at most %d concurrent calls, and further calls fail: set max_requests: 10000 in circuit_breakers", most))
	}
	if !checked {
		problems = append(problems, "it has no gRPC health check, so Envoy keeps calling a replica that is shutting down: add one to health_checks")
	}
	if len(problems) > 0 {
		k.report(Cluster, rules.Warning, n.Pos(), "cluster %s: %s", name.Describe(), strings.Join(problems, "; "))
	}
}

// acceptsOnlyHTTP2 reports whether no connection manager accepts HTTP/1.
func (c *Config) acceptsOnlyHTTP2() bool {
	return !slices.ContainsFunc(c.managers, func(m *manager) bool {
		codec := m.node.Field("codec_type").Enum("AUTO", "HTTP1", "HTTP2", "HTTP3")
		return codec != "HTTP2" && codec != "HTTP3"
	})
}

// protocolOptions returns the HttpProtocolOptions of a cluster, or missing.
func protocolOptions(n *tree.Node) *tree.Node {
	return n.Field("typed_extension_protocol_options").Value("envoy.extensions.upstreams.http.v3.HttpProtocolOptions")
}

// speaksHTTP2 reports whether a cluster uses HTTP/2, always or if the peer offers it.
func speaksHTTP2(n *tree.Node) bool {
	options := protocolOptions(n)
	return n.Field("http2_protocol_options").Exists() || // before Envoy 1.17
		options.At("explicit_http_config", "http2_protocol_options").Exists() ||
		options.Field("auto_config").Exists() || options.Field("use_downstream_protocol_config").Exists()
}
