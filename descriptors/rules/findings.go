package rules

import "fmt"

// MaxFindings is how many errors and how many warnings [Findings] keeps.
const MaxFindings = 1000

// Findings collects diagnostics within a bound, since a source can make hundreds of thousands of mistakes. One more
// diagnostic says that others are left out.
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
		d = Diagnostic{Pos: d.Pos, Severity: d.Severity, Message: fmt.Sprintf("more than %d %ss; the others are not shown", MaxFindings, d.Severity)}
		if d.Severity == Warning {
			d.Code = TooMany
		}
		f.All = append(f.All, d)
		return false
	}
	f.All = append(f.All, d)
	return true
}

// Full reports whether errors are left out, so that it is no use to look for more.
func (f *Findings) Full() bool { return f.counts[Error] > MaxFindings }
