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
func (k *checkCmd) writeDiagnostics(c console, diagnostics rules.Diagnostics) {
	const few = 20
	seen := map[rules.Code]int{}
	for _, d := range diagnostics {
		if d.Code != "" {
			if seen[d.Code]++; seen[d.Code] > few && !k.All {
				continue
			}
		}
		fmt.Fprintln(c.out, d)
	}
	for _, code := range slices.Sorted(maps.Keys(seen)) {
		if more := seen[code] - few; more > 0 && !k.All {
			fmt.Fprintf(c.out, "warning: %s: %d more like these; --all prints them\n", code, more)
		}
	}
}

// writeLimits writes each limit or, if there are many, how many of each kind there are.
func (k *checkCmd) writeLimits(c console, set *descriptors.Set) {
	const many = 100
	var lines []string
	if k.All || len(set.Limits) <= many {
		for _, l := range set.Limits {
			lines = append(lines, fmt.Sprintf("%s > %s: %s%s%s", l.Rule.Domain(), l.Rule.Path(), l, limitNotes(l), k.nameNote(set, l)))
		}
	} else if lines = k.kindsOf(set, (*descriptors.Rule).Domain); len(lines) > many {
		lines = k.kindsOf(set, func(*descriptors.Rule) string { return "all domains" })
	}
	for _, line := range lines {
		fmt.Fprintln(c.out, line)
	}
}

// kindsOf counts limits by their domain, algorithm, modes and bytes.
func (k *checkCmd) kindsOf(set *descriptors.Set, domain func(*descriptors.Rule) string) []string {
	type kind struct{ domain, rest string }
	counts := map[kind]int{}
	var kinds []kind // in the order of the rules
	for _, l := range set.Limits {
		algorithm := "unlimited"
		if !l.Rule.Unlimited {
			algorithm = rules.AlgorithmName(l.Policy.Algorithm)
		}
		one := kind{domain(l.Rule), algorithm + limitNotes(l) + k.nameKind(set, l)}
		if counts[one]++; counts[one] == 1 {
			kinds = append(kinds, one)
		}
	}
	lines := make([]string, len(kinds))
	for i, one := range kinds {
		lines[i] = fmt.Sprintf("%s: %s: %s", one.domain, count(counts[one], "limit"), one.rest)
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

// nameNote says which name the counters of l have in a store, and why, if that was asked.
func (k *checkCmd) nameNote(set *descriptors.Set, l *descriptors.Limit) string {
	if k.Names == "" || l.Rule.Unlimited {
		return ""
	}
	name := set.StoreName(l)
	note := ", name " + name.Text
	if name.Why != "" {
		note += ": " + name.Why
	}
	return note
}

// nameKind is nameNote for many limits.
func (k *checkCmd) nameKind(set *descriptors.Set, l *descriptors.Limit) string {
	if k.Names == "" || l.Rule.Unlimited {
		return ""
	}
	switch name := set.StoreName(l); {
	case name.Ratelimit:
		return ", name of envoyproxy/ratelimit"
	case name.Mistakable:
		return ", exact name: that of another rule could be the same"
	case name.Why != "":
		return ", exact name: " + name.Why
	default:
		return ", exact name"
	}
}

// counterBytes returns the memory of each counter of l. An unlimited rule has none.
func counterBytes(l *descriptors.Limit) int {
	if l.Rule.Unlimited {
		return 0
	}
	return limiter.CounterBytes(l.Policy)
}
