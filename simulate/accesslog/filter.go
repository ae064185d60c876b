package accesslog

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// filter appends the filtered value to to. If ok is false, the filter does not apply to the value,
// and the field counts as absent.
type filter func(to, value []byte) (out []byte, ok bool)

func newFilter(text string) (filter, error) {
	name, argument, _ := strings.Cut(text, ":")
	switch name {
	case "path":
		return withoutQuery, nil
	case "lower":
		return toLower, nil
	case "ip":
		return withoutPort, nil
	case "prefix":
		v4, v6, ok := strings.Cut(argument, ":")
		short, err1 := strconv.ParseUint(v4, 10, 8)
		long, err2 := strconv.ParseUint(v6, 10, 8)
		if !ok || err1 != nil || err2 != nil || short > 32 || long > 128 {
			return nil, fmt.Errorf("%q: want prefix:V4:V6, the prefix lengths for IPv4 and IPv6, such as prefix:24:64",
				text)
		}
		return network(int(short), int(long)), nil
	case "xff":
		n, err := strconv.ParseUint(argument, 10, 8)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q: want xff:N, the N-th address from the right, such as xff:1", text)
		}
		return fromRight(int(n)), nil
	default:
		return nil, fmt.Errorf("unknown filter %q; want path, lower, ip, prefix:24:64 or xff:N", text)
	}
}

func withoutQuery(to, value []byte) ([]byte, bool) {
	if i := bytes.IndexByte(value, '?'); i >= 0 {
		value = value[:i]
	}
	return append(to, value...), true
}

func toLower(to, value []byte) ([]byte, bool) {
	for _, c := range value {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to, true
}

func withoutPort(to, value []byte) ([]byte, bool) {
	a, ok := parseAddress(value)
	if !ok {
		return to, false
	}
	return a.AppendTo(to), true
}

func network(v4, v6 int) filter {
	return func(to, value []byte) ([]byte, bool) {
		a, ok := parseAddress(value)
		if !ok {
			return to, false
		}
		length := v6
		if a.Is4() {
			length = v4
		}
		n, err := a.Prefix(length)
		if err != nil {
			return to, false
		}
		return n.AppendTo(to), true
	}
}

func fromRight(n int) filter {
	return func(to, value []byte) ([]byte, bool) {
		for range n - 1 {
			i := bytes.LastIndexByte(value, ',')
			if i < 0 {
				return to, false
			}
			value = value[:i]
		}
		value = bytes.Trim(value[bytes.LastIndexByte(value, ',')+1:], " \t")
		return append(to, value...), len(value) > 0
	}
}

// parseAddress parses an address with an optional port: 192.0.2.1:443, [2001:db8::1]:443.
func parseAddress(value []byte) (netip.Addr, bool) {
	text := string(value)
	if strings.HasPrefix(text, "[") || strings.Count(text, ":") == 1 {
		p, err := netip.ParseAddrPort(text)
		return p.Addr(), err == nil
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil && a.Zone() == ""
}
