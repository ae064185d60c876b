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
	var a netip.Addr
	if v4, n := parseIPv4(b); n > 0 {
		a = netip.AddrFrom4(v4)
		if n == len(b) || b[n] == ':' {
			return netip.PrefixFrom(a, 32), n == len(b) || isPort(b[n:])
		}
		b = b[n:]
	} else {
		inBrackets := len(b) > 0 && b[0] == '['
		if inBrackets {
			b = b[1:]
		}
		v6, n := parseIPv6(b)
		if n == 0 {
			return p, false
		}
		if a, b = netip.AddrFrom16(v6), b[n:]; len(b) > 0 && b[0] == '%' {
			if b, ok = cutZone(b); !ok {
				return p, false
			}
		}
		if inBrackets {
			if len(b) == 0 || b[0] != ']' || !isPort(b[1:]) {
				return p, false
			}
			b = nil
		}
	}
	length := a.BitLen()
	if len(b) > 0 {
		n := parseNumber(b[1:], 3)
		if b[0] != '/' || n < 0 || n > length || b[1] == '0' && len(b) > 2 {
			return p, false
		}
		length = n
	}
	if a.Is4In6() && length >= 96 {
		a = a.Unmap()
		length -= 96
	}
	if length == a.BitLen() {
		return netip.PrefixFrom(a, length), true
	}
	return netip.PrefixFrom(a, length).Masked(), true
}

// cutZone returns what follows a zone, which is at least one character after `%`. Other characters
// than those of interfaces end it: in `2001:db8::1%x, 203.0.113.9`, a client wrote the first part.
func cutZone(b []byte) (rest []byte, ok bool) {
	n := 1
	for n < len(b) && (b[n]|0x20 >= 'a' && b[n]|0x20 <= 'z' || b[n] >= '0' && b[n] <= '9' ||
		bytes.IndexByte([]byte("-._~"), b[n]) >= 0) {
		n++
	}
	return b[n:], n > 1
}

// addressReader reads the addresses of a request.
type addressReader struct {
	// notAddresses is the number of values that are not addresses.
	notAddresses int
	// With remembers, the other fields are those of the last value, which is often read again.
	remembers, known, ok bool
	value                []byte
	network              netip.Prefix
}

// read is [parseAddress], and counts a value that is not an address.
func (r *addressReader) read(value []byte) (netip.Prefix, bool) {
	if r.known && len(value) == len(r.value) && (len(value) == 0 || &value[0] == &r.value[0]) {
		return r.network, r.ok
	}
	p, ok := parseAddress(value)
	if !ok {
		r.notAddresses++
	}
	if r.remembers {
		r.known = true
		r.value = value
		r.network = p
		r.ok = ok
	}
	return p, ok
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

// parseIPv4 reads four numbers without leading zeros, with which b begins. n is the number of bytes,
// 0 if there is no address.
func parseIPv4(b []byte) (a [4]byte, n int) {
	part := 0
	digits := 0
	v := 0
	n = len(b)
address:
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			if digits > 0 && v == 0 {
				return a, 0
			}
			if v, digits = 10*v+int(c-'0'), digits+1; v > 255 {
				return a, 0
			}
		case c == '.' && digits > 0 && part < 3:
			a[part] = byte(v)
			part++
			digits = 0
			v = 0
		default:
			n = i
			break address
		}
	}
	if part < 3 || digits == 0 {
		return a, 0
	}
	a[3] = byte(v)
	return a, n
}

// parseIPv6 reads an IPv6 address without a zone, with which b begins. n is the number of bytes, 0
// if there is no address.
func parseIPv6(b []byte) (a [16]byte, n int) {
	gap := -1
	at := 0 // at is the number of bytes of a that are set, gap that before `::`
	endsAt := func(n int) bool { return n == len(b) || hexDigits[b[n]] == 0 }
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		if gap, n = 0, 2; endsAt(n) {
			return a, n
		}
	}
	for at < len(a) {
		v := 0
		first := n
		for ; !endsAt(n); n++ {
			v = v<<4 | int(hexDigits[b[n]]-1)
		}
		if n == first || n > first+4 {
			return a, 0
		}
		if n < len(b) && b[n] == '.' {
			v4, more := parseIPv4(b[first:])
			if more == 0 || at > 12 || gap < 0 && at != 12 {
				return a, 0
			}
			copy(a[at:], v4[:])
			at += 4
			n = first + more
			break
		}
		binary.BigEndian.PutUint16(a[at:], uint16(v))
		if at += 2; at == len(a) || n == len(b) || b[n] != ':' {
			break
		}
		if n++; n < len(b) && b[n] == ':' {
			if gap >= 0 {
				return a, 0
			}
			if gap, n = at, n+1; endsAt(n) {
				break
			}
		}
	}
	switch {
	case gap < 0 && at < len(a) || gap >= 0 && at == len(a):
		return a, 0
	case gap >= 0:
		moved := at - gap
		copy(a[len(a)-moved:], a[gap:at])
		clear(a[gap : len(a)-moved])
	}
	return a, n
}

// hexDigits has the value of each hexadecimal digit plus 1, and 0 for other bytes.
var hexDigits = func() (digits [256]uint8) {
	for i := range 16 {
		digits["0123456789abcdef"[i]] = uint8(i + 1)
		digits["0123456789ABCDEF"[i]] = uint8(i + 1)
	}
	return digits
}()
