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
	// Unmatched is a descriptor that no rule can match.
	Unmatched Code = "unmatched"
	// Unsent is a rule that no descriptor can match.
	Unsent = Code(rules.Unsent)
	// Domain is a filter's domain without rules, or a domain of the rules without a filter.
	Domain Code = "domain"
	// NoEffect is a policy or a filter without effect.
	NoEffect Code = "no-effect"
	// HitsDropped is a hits_addend that Envoy does not send.
	HitsDropped Code = "hits-dropped"
	// NeverDenies is a limit that is never asked for, or never charged.
	NeverDenies Code = "never-denies"
	// ClientHits are hits that clients choose.
	ClientHits Code = "client-hits"
	// ChargedTwice is a counter that one request charges more than once.
	ChargedTwice Code = "charged-twice"
	// SameAddress is an address that may be the same for all clients or chosen by the client.
	SameAddress Code = "same-address"
	// QueryInKey is a descriptor value that contains the query string.
	QueryInKey Code = "query-in-key"
	// Timeout is a timeout too short for the service to answer.
	Timeout Code = "timeout"
	// Cluster is a service cluster that Envoy cannot use, or that is too restricted.
	Cluster Code = "cluster"
	// UncountedHits are hits at the end of a stream that a limit does not count once it is exceeded.
	UncountedHits Code = "uncounted-hits"
	// StreamedCost is a cost that is read from streamed responses only, or from complete ones only.
	StreamedCost Code = "streamed-cost"
	// Denial is a setting that changes what clients receive by denied_response.
	Denial Code = "denial"
	// Soft is a route that depends on soft limits and that clients can choose or never take.
	Soft Code = "soft-limit"
	// Leases is a lease that is never released, or released wrongly.
	Leases Code = "leases"
	// Quota is a setting of the quota filter that Envoy does not implement as documented.
	Quota Code = "quota"
	// Changed is a header that the route changes before the end-of-stream descriptor is built from it.
	Changed Code = "changed"
	// Version is a field that is unknown to the Envoy that wrote a dump.
	Version Code = "version"
	// Allow is an acknowledgement that matches no warning.
	Allow Code = "allow"
	// ChangeMe is a placeholder of a snippet that was not filled in.
	ChangeMe Code = "change-me"
	// Unknown is something that the given files do not determine.
	Unknown Code = "unknown"
)

// acknowledgeable are the codes of warnings that a comment can acknowledge.
var acknowledgeable = []string{
	string(Unmatched), string(Unsent), string(NoEffect), string(NeverDenies), string(ClientHits), string(ChargedTwice), string(SameAddress), string(QueryInKey), string(Timeout), string(Cluster), string(UncountedHits), string(StreamedCost), string(Denial), string(Soft), string(Leases), string(Quota), string(Version),
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
