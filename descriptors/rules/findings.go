package rules

import "fmt"

// MaxFindings bounds the errors and the warnings that [Findings] keeps.
const MaxFindings = 1000

// Findings collects a bounded number of diagnostics, since a source can have hundreds of thousands
// of mistakes. If some are dropped, the last diagnostic says so.
type Findings struct {
	All    Diagnostics
	counts [Note + 1]int
}

// Add adds a diagnostic, and reports whether it is kept.
func (f *Findings) Add(d Diagnostic) bool {
	f.counts[d.Severity]++
	switch n := f.counts[d.Severity]; {
	case n > MaxFindings+1:
		return false
	case n == MaxFindings+1:
		d = Diagnostic{
			Pos: d.Pos, Severity: d.Severity, Message: fmt.Sprintf("more than %d %ss; the rest is not shown", MaxFindings, d.Severity),
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
func (f *Findings) Full() bool { return f.counts[Error] > MaxFindings }
