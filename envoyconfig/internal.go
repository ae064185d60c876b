package envoyconfig

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// typeMismatchReason returns why a filter with the given request_type does not call the service for the request; empty
// if it does. The reason begins with [UnknownPrefix] if it is unknown whether the request is internal.
func (x *exchange) typeMismatchReason(requestType string) string {
	unknown := x.mayBeInternal()
	switch {
	case requestType != "internal" && requestType != "external":
		return ""
	case unknown != "":
		return UnknownPrefix + "request_type is " + requestType + ": " + unknown
	case requestType == "internal":
		return "request_type is internal, but the request is external"
	default:
		return ""
	}
}

// mayBeInternal returns why Envoy may treat the request as internal; empty if it does not. As measured on Envoy 1.40, no
// request is internal without internal_address_config.
func (x *exchange) mayBeInternal() (unknown string) {
	if x.managerNode.Field("internal_address_config").Exists() {
		return "with internal_address_config it depends on the client's address"
	}
	return ""
}

// readNetworks reads a list of CidrRange. prefix_len defaults to 0; Envoy truncates a longer one.
func readNetworks(list *tree.Node) (all []netip.Prefix, wrong string) {
	for r := range list.Elements() {
		address, err := netip.ParseAddr(r.Field("address_prefix").Text)
		if err != nil {
			wrong = err.Error()
			continue
		}
		bits := min(r.Field("prefix_len").Uint(0), uint64(address.BitLen())) //nolint:gosec // it is positive
		all = append(all, netip.PrefixFrom(address, int(bits)).Masked())     //nolint:gosec // at most 128
	}
	return all, wrong
}

func isWithin(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// forwardedFor returns x-forwarded-for as the client sent it. In a log the value may end with the peer's address, which
// Envoy appended; forwardedFor removes that address and stores it in x.Remote.
func (x *exchange) forwardedFor() string {
	value := strings.Join(x.clientValues("x-forwarded-for"), ",")
	if m := x.managerNode; x.Logged == nil || !m.Field("use_remote_address").Bool(false) ||
		m.Field("skip_xff_append").Bool(false) {
		return value
	}
	i := strings.LastIndexByte(value, ',')
	direct, err := netip.ParseAddr(strings.Trim(value[i+1:], " \t"))
	if err != nil {
		return value
	}
	x.Remote = direct
	return value[:max(0, i)]
}

// unknownRemoteReason returns why the peer's address is unknown and how to provide it.
func (x *exchange) unknownRemoteReason() string {
	if x.Logged != nil {
		return "the log does not contain it: add %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% to its format"
	}
	return "it is the address of the peer that connects to Envoy: set it with --remote ADDRESS"
}
