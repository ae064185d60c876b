package ranges_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// document is a document of a rule file.
type document struct {
	Domain string  `json:"domain"`
	Exempt []*node `json:"exempt,omitempty"`
	Rules  []*node `json:"descriptors"`
}

// node is a rule, or an item of exempt.
type node struct {
	Key    string         `json:"key"`
	Value  string         `json:"value,omitempty"`
	Values []string       `json:"values,omitempty"`
	CIDR   any            `json:"cidr,omitempty"` // ranges, or a map with the name of a file
	Prefix map[string]int `json:"prefix,omitempty"`
	Share  bool           `json:"share_threshold,omitempty"`
	Limit  *limit         `json:"rate_limit,omitempty"`
	Below  []*node        `json:"descriptors,omitempty"`
	ranges []string       // of CIDR
}

type limit struct {
	Unit      string `json:"unit,omitempty"`
	N         int    `json:"requests_per_unit,omitempty"`
	Unlimited bool   `json:"unlimited,omitempty"`
	Name      string `json:"name,omitempty"`
}

type entry struct{ key, value string }

// model predicts the limit and the counter of each descriptor from docs/rules.md.
type model struct {
	used   map[string]int // hits by counter
	exempt int            // exempt requests
}

// status is the predicted status of a descriptor. It is empty without a limit.
type status struct {
	Name string
	Left int
}

func (m *model) answer(d *document, descriptors [][]entry) []status {
	all := make([]status, len(descriptors))
	exempt := slices.ContainsFunc(slices.Concat(descriptors...), func(e entry) bool {
		item, _ := find(d.Exempt, e)
		return item != nil
	})
	if exempt {
		m.exempt++
	}
	for i, entries := range descriptors {
		level, counter := d.Rules, fmt.Sprintf("%q", d.Domain)
		var n *node
		for _, e := range entries {
			var part string
			if n, part = find(level, e); n == nil {
				break
			}
			level, counter = n.Below, counter+fmt.Sprintf(" %q=%s", e.key, part)
		}
		if exempt || n == nil || n.Limit == nil || n.Limit.Unlimited {
			continue
		}
		m.used[counter]++
		all[i] = status{n.Limit.Name, n.Limit.N - m.used[counter]}
	}
	return all
}

// find returns the rule of a level, or the item of exempt, that matches an entry, and the entry's part in the name of the
// counter.
func find(level []*node, e entry) (_ *node, part string) {
	level = slices.DeleteFunc(slices.Clone(level), func(n *node) bool { return n.Key != e.key })
	shared := func(n *node, part string) (*node, string) {
		if n.Share {
			part = fmt.Sprintf("all of %p", n)
		}
		return n, part
	}
	for _, n := range level {
		if n.Value == e.value && e.value != "" || slices.Contains(n.Values, e.value) {
			return shared(n, fmt.Sprintf("%q", e.value))
		}
	}
	a, address := parse(e.value)
	var best *node
	bits := -1
	for _, n := range level {
		if l := longest(n.ranges, a); address && l > bits {
			best, bits = n, l
		}
	}
	if best != nil {
		return shared(best, best.network(a, bits))
	}
	for _, n := range level {
		if strings.Contains(n.Value, "*") && matchesPattern(n.Value, e.value) {
			return shared(n, fmt.Sprintf("%q", e.value))
		}
	}
	for _, n := range level {
		if n.Value == "" && n.Values == nil && n.ranges == nil {
			if address && n.Prefix != nil {
				return n, n.network(a, 0)
			}
			return n, fmt.Sprintf("%q", e.value)
		}
	}
	return nil, ""
}

// network returns the network whose addresses share a counter: that of the length of prefix, within
// the range of the given length that matches.
func (n *node) network(a netip.Prefix, bits int) string {
	length, family := a.Bits(), "v4"
	if a.Addr().Is6() {
		family = "v6"
	}
	if l, set := n.Prefix[family]; set {
		length = min(length, max(l, bits))
	}
	if length == a.Addr().BitLen() {
		return fmt.Sprintf("%q", a.Addr())
	}
	return "network " + netip.PrefixFrom(a.Addr(), length).Masked().String() // no value of a client
}

// longest returns the length of the longest range that contains a, or -1.
func longest(ranges []string, a netip.Prefix) int {
	bits := -1
	for _, text := range ranges {
		r, _ := parse(text)
		if r.Bits() <= a.Bits() && r.Contains(a.Addr()) {
			bits = max(bits, r.Bits())
		}
	}
	return bits
}

var (
	hostPort   = regexp.MustCompile(`^(?:\[(.*:.*)\]|([0-9.]*)):([0-9]+)$`)
	zone       = regexp.MustCompile(`^[-._~a-zA-Z0-9]+$`)
	withLength = regexp.MustCompile(`^(.*)/(0|[1-9][0-9]{0,2})$`)
)

// parse parses an address or a network: address, address:port, [v6]:port or address/length.
func parse(text string) (p netip.Prefix, ok bool) {
	length := -1
	if found := hostPort.FindStringSubmatch(text); found != nil {
		if _, err := strconv.ParseUint(found[3], 10, 16); err != nil {
			return p, false
		}
		text = found[1] + found[2]
	} else if found := withLength.FindStringSubmatch(text); found != nil {
		text = found[1]
		if _, err := fmt.Sscan(found[2], &length); err != nil {
			return p, false
		}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return p, false
	}
	if a.Is4In6() && length == -1 {
		a = a.Unmap()
	} else if a.Is4In6() && length >= 96 {
		a, length = a.Unmap(), length-96
	}
	if a.Zone() != "" && !zone.MatchString(a.Zone()) {
		return p, false
	}
	a = a.WithZone("")
	if length == -1 {
		length = a.BitLen()
	}
	if length > a.BitLen() {
		return p, false
	}
	return netip.PrefixFrom(a, length).Masked(), true
}

// matchesPattern reports whether a pattern, in which * stands for any characters, matches a value.
func matchesPattern(pattern, value string) bool {
	quoted := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `(?s:.*)`)
	return regexp.MustCompile(`\A` + quoted + `\z`).MatchString(value)
}
