package envoyconfig

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Code names a kind of [Finding].
type Code string

// The kinds of findings. docs/envoy-check.md explains them.
const (
	// Unmatched is a descriptor that no rule can match.
	Unmatched Code = "unmatched"
	// Unsent is a rule that no descriptor can match.
	Unsent = Code(rules.Unsent)
	// Domain is a domain of filters without rules, or of rules without a filter.
	Domain Code = "domain"
	// NeverAsked is an element of rate_limits, or a filter, that has no effect.
	NeverAsked Code = "never-asked"
	// HitsDropped is a hits_addend that Envoy does not send.
	HitsDropped Code = "hits-dropped"
	// SameAddress is an address that may be everybody's, or whatever the client says.
	SameAddress Code = "same-address"
	// QueryInKey is a path with its query as a value.
	QueryInKey Code = "query-in-key"
	// Timeout is a deadline that is too short for answers.
	Timeout Code = "timeout"
	// Cluster is a cluster of the service that Envoy cannot ask, or not enough.
	Cluster Code = "cluster"
	// Debt is hits known at the end of a stream that a limit does not count where it denies them.
	Debt Code = "debt"
	// Leases is what a request holds and nobody gives back, or the wrong one.
	Leases Code = "leases"
	// Quota is what the filter of the quota service does not do as it is written, or does badly.
	Quota Code = "quota"
	// Changed is what the route changes before a descriptor for the end of the stream is made of it.
	Changed Code = "changed"
	// Version is a field that the Envoy which wrote a dump does not have yet.
	Version Code = "version"
	// Allow is an acknowledgement of a warning that is of no use.
	Allow Code = "allow"
	// ChangeMe is what a snippet leaves open.
	ChangeMe Code = "change-me"
	// Unknown is what these files do not say.
	Unknown Code = "unknown"
)

// acknowledgeable are the codes of warnings that a comment can acknowledge.
var acknowledgeable = []string{
	string(Unmatched), string(Unsent), string(NeverAsked), string(SameAddress), string(QueryInKey), string(Timeout), string(Cluster), string(Debt), string(Leases), string(Quota), string(Version),
}

// Finding is something that stands between a configuration and its rules.
type Finding struct {
	Code     Code
	Severity rules.Severity
	Pos      rules.Pos
	// Message says what was found, and the remedy.
	Message string
}

// String returns the finding as file:line:column: severity: code: message.
func (f Finding) String() string {
	return rules.Diagnostic{Pos: f.Pos, Severity: f.Severity, Path: string(f.Code), Message: f.Message}.String()
}

// sortFindings puts findings in the order of files and lines.
func sortFindings(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(comparePos(a.Pos, b.Pos), cmp.Compare(a.Code, b.Code))
	})
}

func comparePos(a, b rules.Pos) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
}
