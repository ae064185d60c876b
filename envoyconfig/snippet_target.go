package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Target is the form of a snippet, as --for of the command names it.
type Target string

// The targets.
const (
	EnvoyTarget   Target = "envoy"         // parts of a bootstrap or of xDS resources; also the zero value
	GatewayTarget Target = "istio"         // an EnvoyFilter for an ingress gateway
	SidecarTarget Target = "istio-sidecar" // an EnvoyFilter for the sidecars of a workload
)

// istioProxies has the parts of an EnvoyFilter that depend on the proxies to which it applies.
type istioProxies struct {
	Namespace, Where string // the namespace of the EnvoyFilter, and a comment
	Labels           string
	Context          string
	Host, HostNote   string // the name of a virtual host, and a comment
	Routes           bool   // whether the virtual host has routes that a user has named
}

var proxiesOf = map[Target]istioProxies{
	GatewayTarget: {
		Namespace: "istio-system", Where: "where the gateway runs",
		Labels: "{ istio: ingressgateway }", Context: "GATEWAY",
		Host: placeholder + ":80", HostNote: "a host and a port of the Gateway",
		Routes: true,
	},
	SidecarTarget: {
		Namespace: placeholder, Where: "where the workload runs",
		Labels: "{ app: " + placeholder + " }", Context: "SIDECAR_INBOUND",
		Host: "inbound|http|" + placeholder, HostNote: "a port of the workload's container",
	},
}

// Source is where the value of a descriptor's entry comes from.
type Source struct {
	kind string // header, jwt or certificate
	name string // name of the header or claim
}

// ParseSource parses header:NAME, jwt:CLAIM or certificate.
func ParseSource(text string) (Source, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case kind == "certificate" && !named, (kind == "header" || kind == "jwt") && name != "":
		return Source{kind, name}, nil
	}
	return Source{}, fmt.Errorf("unknown source %s; allowed are header:NAME, jwt:CLAIM and certificate",
		rules.Shorten(text))
}

// HasKey reports whether a rule of a domain has a level with the key.
func HasKey(set *descriptors.Set, domain, key string) bool {
	return slices.ContainsFunc(domainRules(set, domain), func(r *descriptors.Rule) bool {
		return slices.ContainsFunc(r.Levels(), func(l rules.Level) bool { return l.Key == key })
	})
}

// action returns the action that makes the entry of a key. If a request has no such value, Envoy does not send the
// descriptor.
func (s Source) action(key string) string {
	key = strconv.Quote(key)
	name := strconv.Quote(s.name)
	switch s.kind {
	case "jwt":
		return "metadata: { descriptor_key: " + key + ", metadata_key: { key: envoy.filters.http.jwt_authn, path: [{ key: payload }, { key: " + name + " }] } } # needs payload_in_metadata: payload in jwt_authn, which Istio sets"
	case "certificate":
		return `extension:
        name: envoy.rate_limit_descriptors.expr
        typed_config:
          "@type": type.googleapis.com/` + expression + `
          descriptor_key: ` + key + `
          text: connection.uri_san_peer_certificate`
	default:
		return "request_headers: { header_name: " + name + ", descriptor_key: " + key + " }"
	}
}
