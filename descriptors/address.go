package descriptors

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// parseAddress returns the network that a value names: an address, `address:port`, `[v6]:port` or
// `address/length`. It drops ports, zones and host bits, and returns the IPv4 form of IPv4-mapped
// addresses. Unlike [netip.ParseAddr] it allocates nothing if the value is not an address.
func parseAddress(b []byte) (p netip.Prefix, ok bool) {
	if a, ok := parseIPv4(b); ok {
		return netip.PrefixFrom(netip.AddrFrom4(a), 32), true
	}
	length := -1
	if i := bytes.LastIndexByte(b, '/'); i >= 0 {
		if length = parseNumber(b[i+1:], 3); length < 0 || b[i+1] == '0' && len(b) > i+2 {
			return p, false
		}
		b = b[:i]
	} else if len(b) > 0 && b[0] == '[' {
		i := bytes.LastIndexByte(b, ']')
		if i < 0 || !isPort(b[i+1:]) {
			return p, false
		}
		if b = b[1:i]; bytes.IndexByte(b, ':') < 0 {
			return p, false
		}
	} else if i := bytes.IndexByte(b, ':'); i >= 0 && i == bytes.LastIndexByte(b, ':') {
		if !isPort(b[i:]) {
			return p, false
		}
		b = b[:i]
	}
	var a netip.Addr
	if v4, ok := parseIPv4(b); ok {
		a = netip.AddrFrom4(v4)
	} else {
		if i := bytes.IndexByte(b, '%'); i >= 0 && i < len(b)-1 {
			b = b[:i]
		}
		v6, ok := parseIPv6(b)
		if !ok {
			return p, false
		}
		a = netip.AddrFrom16(v6)
	}
	bits := a.BitLen()
	if length > bits {
		return p, false
	}
	if length < 0 {
		length = bits
	}
	if a.Is4In6() && length >= 96 {
		a, length = a.Unmap(), length-96
	}
	p, err := a.Prefix(length)
	return p, err == nil
}

// isPort reports whether b is a colon and a port.
func isPort(b []byte) bool {
	if len(b) < 2 || b[0] != ':' {
		return false
	}
	n := parseNumber(b[1:], 5)
	return n >= 0 && n <= 65535
}

// parseNumber returns the number of 1 to most decimal digits, or -1.
func parseNumber(b []byte, most int) int {
	if len(b) == 0 || len(b) > most {
		return -1
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// parseIPv4 reads four numbers without leading zeros.
func parseIPv4(b []byte) (a [4]byte, ok bool) {
	part, digits, n := 0, 0, 0
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			if digits > 0 && n == 0 {
				return a, false
			}
			if n, digits = 10*n+int(c-'0'), digits+1; n > 255 {
				return a, false
			}
		case c == '.' && digits > 0 && part < 3:
			a[part] = byte(n)
			part, digits, n = part+1, 0, 0
		default:
			return a, false
		}
	}
	a[part] = byte(n)
	return a, part == 3 && digits > 0
}

// parseIPv6 reads an IPv6 address without a zone.
func parseIPv6(b []byte) (a [16]byte, ok bool) {
	gap, at := -1, 0 // at is the number of bytes of a that are set, gap that before `::`
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		if gap, b = 0, b[2:]; len(b) == 0 {
			return a, true
		}
	}
	for at < len(a) {
		n, digits := 0, 0
		for digits < len(b) {
			d := hexDigits[b[digits]]
			if d == 0 {
				break
			}
			if digits == 4 {
				return a, false
			}
			n, digits = n<<4|int(d-1), digits+1
		}
		if digits == 0 {
			return a, false
		}
		if digits < len(b) && b[digits] == '.' {
			v4, ok := parseIPv4(b)
			if !ok || at > 12 || gap < 0 && at != 12 {
				return a, false
			}
			copy(a[at:], v4[:])
			at, b = at+4, nil
			break
		}
		binary.BigEndian.PutUint16(a[at:], uint16(n))
		at, b = at+2, b[digits:]
		if len(b) == 0 {
			break
		}
		if b[0] != ':' || len(b) == 1 {
			return a, false
		}
		if b = b[1:]; b[0] == ':' {
			if gap >= 0 {
				return a, false
			}
			if gap, b = at, b[1:]; len(b) == 0 {
				break
			}
		}
	}
	switch {
	case len(b) > 0 || gap < 0 && at < len(a) || gap >= 0 && at == len(a):
		return a, false
	case gap >= 0:
		moved := at - gap
		copy(a[len(a)-moved:], a[gap:at])
		clear(a[gap : len(a)-moved])
	}
	return a, true
}

// hexDigits has the value of each hexadecimal digit plus 1, and 0 for other bytes.
var hexDigits = func() (digits [256]uint8) {
	for i := range 16 {
		digits["0123456789abcdef"[i]], digits["0123456789ABCDEF"[i]] = uint8(i+1), uint8(i+1)
	}
	return digits
}()
