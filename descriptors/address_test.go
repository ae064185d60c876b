package descriptors

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// zones are the accepted zones: the characters that RFC 6874 does not require to be encoded.
var zones = regexp.MustCompile(`^[-.0-9A-Z_a-z~]*$`)

// naiveAddress is parseAddress with net/netip.
func naiveAddress(value string) (p netip.Prefix, ok bool) {
	text, bits, port := value, -1, ""
	hasPort := false
	if i := strings.LastIndexByte(value, '/'); i >= 0 {
		n, err := strconv.ParseUint(value[i+1:], 10, 8)
		if err != nil || strconv.FormatUint(n, 10) != value[i+1:] {
			return p, false
		}
		text, bits = value[:i], int(n)
	} else if strings.HasPrefix(value, "[") {
		i := strings.LastIndexByte(value, ']')
		if i < 0 || !strings.HasPrefix(value[i+1:], ":") {
			return p, false
		}
		text, port, hasPort = value[1:i], value[i+2:], true
		if a, err := netip.ParseAddr(text); err != nil || a.Is4() {
			return p, false
		}
	} else if strings.Count(value, ":") == 1 {
		text, port, hasPort = strings.Cut(value, ":")
	}
	if hasPort {
		if strings.HasPrefix(port, "+") || len(port) > 5 {
			return p, false
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return p, false
		}
	}
	a, err := netip.ParseAddr(text)
	if err != nil || bits > a.BitLen() {
		return p, false
	}
	if bits < 0 {
		bits = a.BitLen()
	}
	if !zones.MatchString(a.Zone()) {
		return p, false
	}
	if a = a.WithZone(""); a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	return netip.PrefixFrom(a, bits).Masked(), true
}

// randomValue returns a value that is an address, or similar to one.
func randomValue(r *rand.Rand) string {
	var b [16]byte
	for i := range b {
		if r.IntN(3) > 0 {
			b[i] = byte(r.IntN(256) & r.IntN(256))
		}
	}
	var text string
	kind := r.IntN(8)
	v4 := kind < 4
	switch kind {
	case 0, 1, 2, 3:
		b[0] = []byte{10, 192, 172, 0}[r.IntN(4)]
		text = netip.AddrFrom4([4]byte(b[:4])).String()
	case 4:
		text = "::ffff:" + netip.AddrFrom4([4]byte(b[:4])).String()
	case 5:
		text = netip.AddrFrom16(b).StringExpanded()
	default:
		b[0], b[1], b[2], b[3] = 0x20, 0x01, 0x0d, 0xb8
		text = netip.AddrFrom16(b).String()
	}
	if !v4 && r.IntN(8) == 0 {
		text += "%eth" + strconv.Itoa(r.IntN(3))
	}
	switch r.IntN(4) {
	case 0:
		if v4 {
			text += ":" + strconv.Itoa(r.IntN(70000))
		} else {
			text = "[" + text + "]:" + strconv.Itoa(r.IntN(70000))
		}
	case 1:
		text += "/" + strconv.Itoa(r.IntN(140))
	}
	if r.IntN(4) == 0 { // a mistake
		mistake := []string{":", "::", ".", "0", "f", "/", "%", "[", "]", "-", "1", " ", "\x00", "é"}[r.IntN(14)]
		at := r.IntN(len(text) + 1)
		text = text[:at] + mistake + text[min(len(text), at+r.IntN(2)):]
	}
	return text
}

func TestParseAddress(t *testing.T) {
	fixed := []string{
		"", ":", "::", ":::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8::",
		"1::2::3", "::1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3", "::1.2.3.04", "12345::", "::g",
		"1.2.3.4", "01.2.3.4", "1.2.3.4.5", "1.2.3", "1..2.3", "256.1.1.1", "1.2.3.4:", "1.2.3.4:80", "1.2.3.4:65536",
		"1.2.3.4:-1", "1.2.3.4:00080", "1.2.3.4:000080", "[1.2.3.4]:80", "[::1]", "[::1]:80", "[::1]:", "[]:80", "[::1]80", "[::1%a]:1",
		"1.2.3.4%a", "::1%", "::1%a", "::1%en-0.1_~Z9/64", "::1%a, ::2", "::1%a/b", "::1%a/b/64", "[::1%a], [::2%b]:1", "[::1%a/64]:1", "::1%@", "::1%\x00", "fe80::1%a/64", "::ffff:1.2.3.4%a", "1.2.3.4/0", "1.2.3.4/", "1.2.3.4/33",
		"1.2.3.4/08", "1.2.3.4/8", "::/0", "::/128", "::/129", "::ffff:10.1.2.3/104", "::ffff:10.1.2.3/90", "1.2.3.4/8/8",
		"0x1.2.3.4", "1.2.3.4 ", "unknown", "[", "]", "/", "%", "::ffff:0:0/96", "10.1.2.3, 10.2.3.4", "1.2.3.4\x00",
	}
	check := func(text string) bool {
		p, ok := parseAddress([]byte(text))
		want, wantOK := naiveAddress(text)
		if ok != wantOK || ok && p != want {
			t.Errorf("parseAddress(%q) = %v, %t; net/netip: %v, %t", text, p, ok, want, wantOK)
		}
		return ok
	}
	for _, text := range fixed {
		check(text)
	}
	r := rand.New(rand.NewPCG(1, 2))
	valid, all := 0, effort.Times(t, 100_000)
	for range all {
		if check(randomValue(r)) {
			valid++
		}
		if t.Failed() {
			return
		}
	}
	if valid < all*3/10 || valid > all*9/10 {
		t.Errorf("%d of %d random values are addresses", valid, all)
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add([]byte("[fe80::1%eth0]:80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := parseAddress(b)
		want, wantOK := naiveAddress(string(bytes.Clone(b)))
		if ok != wantOK || ok && p != want {
			t.Errorf("parseAddress(%q) = %v, %t; net/netip: %v, %t", b, p, ok, want, wantOK)
		}
	})
}
