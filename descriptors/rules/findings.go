package rules

import (
	"cmp"
	"fmt"
)

// Findings collects a bounded number of diagnostics, since a source can have hundreds of thousands
// of mistakes. If some are dropped, the last diagnostic says so.
type Findings struct {
	All Diagnostics
	// Max bounds the errors, and the warnings. 0 means 1000.
	Max    int
	counts [Note + 1]int
}

func (f *Findings) maximum() int { return cmp.Or(f.Max, 1000) }

// Add adds a diagnostic, and reports whether it is kept.
func (f *Findings) Add(d Diagnostic) bool {
	f.counts[d.Severity]++
	switch n := f.counts[d.Severity]; {
	case n > f.maximum()+1:
		return false
	case n == f.maximum()+1:
		d = Diagnostic{
			Pos: d.Pos, Severity: d.Severity, Message: fmt.Sprintf("more than %d %ss; the rest is not shown", f.maximum(), d.Severity),
		}
		if d.Severity == Warning {
			d.Code = TooMany
		}
		f.All = append(f.All, d)
		return false
	}
	f.All = append(f.All, d)
	return true
}

// Full reports whether errors were dropped, so that further checks are useless.
func (f *Findings) Full() bool { return f.counts[Error] > f.maximum() }
