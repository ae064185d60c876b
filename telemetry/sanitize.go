package telemetry

import (
	"regexp"
	"strings"
)

var ipv4Addresses = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// sanitizeName makes a name valid in a StatsD line: a colon or a bar would end it, a control
// character could start another line.
func sanitizeName(name string) string { return replace(name, ":|") }

// sanitizeIPv4 makes the IPv4 addresses in a domain a single level each.
func sanitizeIPv4(domain string) string {
	return ipv4Addresses.ReplaceAllStringFunc(domain,
		func(quad string) string { return strings.ReplaceAll(quad, ".", "_") })
}

// metricName replaces all characters that are invalid in the name of a metric by underscores.
func metricName(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, text)
}

// replace replaces the bytes in bad and control characters by underscores.
func replace(s, bad string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(bad, r) {
			return '_'
		}
		return r
	}, s)
}
