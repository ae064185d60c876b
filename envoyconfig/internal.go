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
	if requestType != "internal" && requestType != "external" {
		return ""
	}
	internal, unknown := x.isInternal()
	switch {
	case unknown != "":
		return UnknownPrefix + "request_type is " + requestType + ": " + unknown
	case internal && requestType == "external":
		return "request_type is external, but the request is internal"
	case !internal && requestType == "internal":
		return "request_type is internal, but the request is external"
	default:
		return ""
	}
}

// isInternal reports whether Envoy treats the request as internal. As measured on Envoy 1.40, no request is internal
// without internal_address_config. With it, a connection manager with use_remote_address uses the peer's address if
// there is no x-forwarded-for; others use x-forwarded-for if it is a single address.
func (x *exchange) isInternal() (internal bool, unknown string) {
	m := x.managerNode
	ranges := m.Field("internal_address_config")
	switch {
	case !ranges.Exists():
		return false, ""
	case m.Field("original_ip_detection_extensions").Exists():
		return false, "original_ip_detection_extensions determine the client's address"
	case len(x.clientValues("x-envoy-internal")) > 0:
		return false, "the request already has the header x-envoy-internal"
	}
	if unknown := x.unloggedReason("x-forwarded-for"); unknown != "" {
		return false, unknown
	}
	networks, _ := readNetworks(ranges.Field("cidr_ranges"))
	forwarded, present := x.forwardedFor()
	if m.Field("use_remote_address").Bool(false) {
		switch {
		case present:
			return false, ""
		case !x.Remote.IsValid():
			return false, x.unknownRemoteReason()
		default:
			return isWithin(networks, x.Remote), ""
		}
	}
	if !present || strings.Contains(forwarded, ",") || m.Field("xff_num_trusted_hops").Uint(0) > 0 {
		return false, ""
	}
	address, ok := fromForwarded(forwarded, 0)
	return ok && isWithin(networks, address), ""
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
func (x *exchange) forwardedFor() (value string, present bool) {
	given := x.clientValues("x-forwarded-for")
	value = strings.Join(given, ",")
	if m := x.managerNode; x.Logged == nil || !m.Field("use_remote_address").Bool(false) ||
		m.Field("skip_xff_append").Bool(false) {
		return value, len(given) > 0
	}
	i := strings.LastIndexByte(value, ',')
	direct, err := netip.ParseAddr(strings.Trim(value[i+1:], " \t"))
	if err != nil {
		return value, len(given) > 0
	}
	x.Remote = direct
	return value[:max(0, i)], i >= 0
}

// unknownRemoteReason returns why the peer's address is unknown and how to provide it.
func (x *exchange) unknownRemoteReason() string {
	if x.Logged != nil {
		return "the log does not contain it: add %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% to its format"
	}
	return "it is the address of the peer that connects to Envoy: set it with --remote ADDRESS"
}
