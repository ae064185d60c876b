package envoyconfig

import (
	"net/netip"
)

// remoteAddress is the client's address.
type remoteAddress struct{ node *node }

func newRemoteAddress(n *node) action { return remoteAddress{n} }

func (remoteAddress) entry(x *exchange) outcome {
	remote, unknown := x.remote()
	if unknown != "" {
		return outcome{unknown: "remote_address: " + unknown}
	}
	return outcome{key: "remote_address", value: remote.String(), has: true}
}

func (remoteAddress) shape() shape { return shape{key: "remote_address", anyValue: true} }

// maskedRemoteAddress is the network of the client.
type maskedRemoteAddress struct {
	node   *node
	v4, v6 uint64
}

func newMaskedRemoteAddress(n *node) action {
	return maskedRemoteAddress{n, n.field("v4_prefix_mask_len").uint(32), n.field("v6_prefix_mask_len").uint(128)}
}

func (a maskedRemoteAddress) entry(x *exchange) outcome {
	remote, unknown := x.remote()
	if unknown != "" {
		return outcome{unknown: "masked_remote_address: " + unknown}
	}
	bits := a.v6
	if remote.Is4() {
		bits = a.v4
	}
	network, err := remote.Prefix(int(min(bits, 1000)))
	if err != nil {
		return outcome{unknown: "masked_remote_address: " + err.Error()}
	}
	return outcome{key: "masked_remote_address", value: network.String(), has: true}
}

func (maskedRemoteAddress) shape() shape {
	return shape{key: "masked_remote_address", anyValue: true}
}

// newAddressMatcher returns what tells whether the client's address is in ranges.
func newAddressMatcher(n *node) func(x *exchange) (verdict, string) {
	var ranges []netip.Prefix
	wrong := ""
	for i := range n.field("ranges").elements() {
		r := &n.field("ranges").nodes[i]
		address, err := netip.ParseAddr(r.field("address_prefix").str())
		if err != nil {
			wrong = err.Error()
			continue
		}
		// A length that is left out is 0, and one that is too long is cut.
		bits := min(r.field("prefix_len").uint(0), uint64(address.BitLen())) //nolint:gosec // 32 or 128
		network, err := address.Prefix(int(bits))                            //nolint:gosec // not above 128
		if err != nil {
			wrong = err.Error()
			continue
		}
		ranges = append(ranges, network)
	}
	invert := n.field("invert_match").yes(false)
	return func(x *exchange) (verdict, string) {
		remote, unknown := x.remote()
		if wrong != "" {
			unknown = wrong
		}
		if unknown != "" {
			return verdict{unknown: unknown}, ""
		}
		in := false
		for _, r := range ranges {
			in = in || r.Contains(remote)
		}
		return verdict{yes: in != invert}, remote.String() + " does not match"
	}
}
