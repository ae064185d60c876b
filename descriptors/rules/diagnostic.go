package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity is the severity of a [Diagnostic]. Only errors prevent rules from loading.
type Severity int

// The severities. A Note does not report a mistake.
const (
	Warning Severity = iota
	Error
	Note
)

// String returns error, warning or note.
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Note:
		return "note"
	default:
		return "warning"
	}
}

// Diagnostic is one finding in a source of rules.
type Diagnostic struct {
	Pos      Pos
	Severity Severity
	// Code is the kind of a warning. Errors and notes have none.
	Code Code
	// Path is the place in the tree, such as `domain "d" > key "a" > rate_limit`.
	Path string
	// Message states the problem, the value and what is allowed.
	Message string
}

// String returns the diagnostic as file:line:col: severity: code: path: message.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.Pos.File != "" {
		b.WriteString(d.Pos.File + ":")
		if d.Pos.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", d.Pos.Line, d.Pos.Col)
		}
		b.WriteString(" ")
	}
	b.WriteString(d.Severity.String() + ": ")
	if d.Code != "" {
		b.WriteString(string(d.Code) + ": ")
	}
	if d.Path != "" {
		b.WriteString(d.Path + ": ")
	}
	return b.String() + d.Message
}

// Diagnostics are the findings of one load, ordered by file and line.
type Diagnostics []Diagnostic

// HasErrors reports whether any of them is an [Error].
func (ds Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == Error })
}

// Err returns an error with one line for each error of ds, or nil if there is none.
func (ds Diagnostics) Err() error {
	var lines []string
	for _, d := range ds {
		if d.Severity == Error {
			lines = append(lines, d.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// DomainPath returns the [Diagnostic.Path] of a domain.
func DomainPath(name string) string { return fmt.Sprintf("domain %q", Shorten(name)) }

// Below appends a part to a [Diagnostic.Path].
func Below(path, part string) string {
	if path == "" {
		return part
	}
	return path + " > " + part
}

// Below appends the descriptor l to the path of its parent.
func (l Level) Below(parent string) string {
	path := Below(parent, fmt.Sprintf("key %q", Shorten(l.Key)))
	if l.Value != "" {
		path += fmt.Sprintf(" value %q", Shorten(l.Value))
	}
	return path
}

// Shorten truncates text that is too long for a diagnostic.
func Shorten(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
