package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Options say how configurations compile.
type Options struct {
	// MergeDomains lets several Configs name one domain; else that is an error.
	MergeDomains bool
	// AllOrNothing sets all_or_nothing for every domain.
	AllOrNothing bool
	// CalendarMonths has limits of unit month without the word calendar go by the calendar in UTC, those that requests carry
	// too. Only windows that can do so do.
	CalendarMonths bool
	// Defaults are words for rules that come without; nil for none.
	Defaults *rules.Defaults
	// HashKey keys the counters' identities.
	HashKey identity.Key
	// Tables are those that limits may name; nil for none.
	Tables *tables.Registry
	// TablesLater has the compiler take tables of any columns, which the caller is to hold against [Set.TablesFit].
	TablesLater bool
	// RatelimitNames has the compiler decide which rules' counters get envoyproxy/ratelimit's names: see
	// [NewRatelimitNamer].
	RatelimitNames bool

	// usesUp empties each descriptor of a source once it is compiled, so that the two
	// trees are never both whole in memory.
	usesUp bool
}

// Set is a compiled, immutable set of rules. Any number of goroutines may use it.
type Set struct {
	// Limits are all configured limits; each Limit's Index is its place here.
	Limits []*Limit
	// Hash is 16 hexadecimal digits for operators to compare. The same rules with the
	// same defaults have the same hash, wherever they come from. [Options] are not part
	// of it.
	Hash string

	divides bool
	domains map[string]*domain
	// names are the domains' names, sorted.
	names []string
	// allowances are the warnings that the files acknowledge.
	allowances rules.Allowances
	// mistakable are the rules whose counters could have envoyproxy/ratelimit's names, if that of
	// another rule could not be the same. Nil unless [Options.RatelimitNames] was set.
	mistakable map[*Rule]*Rule
	// tables are those that limits name, each once.
	tables []*tables.Table
	used   bool // see Used
	// inherited is what the sets before this one have left to it.
	inherited inheritance
}

// Domains returns the names of all domains, sorted. It must not be changed.
func (s *Set) Domains() []string { return s.names }

// Allows reports whether a comment in the rules acknowledges a warning on one of their lines.
// Only one goroutine may ask.
func (s *Set) Allows(code rules.Code, pos rules.Pos) bool { return s.allowances.Allow(code, pos) }

// MaxCounters returns how many counters of each size are reserved for the domain, or 0 if
// its counters share memory with other domains. A domain that is not configured has 0.
func (s *Set) MaxCounters(domain string) int64 {
	if d := s.domains[domain]; d != nil {
		return d.maxCounters
	}
	return 0
}

// Empty reports whether no domain is configured.
func (s *Set) Empty() bool { return len(s.names) == 0 }

// Rule is a node of the tree that limits, or that is unlimited. There may be hundreds of
// thousands of them. So it keeps neither what its node tells nor what few rules have.
type Rule struct {
	// Limits has one element, or all of a rate_limits list that are in force. An unlimited
	// rule has one, which is never charged and carries name and metrics.
	Limits    []*Limit
	Unlimited bool
	Shadow    bool
	Quota     bool
	// RuntimeMetric says that the metric key holds values of the request
	// (detailed_metric, value_to_metric): see [Rule.AppendMetricKey].
	RuntimeMetric bool

	// replaceable says that some limit's name has an id.
	replaceable bool
	// detailedMetric is the field detailed_metric.
	detailedMetric bool
	// ratelimitName says that the counters have envoyproxy/ratelimit's names.
	ratelimitName bool
	// mode is that of the rule's charges unless quota mode is global.
	mode limiter.Mode

	domain *domain
	node   *node
	// identity makes the identities of the rule's counters.
	identity ruleIdentity
	// rare is nil for rules that have nothing of it.
	rare *rareWords
}

// rareWords is what few rules have.
type rareWords struct {
	metadata map[string]any
	// shared is nil, or parallel to the levels: the pattern that identities have
	// in place of the value at share_threshold levels, nil at others.
	shared [][]byte
	// candidates are the limits of the list that are not in force.
	candidates []*Limit
	// replaces are the ids of all names that the rule's limits replace, and replacedNames the names.
	replaces      []int32
	replacedNames []string
	// leases is true if some limit, or candidate, gives leases, or if a rule with these keys did in any set before:
	// see [Set.Inherit].
	leases bool
	// quota is that of the rule's limit, nil if it is not divided among Envoys.
	quota *rules.Quota
	// runtime says which levels of the metric key have values of the request. It is
	// set where RuntimeMetric is.
	runtime []bool
}

// Domain is the name of the rule's domain.
func (r *Rule) Domain() string { return r.domain.name }

// DomainIndex is the place of the rule's domain in [Set.Domains].
func (r *Rule) DomainIndex() int { return r.domain.index }

// Levels are the keys and values that lead to the rule.
func (r *Rule) Levels() []rules.Level {
	var all []rules.Level
	for _, n := range r.node.lineage() {
		all = append(all, n.level())
	}
	return all
}

// Path is the rule's place in the tree for people, such as `user > plan=free`.
func (r *Rule) Path() string { return pathText(r.node.lineage()) }

// Pos is where the descriptor stands in its source.
func (r *Rule) Pos() rules.Pos { return r.node.pos }

// Metadata is nil where the rule has none; see [rules.Descriptor.Metadata].
func (r *Rule) Metadata() map[string]any { return r.few().metadata }

// Candidates are the limits of the rule that are counted and decide nothing.
func (r *Rule) Candidates() []*Limit { return r.few().candidates }

// noRareWords are those of a rule without any. Nobody writes to it.
var noRareWords rareWords

// few returns the rule's rare words, which must not be changed.
func (r *Rule) few() *rareWords {
	if r.rare == nil {
		return &noRareWords
	}
	return r.rare
}

// ensureRare returns the rule's rare words to be changed, and makes them if there are none.
func (r *Rule) ensureRare() *rareWords {
	if r.rare == nil {
		r.rare = &rareWords{}
	}
	return r.rare
}

// Terms are what a limit grants. Limits of equal terms share them.
type Terms struct {
	Policy          limiter.Policy
	RequestsPerUnit uint32
	Unit            rules.Unit
	// UnitMultiplier is at least 1.
	UnitMultiplier uint32
	// Candidate says that the limit is not in force (the word shadow).
	Candidate bool

	// Row is the name of the row of a table whose numbers these are. Empty for a row without, and for a rule's own numbers.
	Row string

	// counter is what the identities of the limit's counters have besides the
	// rule's.
	counter uint64
}

// HasWindow reports whether hits count in a window, which clients are told. What a concurrency limit holds for
// that long at most is no business of theirs.
func (t *Terms) HasWindow() bool { return t.Policy.Algorithm != limiter.Concurrency }

// Limit is one limit of a rule, or an override that a request carried.
type Limit struct {
	*Terms
	Name string
	// Label tells limits of one list apart in metrics: the name, else `60/minute`
	// or `60/10minute`, and what else it takes. Empty outside lists.
	Label string
	// Rule is nil for an override.
	Rule *Rule
	// Reservation is what requests reserve, nil for nothing.
	Reservation *Reservation
	// Table is nil where no table has numbers for the limit.
	Table *TableUse
	// Pos is where the limit stands in its source.
	Pos rules.Pos
	// Defaults is the item that gave the limit its words, nil if none did.
	Defaults *rules.DefaultItem
	// Index is the limit's place in Set.Limits, or -1 for an override.
	Index int32

	// nameID is the id of Name if some limit of the domain replaces it, else 0.
	nameID int32
}

// Entry is one key and value of a descriptor in a request. Both are views of the
// request's bytes.
type Entry struct{ Key, Value []byte }

// Descriptor is one descriptor of a request.
type Descriptor struct {
	Entries []Entry
	// Hits counts only where HasHits is set; else the request's hits do.
	Hits    uint64
	HasHits bool
	// Refund says that the hits are a refund (is_negative_hits).
	Refund bool
	// Override replaces the configured limit where HasOverride is set.
	Override    Override
	HasOverride bool
}

// Override is the limit that a descriptor carries.
type Override struct {
	RequestsPerUnit uint32
	// Unit is as the client sent it and may be undefined.
	Unit int32
	// UnitMultiplier is 0 where the client sent none.
	UnitMultiplier uint32
}

// Request is a rate-limit request. Its byte slices are views of the request's
// bytes and are only valid as long as those.
type Request struct {
	Domain      []byte
	Descriptors []Descriptor
	// HitsAddend is the request's hits; 0 stands for 1.
	HitsAddend uint32
}

// Match says which rule, or limit of its own, applies to a descriptor of the request.
type Match struct {
	// Rule is the rule that matched; nil if none did or an override applies.
	Rule *Rule
	// Override is set where the descriptor's own limit applies.
	Override bool
	// IgnoredOverride is set if the descriptor's own limit is not usable, so the
	// configured one applies.
	IgnoredOverride bool
	// Replaced is set if other limits of the request replace all limits of the rule.
	Replaced bool
	// Hits are what the descriptor charges to each of its limits, or refunds.
	Hits uint64
	// Lease is what the descriptor gives back, 0 for nothing. It may be no lease of ours.
	Lease uint64
	// First and Count are the descriptor's charges in Plan.Batch.Charges. Count
	// is 0 where nothing is charged: no match, unlimited, or replaced.
	First, Count int

	// Unlimited is the limit of which a row of a table says that it is none, where therefore nothing is charged. Else nil.
	Unlimited *Limit

	// override is the limit in Plan.overrides that applies, or nil.
	override *overrideLimit
}

// Candidate is a charge of a limit that is not in force.
type Candidate struct {
	// Charge is its place in Plan.Batch.Charges, and Match that of its descriptor in
	// Plan.Matches.
	Charge, Match int
}

// overrideLimit is a limit with terms of its own.
type overrideLimit struct {
	Limit
	terms Terms
	// reserve is that of terms, whose number of reservations fits the limit.
	reserve limiter.Reserve
	rule    *Rule // the one that would apply without it, or nil
	leased  bool  // without a rule: rules with these keys gave leases, so the hits are one
}

// Plan is a request turned into charges. It is reused from request to request;
// the zero value is ready. One goroutine uses it at a time.
type Plan struct {
	// KnownDomain reports whether the request's domain is configured.
	KnownDomain bool
	// DomainName is the domain's name, or empty if it is not known.
	DomainName string
	// DomainIndex is the domain's place in [Set.Domains], or -1 if it is not known.
	DomainIndex int
	// Matches has one element per descriptor of the request, in order.
	Matches []Match
	// Limits is parallel to Batch.Charges.
	Limits []*Limit
	Batch  limiter.Batch
	// Candidates are the last charges of the batch, in their order. No match has them.
	Candidates []Candidate
	// Leases says that a rule gives leases that a descriptor of the request has come to.
	Leases bool
	// Names are parallel to Batch.Charges, if a [Namer] has named them.
	Names [][]byte

	// overrides has room for every descriptor of the request before the first is
	// appended: Limits and Charges point into it.
	overrides []overrideLimit
	// rowLimits are limits with numbers of rows, of which the request has so many.
	rowLimits []*rowLimit
	rows      int
	// replacedIn is the turn in which the name with this id was last replaced. Turns
	// differ, so nothing has to be cleared between requests.
	replacedIn []uint64
	turn       uint64
	// leaseNames counts the leases that the request takes by the names of their limits.
	leaseNames map[string]int
	// nameBytes is the memory of Names, and hashed what a name is the hash of.
	nameBytes, hashed []byte
}

// Global is what the process sets for all requests.
type Global struct {
	// Quota makes every descriptor a quota one (QUOTA_MODE).
	Quota bool
	// Look has charges change nothing: one that would reserve hits reserves none.
	Look bool
	// Rows are rows for the tables of the set, as [Set.Snapshot] returns them. Tables without rows in it have their current
	// rows; so do all tables if it is nil.
	Rows *Snapshot
}
