package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Options configure Compile.
type Options struct {
	// MergeDomains lets several Configs have the same domain, which is an error otherwise.
	MergeDomains bool
	// AllOrNothing sets all_or_nothing for every domain.
	AllOrNothing bool
	// CalendarMonths applies the calendar in UTC to limits of unit month without the field
	// calendar, including overrides, if their algorithm supports it.
	CalendarMonths bool
	// Defaults are fields for rules that lack them, or nil.
	Defaults *rules.Defaults
	// HashKey is the key of the counters' identities.
	HashKey identity.Key
	// Tables are the tables that limits may name, or nil.
	Tables *tables.Registry
	// TablesLater disables the check of tables' columns; the caller must call [Set.CheckTables].
	TablesLater bool
	// RatelimitNames determines which counters can have envoyproxy/ratelimit's names: see
	// [NewRatelimitNamer].
	RatelimitNames bool

	// clearConfigs clears each descriptor of the source once it is compiled, so that the source's
	// tree and the compiled one are not in memory together.
	clearConfigs bool
}

// Set is a compiled, immutable set of rules. Any number of goroutines may use it.
type Set struct {
	Limits []*Limit
	// Hash is 16 hexadecimal digits for operators to compare. With equal [Options] the same rules
	// have the same hash, whatever their source.
	Hash string

	divides bool
	// denied is true if a rule or domain has the field denied_response.
	denied bool
	// reports is true if a limit has the field soft or notify_at, and notices if one has notify_at.
	reports, notices bool
	domains          map[string]*domain
	// names are the domains' names, sorted.
	names []string
	// allowances are the warnings that the files acknowledge.
	allowances rules.Allowances
	// ambiguous has the rules that lack envoyproxy/ratelimit's names only because another rule
	// could have the same names. It maps each of them to that other rule. It is nil unless
	// [Options.RatelimitNames] was set.
	ambiguous map[*Rule]*Rule
	// tables are the tables that limits name, each once.
	tables    []*tables.Table
	used      bool // requests may read the set
	inherited inheritance
}

// Domains returns the names of all domains, sorted. The caller must not modify it.
func (s *Set) Domains() []string { return s.names }

// Allows reports whether a comment acknowledges a warning, and marks it as used. It is not safe for
// concurrent use.
func (s *Set) Allows(code rules.Code, pos rules.Pos) bool { return s.allowances.Allow(code, pos) }

// MaxCounters returns how many counters of each size are reserved for the domain, or 0 if it shares
// memory with others or is not configured.
func (s *Set) MaxCounters(domain string) int64 {
	if d := s.domains[domain]; d != nil {
		return d.maxCounters
	}
	return 0
}

// Empty reports whether no domain is configured.
func (s *Set) Empty() bool { return len(s.names) == 0 }

// Rule is a node of the tree with limits. There may be hundreds of thousands, so rarely used fields
// are in optionalFields, and others are derived from the node.
type Rule struct {
	// Limits are the limits that can deny; there are none if all are soft. An unlimited rule has
	// one, which is never charged and has name and metrics.
	Limits    []*Limit
	Unlimited bool
	Shadow    bool
	Quota     bool
	// RuntimeMetric is true if the metric key contains values of the request (detailed_metric,
	// value_to_metric): see [Rule.AppendMetricKey].
	RuntimeMetric bool

	// choice is true if a request is charged to the first limit with room (charge: first_with_room).
	choice bool
	// replaceable is true if another limit may replace one of the rule's limits (field replaces).
	replaceable bool
	// detailedMetric is the field detailed_metric.
	detailedMetric bool
	// ratelimitName is true if the counters have envoyproxy/ratelimit's names.
	ratelimitName bool
	// mode is the mode of the rule's charges unless quota mode is global.
	mode limiter.Mode

	domain   *domain
	node     *node
	identity ruleIdentity
	// optional is nil if the rule has none of them.
	optional *optionalFields
}

// optionalFields are fields that few rules have.
type optionalFields struct {
	metadata map[string]any
	// shared is nil, or parallel to the levels: the pattern that identities contain instead of the
	// value at share_threshold levels, nil at others.
	shared     [][]byte
	candidates []*Limit
	// denied is the field denied_response, or nil.
	denied *rules.DeniedResponse
	// defaults is the item of defaults that set fields of the rule, except those of its limit, or
	// nil.
	defaults *rules.DefaultItem
	// counted is nil, or parallel to the levels: the set of values that are counted as addresses,
	// or nil.
	counted []*valueSet
	// replaces are the ids of all names that the rule's limits replace, and replacedNames the
	// names.
	replaces      []int32
	replacedNames []string
	// leases is true if a limit or candidate grants leases, or if a rule with these keys did in an
	// earlier set: see [Set.Inherit].
	leases bool
	// quota is the field quota of the rule's limit, or nil.
	quota *rules.Quota
	// runtime is parallel to the levels of the metric key: true for levels with values of the
	// request. It is set if RuntimeMetric is.
	runtime []bool
}

// Domain returns the name of the rule's domain.
func (r *Rule) Domain() string { return r.domain.name }

// DomainIndex returns the index of the rule's domain in [Set.Domains].
func (r *Rule) DomainIndex() int { return r.domain.index }

// Levels returns the keys and values that lead to the rule. The value is empty for a level with
// several values.
func (r *Rule) Levels() []rules.Level {
	var all []rules.Level
	for _, n := range r.node.lineage() {
		all = append(all, rules.Level{Key: n.key, Value: n.value})
	}
	return all
}

// SharesValues reports whether all values of a level have one counter (share_threshold).
func (r *Rule) SharesValues(level int) bool {
	shared := r.optionalOrZero().shared
	return shared != nil && shared[level] != nil
}

// Path returns the rule's path in the tree, such as `user > plan=free`.
func (r *Rule) Path() string { return pathText(r.node.lineage()) }

// Pos returns the place of the descriptor in its source.
func (r *Rule) Pos() rules.Pos { return r.node.pos }

// Metadata returns the field metadata, or nil; see [rules.Descriptor.Metadata].
func (r *Rule) Metadata() map[string]any { return r.optionalOrZero().metadata }

// Candidates returns the limits of the rule that are counted but never deny.
func (r *Rule) Candidates() []*Limit { return r.optionalOrZero().candidates }

// noOptionalFields must not be modified.
var noOptionalFields optionalFields

// optionalOrZero returns the rule's optional fields, which must not be modified.
func (r *Rule) optionalOrZero() *optionalFields {
	if r.optional == nil {
		return &noOptionalFields
	}
	return r.optional
}

// ensureOptional returns the rule's optional fields to be modified, and allocates them if
// necessary.
func (r *Rule) ensureOptional() *optionalFields {
	if r.optional == nil {
		r.optional = &optionalFields{}
	}
	return r.optional
}

// Terms are the numbers and the policy of a limit. Equal terms are shared between limits.
type Terms struct {
	Policy          limiter.Policy
	RequestsPerUnit uint32
	Unit            rules.Unit
	// UnitMultiplier is at least 1.
	UnitMultiplier uint32
	// Candidate is true if the limit is counted but never denies: it has the field shadow or soft.
	Candidate bool
	// Hidden is the field hidden: no header and no body that clients receive describes the limit.
	Hidden bool
	// Soft is the field soft, and NotifyAt the field notify_at.
	Soft     bool
	NotifyAt rules.Shares

	// Row is the name of the table row that the numbers come from. It is empty for rows without a
	// name and for the rule's own numbers.
	Row string

	// nth is the number of earlier candidates of the list whose counters would be the same.
	nth uint8
	// kind is the [rules.CounterKind] of the limit's counters, with nth.
	kind uint64
	// counter is the counter that the limit shares with others, or nil.
	counter *sharedCounter
}

// HasWindow reports whether hits count in a window that responses report. The window of a
// concurrency limit, which bounds how long requests hold a permit, is not reported to clients.
func (t *Terms) HasWindow() bool { return t.Policy.Algorithm != limiter.Concurrency }

// Limit is one limit of a rule, or an override that a request carried.
type Limit struct {
	*Terms
	Name string
	// Label distinguishes limits of a list in metrics; see labelLimits. It is empty outside lists.
	Label string
	// Rule is nil for an override.
	Rule *Rule
	// Reservation determines how many hits requests reserve, or is nil.
	Reservation *Reservation
	// Table is nil if the limit has no table.
	Table *TableUse
	// Pos is the place of the limit in its source.
	Pos rules.Pos
	// Defaults is the item that set fields of the limit, or nil.
	Defaults *rules.DefaultItem
	// Index is the limit's index in Set.Limits, or -1 for an override.
	Index int32

	// nameID is the id of Name if some limit of the domain replaces it, else 0.
	nameID int32
}

// Entry is a key and value of a descriptor in a request. They are views of the request's bytes.
type Entry struct{ Key, Value []byte }

// Descriptor is one descriptor of a request.
type Descriptor struct {
	Entries []Entry
	// Hits are the descriptor's own hits. If HasHits is false the request's hits apply.
	Hits    uint64
	HasHits bool
	// Refund is true if the hits are a refund (is_negative_hits).
	Refund bool
	// Override replaces the configured limit if HasOverride is set.
	Override    Override
	HasOverride bool
}

// Override is a limit that a descriptor of a request contains.
type Override struct {
	RequestsPerUnit uint32
	// Unit is as the client sent it and may be undefined.
	Unit int32
	// UnitMultiplier is 0 if the client sent none.
	UnitMultiplier uint32
}

// Request is a rate limit request. Its byte slices are views of the request's bytes.
type Request struct {
	Domain      []byte
	Descriptors []Descriptor
	// HitsAddend is the number of hits; 0 means 1.
	HitsAddend uint32
}

// Match is the rule or override that applies to a descriptor of the request.
type Match struct {
	// Rule is the rule that matched, or nil if none did or an override applies.
	Rule *Rule
	// Override is true if the descriptor's own limit applies.
	Override bool
	// IgnoredOverride is true if the descriptor's own limit is not usable, so that the configured
	// one applies.
	IgnoredOverride bool
	// Replaced is true if other limits of the request replace all limits of the rule.
	Replaced bool
	// Hits are the hits that the descriptor charges to, or refunds from, each of its limits.
	Hits uint64
	// Lease is the lease that the descriptor returns, or 0. The service may not know it.
	Lease uint64
	// Plan.Batch.Charges[First:First+Count] are the descriptor's charges. There are none without a
	// match, and for unlimited and replaced rules.
	First, Count int

	// Unlimited is the limit for which a row of a table is unlimited, so that nothing is charged,
	// or nil.
	Unlimited *Limit

	// override is the element of Plan.overrides that applies, or nil.
	override *overrideLimit
}

// Candidate is a charge of a limit that is counted but never denies.
type Candidate struct {
	// Charge is its index in Plan.Batch.Charges. Match is the index of its descriptor in Plan.Matches.
	Charge, Match int
}

// overrideLimit is a limit with its own terms.
type overrideLimit struct {
	Limit
	terms Terms
	// reserve is terms.Policy.Reserve, if that is set. Its number of reservations depends on the
	// limit.
	reserve limiter.Reserve
	rule    *Rule // the rule that would apply without the override, or nil
	// leased is true if no rule applies and the hits are a lease, since rules with these keys
	// granted leases before.
	leased bool
}

// Plan is a request turned into charges. Callers reuse it for further requests; the zero value is
// ready to use. It is not safe for concurrent use.
type Plan struct {
	// KnownDomain reports whether the request's domain is configured.
	KnownDomain bool
	// DomainName is the domain's name, or empty if it is not known.
	DomainName string
	// DomainIndex is the index of the domain in [Set.Domains], or -1 if it is not known.
	DomainIndex int
	// Exempt is the item of the domain's field exempt that exempts the request, or nil. Only its
	// refunds are charged.
	Exempt *Exemption
	// Matches has one element for each descriptor of the request, in order.
	Matches []Match
	// Limits is parallel to Batch.Charges.
	Limits []*Limit
	Batch  limiter.Batch
	// Candidates are the last charges of the batch, in order. They do not belong to Matches.
	Candidates []Candidate
	// Leases is true if a descriptor of the request matched a rule that grants leases.
	Leases bool
	// Choices is true if a descriptor is charged to one of several limits: see [Plan.Choose].
	Choices bool
	// Names is parallel to Batch.Charges after [Namer.Name].
	Names [][]byte

	// overrides must not be reallocated while Limits and Charges point into it.
	overrides []overrideLimit
	// rowLimits[:rows] are the limits of the request whose numbers come from rows.
	rowLimits []*rowLimit
	rows      int
	// replacedIn has the generation in which a name was last replaced, by the id of the name. Each
	// request has a generation, so the slice does not have to be cleared.
	replacedIn []uint64
	generation uint64
	// leaseNames counts the leases of the request by the names of their limits.
	leaseNames map[string]int
	// nameBytes is the memory of Names, and hashed the input of the last hash.
	nameBytes, hashed []byte
	addresses         addressReader
}

// Global are settings of the process for all requests.
type Global struct {
	// Quota puts every descriptor into quota mode (QUOTA_MODE).
	Quota bool
	// ReadOnly ignores exemptions, for callers that only read counters.
	ReadOnly bool
	// Starts makes each descriptor start a request, whose cost its hits are, for callers that settle
	// leases themselves.
	Starts bool
	// Rows are the table rows to use, from [Set.Snapshot]. Tables without rows in it use their
	// current rows, as all tables do if it is nil.
	Rows *Snapshot
}
