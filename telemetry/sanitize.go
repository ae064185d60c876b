package telemetry

import (
	"regexp"
	"strings"
)

var quads = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// sanitizeName makes a name fit for a line: a colon or a bar would end it, a
// control character could begin another one.
func sanitizeName(name string) string { return replace(name, ":|") }

// sanitizeQuads does the same to a domain, and makes one level of an IPv4
// address.
func sanitizeQuads(domain string) string {
	return quads.ReplaceAllStringFunc(domain, func(quad string) string { return strings.ReplaceAll(quad, ".", "_") })
}

// metricName has an underscore for whatever names of metrics cannot have.
func metricName(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, text)
}

// replace puts an underscore for each of the bytes in bad and for control
// characters.
func replace(s, bad string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(bad, r) {
			return '_'
		}
		return r
	}, s)
}
