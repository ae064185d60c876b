package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Version is the version of [State]. It stays the same when fields are added; existing fields never
// change or disappear.
const Version = 1

// Bounds on the recorded data.
const (
	// MaxDomains is the number of domains with a sketch of their own. The others share one.
	MaxDomains = 100
	// MaxKeys is the maximum number of denied keys in the state of a domain.
	MaxKeys = 20
	// MaxUnmatched is the maximum number of recorded entries of a domain for descriptors that match
	// no rule.
	MaxUnmatched = 16
)

// State is the response of /api/v1/state.
type State struct {
	Version int `json:"version"`
	// Time is the time of the response.
	Time time.Time `json:"time"`
	// Program is the version of sluice, Host the host name, and Started the start of the process.
	Program string    `json:"program"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
	// Counters is memory or store. With a store, rates and keys are those that this replica has
	// seen.
	Counters string `json:"counters"`
	// CountsAlone is true if other replicas, should there be any, do not share the counters: they
	// are in memory, and serve --sharded is not set. Each such replica grants the complete limit.
	CountsAlone bool `json:"counts_alone"`
	// ShadowMode is true if no request is denied (serve --shadow-mode).
	ShadowMode bool `json:"shadow_mode"`
	// TopKeys is the mode in which denied keys are recorded: off, hashed, hashed-only or clear.
	// Hashes of replicas with the same HashKey are comparable.
	TopKeys string `json:"top_keys"`
	// UnmaskedUntil is the time until which keys that are denied have a Descriptor in mode hashed,
	// because of /api/v1/unmask. It is nil if they have none.
	UnmaskedUntil *time.Time `json:"unmasked_until,omitempty"`
	HashKey       string     `json:"hash_key"`
	// Config describes the active rules.
	Config Config `json:"config"`
	// Status shows whether Envoys call the service, and how it answers.
	Status Status `json:"status"`
	// Conditions contains the active conditions, the most severe first, then the newest.
	Conditions []telemetry.Condition `json:"conditions"`
	// Domains contains the domains of the rules, at most 1000, sorted by denials and then by hits
	// in descending order.
	Domains []DomainState `json:"domains"`
	// Quota is the state of the rate limit quota service, nil if no limit is divided and no Envoy
	// is connected.
	Quota *Quota `json:"quota,omitempty"`
	// UnknownDomains contains the domains of requests that have no rules, at most the first hundred
	// since the start of the process.
	UnknownDomains []UnknownDomain `json:"unknown_domains"`
	// Events contains the last log lines of level info and above, at most a hundred, the newest
	// first.
	Events []telemetry.Event `json:"events"`
}

// Config describes the active rules.
type Config struct {
	// Hash is the hash of the rules, empty without rules.
	Hash string `json:"hash"`
	// Loaded is the time of activation.
	Loaded time.Time `json:"loaded"`
	// Domains and Limits are the numbers of domains and limits.
	Domains int `json:"domains"`
	Limits  int `json:"limits"`
	// Omitted is the number of limits that the state does not contain, because of the bound or the
	// query.
	Omitted int `json:"omitted"`
}

// DomainState is the state of a domain.
type DomainState struct {
	Domain string `json:"domain"`
	// Rate is the sum of the rates of the domain's limits. A request counts for each of its limits.
	Rate
	// DeniedRequests is the rate of denied descriptors over the same period. A descriptor counts
	// once, even if several limits deny it.
	DeniedRequests float64 `json:"denied_requests_per_second"`
	// DeniedKeys contains the keys with the highest rates of denials, in descending order, at most
	// [MaxKeys].
	DeniedKeys []Key `json:"denied_keys"`
	// OmittedKeys is the number of further keys, which the query has excluded.
	OmittedKeys int `json:"omitted_keys,omitempty"`
	// Unmatched describes descriptors that match no rule, the most frequent first, at most
	// [MaxUnmatched].
	Unmatched []Unmatched `json:"unmatched"`
	// Rules contains the limits, sorted as by [CompareRules], then by their order in the rules.
	Rules []RuleState `json:"rules"`
}

// Rate contains hits per second over the last five to ten seconds: those that were charged to the
// limit, and those that it denied.
type Rate struct {
	Hits   float64 `json:"hits_per_second"`
	Denied float64 `json:"denied_per_second"`
	// Near is the rate of hits within the limit, but above NEAR_LIMIT_RATIO of the limit.
	Near float64 `json:"near_per_second"`
	// Shadow is the rate of hits beyond a limit that does not deny, because it is in shadow mode,
	// a candidate or soft.
	Shadow float64 `json:"shadow_per_second"`
}

// Add adds another rate to r.
func (r *Rate) Add(o Rate) {
	r.Hits += o.Hits
	r.Denied += o.Denied
	r.Near += o.Near
	r.Shadow += o.Shadow
}

// RuleState is the state of a limit of a rule.
type RuleState struct {
	// Rule is the path of the rule, such as `user > path=/api/*`, Limit the limit, such as
	// `60/minute`, Name its name, and At its position in the rules.
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	At    string `json:"at"`
	// Unit is the unit of the limit's hits; see [UnitOf].
	Unit string `json:"unit"`
	// Shadow is true if the limit does not deny, because it is in shadow mode or a candidate, and
	// Soft if it is soft.
	Shadow bool `json:"shadow,omitempty"`
	Soft   bool `json:"soft,omitempty"`
	Rate
	// TotalHits and TotalDenied count since the start of the process. Exceeded counts hits that
	// were admitted while the store was unavailable and exceeded the limit.
	TotalHits   uint64 `json:"hits"`
	TotalDenied uint64 `json:"denied"`
	Exceeded    uint64 `json:"exceeded,omitempty"`
	// Line is nil if there was no hit in the last five minutes.
	Line *Line `json:"line,omitempty"`
}

// Line contains the hits of the last five minutes.
type Line struct {
	// Seconds is the length of each point.
	Seconds int `json:"seconds"`
	// Hits and Denied contain the hits of each point, the oldest first.
	Hits   []uint32 `json:"hits"`
	Denied []uint32 `json:"denied"`
}

// Key is a counter that denies requests: a limit and the values of a client.
type Key struct {
	// Hash identifies the counter; see [Recorder.Hash].
	Hash string `json:"hash"`
	// Descriptor is the client's descriptor, such as user=alice, cut at 128 bytes. It is only set
	// with --top-keys=clear, or after /api/v1/unmask.
	Descriptor string `json:"descriptor,omitempty"`
	// Rule and Limit identify the limit that denies. Both are empty if requests contain the limit.
	Rule  string `json:"rule,omitempty"`
	Limit string `json:"limit,omitempty"`
	// Name is the limit's name, and Unit the unit of its hits; see [UnitOf].
	Name string `json:"name,omitempty"`
	Unit string `json:"unit,omitempty"`
	// OwnLimit is the number of this counter, such as `0/minute`, if it comes from a row of a table
	// or from the request, and Table the name of the table. Limit is then the limit of the rule.
	OwnLimit string `json:"own_limit,omitempty"`
	Table    string `json:"table,omitempty"`
	// Permits is the number of permits of a concurrency limit, 0 for other limits. InFlight is the
	// number of permits that requests hold now. It is nil for other limits, and if the counters are
	// in a store.
	Permits  uint64  `json:"permits,omitempty"`
	InFlight *uint64 `json:"in_flight,omitempty"`
	// PerSecond is the rate of denied descriptors over the last five to ten seconds.
	PerSecond float64 `json:"denied_per_second"`
	// Share is the key's share of the domain's denials in that time.
	Share float64 `json:"share"`
	// Denied is the number of denied requests. Since is the time of the first one, Last that of the
	// last one. A key is removed a minute after Last.
	Denied uint64    `json:"denied"`
	Since  time.Time `json:"since"`
	Last   time.Time `json:"last"`
	// PenaltyUntil is the end of the key's penalty, rounded to a second. It is nil without a
	// penalty.
	PenaltyUntil *time.Time `json:"penalty_until,omitempty"`

	charge *limiter.Charge
}

// Charge returns a charge of the key's counter, or nil if the key was not made by a [Recorder] of
// this process.
func (k *Key) Charge() *limiter.Charge { return k.charge }

// UnitOf returns the unit of the hits of a limit: `permits` of a concurrency limit, `tokens` if the
// limit's name contains the word token, `hits` of other limits with reserve, whose costs are known
// at the end of requests, and otherwise `requests`.
func UnitOf(l *descriptors.Limit) string {
	switch {
	case l.Policy.Algorithm == limiter.Concurrency:
		return "permits"
	case strings.Contains(strings.ToLower(l.Name), "token"):
		return "tokens"
	case l.Policy.Reserve != nil:
		return "hits"
	default:
		return "requests"
	}
}

// Unmatched describes descriptors that stop matching the rules at the same entry.
type Unmatched struct {
	// Key is the key of the first entry that does not match, cut at 64 bytes. Entry is the number
	// of that entry, from 1. Both are empty if all entries match, but the last matching rule has no
	// limit.
	Key   string `json:"key,omitempty"`
	Entry int    `json:"entry,omitempty"`
	// Below is the path of the last rule that matched.
	Below string `json:"below,omitempty"`
	// Why is an explanation with the nearest rules, and Meant the key that was probably intended.
	Why   string `json:"why"`
	Meant string `json:"meant,omitempty"`
	// Seen is the number of such descriptors among those examined, at most 64 per second.
	Seen  uint64    `json:"seen"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
}

// UnknownDomain is a domain of requests that has no rules.
type UnknownDomain struct {
	Domain string `json:"domain"`
	// Descriptors is the number of descriptors since the start.
	Descriptors uint64 `json:"descriptors"`
	// PerSecond is their rate over the last five to ten seconds.
	PerSecond float64 `json:"descriptors_per_second"`
	// Meant is the domain that was probably intended.
	Meant string `json:"meant,omitempty"`
}

func seconds(s uint32) time.Time { return time.Unix(int64(s), 0).UTC() }

// The values of [Status.Store].
const (
	StoreNone        = "none" // counters are in memory
	StoreAvailable   = "available"
	StoreUnavailable = "unavailable"
)

// Status shows whether Envoys call the service, and how it answers. Its rates cover the last five
// to ten seconds.
type Status struct {
	// Calls is the rate of calls of ShouldRateLimit, including /json. Denied is the rate of calls
	// answered OVER_LIMIT, and Errors that of calls answered with an error. Calls that the client
	// canceled are not errors.
	Calls  float64 `json:"calls_per_second"`
	Denied float64 `json:"denied_per_second"`
	Errors float64 `json:"errors_per_second"`
	// Connections is the number of open gRPC connections.
	Connections int `json:"connections"`
	// P99 is the 99th percentile of the time from reading a call to writing its response, nil
	// without calls. It is interpolated within a bucket of the histogram of response times. With
	// several replicas it is the highest of their percentiles.
	P99 *float64 `json:"p99_seconds"`
	// Counters is the number of live counters, and MaxCounters the number that fits into
	// --counter-memory if they have the same sizes as the live ones. Both may be five seconds old.
	Counters    int64 `json:"counters_used"`
	MaxCounters int64 `json:"counters_max"`
	// Store is none, available or unavailable.
	Store string `json:"store"`
}

// add adds the status of another replica.
func (s *Status) add(o *Status) {
	s.Calls += o.Calls
	s.Denied += o.Denied
	s.Errors += o.Errors
	s.Connections += o.Connections
	if s.P99 == nil || o.P99 != nil && *o.P99 > *s.P99 {
		s.P99 = o.P99
	}
	s.Counters += o.Counters
	s.MaxCounters += o.MaxCounters
	if s.Store != StoreUnavailable && o.Store != StoreNone {
		s.Store = o.Store
	}
}

// The lists of a state are sorted by severity in descending order.

// CompareRates compares by denials, then by hits.
func CompareRates(a, b Rate) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Hits, a.Hits))
}

// CompareRules compares limits of requests before those of another unit, because their rates are
// not comparable, and then as [CompareRates].
func CompareRules(a, b RuleState) int {
	rank := func(r RuleState) int { return strings.Index("requests permits tokens hits", r.Unit) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), CompareRates(a.Rate, b.Rate))
}

// CompareKeys compares by rate of denials, then by total denials.
func CompareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Hash, b.Hash))
}

// SortUnknown sorts domains by their descriptors in descending order.
func SortUnknown(all []UnknownDomain) {
	slices.SortFunc(all, func(a, b UnknownDomain) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Descriptors, a.Descriptors),
			cmp.Compare(a.Domain, b.Domain))
	})
}
