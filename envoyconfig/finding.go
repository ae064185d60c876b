package envoyconfig

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Code identifies a kind of [Finding].
type Code string

// The kinds of findings. docs/envoy-check.md explains them.
const (
	Unmatched     Code = "unmatched"
	Unsent             = Code(rules.Unsent)
	Domain        Code = "domain"
	NoEffect      Code = "no-effect"
	HitsDropped   Code = "hits-dropped"
	NeverDenies   Code = "never-denies"
	ClientHits    Code = "client-hits"
	ChargedTwice  Code = "charged-twice"
	SameAddress   Code = "same-address"
	QueryInKey    Code = "query-in-key"
	Timeout       Code = "timeout"
	Cluster       Code = "cluster"
	UncountedHits Code = "uncounted-hits"
	StreamedCost  Code = "streamed-cost"
	Soft          Code = "soft-limit"
	Usage         Code = "usage"
	Leases        Code = "leases"
	Quota         Code = "quota"
	Changed       Code = "changed"
	Version       Code = "version"
	Allow         Code = "allow"
	ChangeMe      Code = "change-me"
	Unknown       Code = "unknown"
)

// acknowledgeable are the codes of warnings that a comment can acknowledge.
var acknowledgeable = []string{
	string(Unmatched), string(Unsent), string(NoEffect), string(NeverDenies), string(ClientHits), string(ChargedTwice), string(SameAddress), string(QueryInKey), string(Timeout), string(Cluster), string(UncountedHits), string(StreamedCost), string(Soft), string(Usage), string(Leases), string(Quota), string(Version),
}

// Finding is a mismatch between a configuration and its rules.
type Finding struct {
	Code     Code
	Severity rules.Severity
	Pos      rules.Pos
	// Message describes the problem and the remedy.
	Message string
}

// String returns the finding as file:line:column: severity: code: message.
func (f Finding) String() string {
	return rules.Diagnostic{Pos: f.Pos, Severity: f.Severity, Path: string(f.Code), Message: f.Message}.String()
}

// sortFindings sorts by file, line and column.
func sortFindings(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(comparePos(a.Pos, b.Pos), cmp.Compare(a.Code, b.Code))
	})
}

func comparePos(a, b rules.Pos) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
}
