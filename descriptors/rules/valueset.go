package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ValueSet selects the values that a [Descriptor] without Value matches: a list of values, ranges
// of addresses, or any value, with one counter for each network.
type ValueSet struct {
	// Values is the field values.
	Values []SetValue
	// Ranges is the field cidr.
	Ranges []Range
	// File is the file of Ranges as written in the rules, or empty.
	File string
	// FilePos is the place of File.
	FilePos Pos
	// Prefix is the field prefix, or nil.
	Prefix *PrefixLengths
}

// SetValue is one of [ValueSet.Values].
type SetValue struct {
	Text string
	Pos  Pos
}

// Range is one of [ValueSet.Ranges]. It has no host bits and no zone, and is not an IPv4-mapped
// range.
type Range struct {
	netip.Prefix
	Pos Pos
}

// PrefixLengths are the lengths of the networks that have one counter each: V4 from 1 to 32 and V6
// from 1 to 128.
type PrefixLengths struct{ V4, V6 int }

// maxSetText is the number of values in the text of a ValueSet.
const maxSetText = 3

// Text describes the set in the paths of rules, such as `10.0.0.0/8,192.0.2.7+5`. Two sets of one
// key can have the same text, such as the values `a,b` and the values `a` and `b`.
func (s *ValueSet) Text() string {
	var items []string
	switch {
	case s.File != "":
		items = []string{"file:" + s.File}
	case s.Ranges != nil:
		for _, r := range s.Ranges[:min(len(s.Ranges), maxSetText)] {
			items = append(items, RangeText(r.Prefix))
		}
	case s.Values != nil:
		for _, v := range s.Values[:min(len(s.Values), maxSetText)] {
			items = append(items, v.Text)
		}
	default:
		return ""
	}
	text := strings.Join(items, ",")
	if more := max(len(s.Ranges), len(s.Values)) - maxSetText; more > 0 && s.File == "" {
		text += "+" + strconv.Itoa(more)
	}
	return text
}

// ID is the name of the set among the sets of one key: no two of these have the same ID, since they
// have no value in common. Like Text it depends on the first values only.
func (s *ValueSet) ID() string {
	if s.File != "" {
		return "file " + strconv.Quote(s.File)
	}
	first := ValueSet{
		Values: s.Values[:min(len(s.Values), maxSetText)], Ranges: s.Ranges[:min(len(s.Ranges), maxSetText)],
	}
	return string(strconv.AppendInt(first.AppendDigest(nil), int64(max(len(s.Values), len(s.Ranges))), 10))
}

// AppendDigest appends the contents of the set, for a hash of the rules.
func (s *ValueSet) AppendDigest(b []byte) []byte {
	b = append(b, "set "...)
	for _, v := range s.Values {
		b = append(strconv.AppendQuote(b, v.Text), ' ')
	}
	for _, r := range s.Ranges {
		b = append(r.AppendTo(b), ' ')
	}
	if s.Prefix != nil {
		b = fmt.Appendf(b, "prefix %d %d ", s.Prefix.V4, s.Prefix.V6)
	}
	return b
}

// RangeText returns a range as rules spell it, without the length of a single address.
func RangeText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// ParseRange reads a range of addresses, such as 10.0.0.0/8, or an address. The error names the
// remedy.
func ParseRange(text string) (netip.Prefix, error) {
	shown := strconv.Quote(Shorten(text))
	address, length, found := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	bits := a.BitLen()
	if found && err == nil {
		n, lengthErr := strconv.ParseUint(length, 10, 8)
		if err = lengthErr; err == nil && (int(n) > bits || strconv.Itoa(int(n)) != length) {
			err = errors.New("invalid length")
		}
		bits = int(n)
	}
	switch {
	case strings.Contains(text, "*"):
		return netip.Prefix{}, fmt.Errorf(`%s has a "*"; write a range as an address and a length, such as 10.0.0.0/8, or use "value"`, shown)
	case hasLeadingZero(address):
		return netip.Prefix{}, fmt.Errorf("%s has a number with leading zeros; remove the zeros", shown)
	case err != nil && found && a.IsValid():
		return netip.Prefix{}, fmt.Errorf("%s has an invalid length; it must be a number from 0 to %d", shown,
			a.BitLen())
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%s is not an address or a range; write 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32", shown)
	case a.Zone() != "":
		return netip.Prefix{}, fmt.Errorf("%s has a zone; remove %q, since zones of addresses in requests are ignored",
			shown, Shorten("%"+a.Zone()))
	case a.Is4In6() && bits >= 96:
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4-mapped range; write %s, which matches mapped addresses, too",
			shown,
			RangeText(netip.PrefixFrom(a.Unmap(), bits-96).Masked()))
	}
	p := netip.PrefixFrom(a, bits)
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits outside its length; write %s for the network, or %s for the address", shown, p.Masked(), a)
	}
	return p, nil
}

// hasLeadingZero reports whether a part of an IPv4 address has a leading zero.
func hasLeadingZero(address string) bool {
	if strings.Contains(address, ":") {
		address = address[strings.LastIndex(address, ":")+1:]
	}
	if strings.Count(address, ".") != 3 {
		return false
	}
	for part := range strings.SplitSeq(address, ".") {
		if _, err := strconv.ParseUint(part, 10, 32); err == nil && len(part) > 1 && part[0] == '0' {
			return true
		}
	}
	return false
}
