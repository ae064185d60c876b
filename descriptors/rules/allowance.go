package rules

import (
	"cmp"
	"fmt"
	"slices"
)

// Code is a kind of warning. Comments in rules can acknowledge warnings by their code.
type Code string

// The codes. docs/rules.md explains them.
const (
	NoEffect       Code = "no-effect"       // a field has no effect in its place
	EmptyLimit     Code = "empty-limit"     // rate_limit without fields
	MissingNumber  Code = "missing-number"  // requests_per_unit is not given
	UnsafeName     Code = "unsafe-name"     // a name breaks a header
	Twice          Code = "twice"           // a duplicate field
	MergeOrder     Code = "merge-order"     // `<<` overrides a field above it
	Template       Code = "template"        // text looks like a template
	Differ         Code = "differ"          // the files of a domain differ
	Hides          Code = "hides"           // ranges or wildcards hide descriptors
	ReplacesNone   Code = "replaces-none"   // replaces names no limit
	ReplacesMutual Code = "replaces-mutual" // two limits replace each other
	UnusedDefaults Code = "unused-defaults" // defaults are for no rule
	Restart        Code = "restart"         // a restart loses counters that matter for a day or more
	Leases         Code = "leases"          // leases may be lost, or end before or long after their requests
	SmallQuota     Code = "small-quota"     // a limit is too small for Envoys to divide
	MaxCounters    Code = "max-counters"    // max_counters does not bound counters in a store
	GRPCAllow      Code = "grpc-allow"      // --grpc-allow and the rules do not fit
	TooMany        Code = "too-many"        // more warnings are not shown
	Allow          Code = "allow"           // an acknowledgement has no effect
)

// Unsent is a warning of package envoyconfig on a line of rules. Only `envoy check` knows whether
// its acknowledgement is needed.
const Unsent Code = "unsent"

// acknowledgeable are the codes of warnings that have a line of a file.
var acknowledgeable = []string{
	string(NoEffect), string(EmptyLimit), string(MissingNumber), string(UnsafeName), string(Twice),
	string(MergeOrder), string(Template), string(Differ), string(Hides), string(ReplacesNone), string(ReplacesMutual),
	string(UnusedDefaults), string(Restart), string(Leases), string(SmallQuota), string(MaxCounters), string(Unsent),
}

// Allowances are the warnings that comments acknowledge. They are not safe for concurrent use. Nil
// has none.
type Allowances map[allowanceKey]*allowance

type allowanceKey struct {
	file string
	line int
	code Code
}

type allowance struct {
	at   Pos // place of the comment
	used bool
}

// Add records that the comment at the given place acknowledges warnings with this code on the line.
func (a Allowances) Add(at Pos, line int, code Code) {
	a[allowanceKey{at.File, line, code}] = &allowance{at: at}
}

// Allow reports whether a warning is acknowledged, and marks the acknowledgement as used.
func (a Allowances) Allow(code Code, pos Pos) bool {
	found := a[allowanceKey{pos.File, pos.Line, code}]
	if found != nil {
		found.used = true
	}
	return found != nil
}

// Moved returns a copy for a text that is embedded in a file. place maps places in the text to
// those in the file.
func (a Allowances) Moved(place func(Pos) Pos) Allowances {
	moved := Allowances{}
	for k, v := range a {
		at := place(Pos{File: k.file, Line: k.line, Col: 1})
		moved[allowanceKey{at.File, at.Line, k.code}] = &allowance{at: place(v.at), used: v.used}
	}
	return moved
}

// Unused returns a warning for each acknowledgement that did not apply to any warning.
func (a Allowances) Unused() Diagnostics { return a.UnusedOf(acknowledgeable) }

// UnusedOf is Unused for files whose warnings have the given codes.
func (a Allowances) UnusedOf(codes []string) Diagnostics {
	var ds Diagnostics
	for k, v := range a {
		if v.used || k.code == Unsent {
			continue
		}
		message := fmt.Sprintf("line %d has no warning %s: remove the acknowledgement", k.line, k.code)
		if !slices.Contains(codes, string(k.code)) {
			message = fmt.Sprintf("%q is not the code of a warning that comments can acknowledge%s",
				Shorten(string(k.code)), DidYouMean(string(k.code), codes))
		}
		ds = append(ds, Diagnostic{Pos: v.at, Severity: Warning, Code: Allow, Message: message})
	}
	slices.SortFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Message, b.Message))
	})
	return ds
}
