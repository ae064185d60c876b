package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// writeDiagnostics writes all errors and notes, and of each kind of warning the first few.
func (k *checkCmd) writeDiagnostics(c console, diagnostics rules.Diagnostics) error {
	const few = 20
	seen := map[rules.Code]int{}
	for _, d := range diagnostics {
		if d.Code != "" {
			if seen[d.Code]++; seen[d.Code] > few && !k.All {
				continue
			}
		}
		if _, err := fmt.Fprintln(c.out, d); err != nil {
			return err
		}
	}
	for _, code := range slices.Sorted(maps.Keys(seen)) {
		if more := seen[code] - few; more > 0 && !k.All {
			if _, err := fmt.Fprintf(c.out, "warning: %s: %d more like these; --all prints them\n", code, more); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeLimits writes each limit or, if there are many, how many of each kind there are.
func (k *checkCmd) writeLimits(c console, limits []*descriptors.Limit) error {
	const many = 100
	var lines []string
	if k.All || len(limits) <= many {
		for _, l := range limits {
			lines = append(lines, fmt.Sprintf("%s > %s: %s%s", l.Rule.Domain(), l.Rule.Path(), l, limitNotes(l)))
		}
	} else if lines = kindsOf(limits, (*descriptors.Rule).Domain); len(lines) > many {
		lines = kindsOf(limits, func(*descriptors.Rule) string { return "all domains" })
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(c.out, line); err != nil {
			return err
		}
	}
	return nil
}

// kindsOf counts limits by their domain, algorithm, modes and bytes.
func kindsOf(limits []*descriptors.Limit, domain func(*descriptors.Rule) string) []string {
	type kind struct{ domain, rest string }
	counts := map[kind]int{}
	var kinds []kind // in the order of the rules
	for _, l := range limits {
		algorithm := "unlimited"
		if !l.Rule.Unlimited {
			algorithm = rules.AlgorithmName(l.Policy.Algorithm)
		}
		k := kind{domain(l.Rule), algorithm + limitNotes(l)}
		if counts[k]++; counts[k] == 1 {
			kinds = append(kinds, k)
		}
	}
	lines := make([]string, len(kinds))
	for i, k := range kinds {
		lines[i] = fmt.Sprintf("%s: %s: %s", k.domain, count(counts[k], "limit"), k.rest)
	}
	return lines
}

// limitNotes says what is to be known of a limit beside its rate.
func limitNotes(l *descriptors.Limit) string {
	notes := ""
	if l.Rule.Shadow {
		notes += ", shadow mode"
	}
	if l.Candidate {
		notes += ", shadow"
	}
	if l.Rule.Quota {
		notes += ", quota mode"
	}
	if n := counterBytes(l); n > 0 {
		notes += fmt.Sprintf(", %d bytes per counter", n)
	}
	return notes
}

// counterBytes returns the memory of each counter of l. An unlimited rule has none.
func counterBytes(l *descriptors.Limit) int {
	if l.Rule.Unlimited {
		return 0
	}
	return limiter.CounterBytes(l.Policy)
}
