package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// quota returns the limits that are divided among Envoys, each followed by its shares.
func (v *view) quota(q *live.Quota) (lines []string) {
	if q == nil {
		return nil
	}
	if q.Streams == 0 {
		return []string{v.paint(yellow, "  no Envoy is connected")}
	}
	for i := range q.Largest {
		b := &q.Largest[i]
		name := b.Descriptor
		if name == "" && b.Hash != "" {
			name = "#" + b.Hash
		}
		lines = append(lines, v.paint(plain, fmt.Sprintf("%8s  %8s  %8s  %s%s: %s %s", formatRate(b.DemandRate), formatRate(b.Assigned), formatRate(b.LimitRate), replicaPrefix(b.Replica), b.Domain, b.Rule, name)))
		lines = append(lines, v.wrap(faint, "           "+formatShares(b, 4), 3)...)
	}
	if more := q.Buckets - len(q.Largest); more > 0 {
		lines = append(lines, v.paint(faint, fmt.Sprintf("  %d others", more)))
	}
	return lines
}

// formatShares lists the maxShares largest shares of a bucket, and the part of the limit that no
// Envoy may use.
func formatShares(b *live.QuotaBucket, maxShares int) string {
	parts := []string{rules.Count(b.Holders, "Envoy")}
	for i := range b.Shares[:min(len(b.Shares), maxShares)] {
		s := &b.Shares[i]
		envoy := s.Address
		if envoy == "" {
			envoy = "stream " + strconv.FormatUint(s.Stream, 10)
		}
		text := fmt.Sprintf("%s has %s of %s", envoy, formatRate(s.Share), formatRate(s.Demand))
		if !s.Confirmed {
			text += " (unconfirmed)"
		}
		parts = append(parts, text)
	}
	if b.Holders > maxShares {
		parts = append(parts, "...")
	}
	if b.Unconfirmed > 0 {
		parts = append(parts, formatRate(b.Unconfirmed)+" not confirmed")
	}
	if b.LostUntil != nil {
		parts = append(parts, formatRate(b.Lost)+" lost until "+timeOfDay(*b.LostUntil))
	}
	if b.LearningUntil != nil {
		parts = append(parts, "learning until "+timeOfDay(*b.LearningUntil))
	}
	return strings.Join(parts, ", ")
}
