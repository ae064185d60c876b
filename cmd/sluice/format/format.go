// Package format formats values for the output of several commands.
package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// Printable replaces the characters of s that could move the cursor of a terminal or change its
// colours.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Escape escapes the control characters of s, so that it remains one line.
func Escape(s string) string {
	if !strings.ContainsFunc(s, rules.IsControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if rules.IsControl(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// EscapeLines is Escape for the lines of a text.
func EscapeLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		rest, end := strings.CutSuffix(line, "\n")
		b.WriteString(Escape(rest))
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Time formats a time of day in the local time zone.
func Time(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// TimeAt is Time with the date, unless that is the one of now.
func TimeAt(t, now time.Time) string {
	if t.Local().Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return Time(t)
	}
	return t.Local().Format(time.DateTime)
}

// Rate formats a rate in few characters.
func Rate(f float64) string {
	switch {
	case f >= 100_000:
		return fmt.Sprintf("%.0fk", f/1000)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	default:
		return fmt.Sprintf("%.1f", f)
	}
}

// Count formats a number in few characters.
func Count(n int64) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	default:
		return strconv.FormatInt(n, 10)
	}
}

// Shares lists the shares of a bucket, and the part of the limit that no Envoy may use.
func Shares(b *live.QuotaBucket) string {
	parts := []string{rules.Count(b.Holders, "Envoy")}
	for i := range b.Shares {
		s := &b.Shares[i]
		envoy := s.Address
		if envoy == "" {
			envoy = "stream " + strconv.FormatUint(s.Stream, 10)
		}
		text := fmt.Sprintf("%s has %s of %s", envoy, Rate(s.Share), Rate(s.Demand))
		if !s.Confirmed {
			text += " (unconfirmed)"
		}
		parts = append(parts, text)
	}
	if b.Holders > len(b.Shares) {
		parts = append(parts, "...")
	}
	if b.Unconfirmed > 0 {
		parts = append(parts, Rate(b.Unconfirmed)+" not confirmed")
	}
	if b.LostUntil != nil {
		parts = append(parts, Rate(b.Lost)+" lost until "+Time(*b.LostUntil))
	}
	if b.LearningUntil != nil {
		parts = append(parts, "learning until "+Time(*b.LearningUntil))
	}
	return strings.Join(parts, ", ")
}
