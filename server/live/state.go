package live

import (
	"time"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Version is that of [State]. Fields may be added without a new one; none changes its meaning or goes.
const Version = 1

// State is what /api/v1/state answers.
type State struct {
	Version int `json:"version"`
	// Time is that of the answer.
	Time time.Time `json:"time"`
	// Program is the version of sluice, Host the machine's name and Started when the process began.
	Program string    `json:"program"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
	// Counters says where counters are: memory, or store. With a store other replicas count there too, and rates
	// and keys are those that this one sees.
	Counters string `json:"counters"`
	// ShadowMode says that no request is denied, whatever is said here (serve --shadow-mode).
	ShadowMode bool `json:"shadow_mode"`
	// TopKeys is what is kept of denied keys: off, hashed or clear. Hashes can be compared between replicas whose
	// HashKey is the same.
	TopKeys string `json:"top_keys"`
	HashKey string `json:"hash_key"`
	// Config is about the rules in force.
	Config Config `json:"config"`
	// Wrong is what is wrong now, the newest first.
	Wrong []telemetry.Condition `json:"wrong"`
	// Domains has each domain of the rules, at most 1000: those with most denials first, then those with most hits.
	Domains []DomainState `json:"domains"`
	// Quota is what Envoys divide, nil if there is no such limit and nobody asks.
	Quota *Quota `json:"quota,omitempty"`
	// UnknownDomains are those that requests name and no rule has, the first hundred since the start.
	UnknownDomains []UnknownDomain `json:"unknown_domains"`
	// Events are the last lines of the log from level info on, at most a hundred, the newest first.
	Events []telemetry.Event `json:"events"`
}

// Config is about the rules in force.
type Config struct {
	// Hash is that of the rules, empty while there are none.
	Hash string `json:"hash"`
	// Loaded is when they were put in force.
	Loaded time.Time `json:"loaded"`
	// Domains and Limits are how many there are.
	Domains int `json:"domains"`
	Limits  int `json:"limits"`
	// Omitted is how many limits Domains has not: those least hit, or all that were not asked for.
	Omitted int `json:"omitted"`
}

// DomainState is one domain.
type DomainState struct {
	Domain string `json:"domain"`
	// Rate is the sum of those of its limits. A request counts for each of its limits.
	Rate
	// DeniedRequests are descriptors that were denied a second, over the same time. Hits are more where a request has
	// several.
	DeniedRequests float64 `json:"denied_requests_per_second"`
	// DeniedKeys are those denied most, most denials a second first, at most [MaxKeys].
	DeniedKeys []Key `json:"denied_keys"`
	// Unmatched is what requests send and no rule matches, the most frequent first, at most [MaxUnmatched].
	Unmatched []Unmatched `json:"unmatched"`
	// Rules are the limits: those that deny most first, then those with most hits, then in the order of the rules.
	Rules []RuleState `json:"rules"`
}

// Rate is hits a second, over the last five to ten seconds.
type Rate struct {
	Hits   float64 `json:"hits_per_second"`
	Denied float64 `json:"denied_per_second"`
	// Near are hits within the limit, above --near-limit-ratio of it.
	Near float64 `json:"near_per_second"`
	// Shadow are hits beyond a limit that denies none of them, because it is in shadow mode or a candidate.
	Shadow float64 `json:"shadow_per_second"`
}

// Add adds another rate.
func (r *Rate) Add(o Rate) {
	r.Hits += o.Hits
	r.Denied += o.Denied
	r.Near += o.Near
	r.Shadow += o.Shadow
}

// RuleState is one limit of a rule.
type RuleState struct {
	// Rule is the rule's path, such as `user > path=/api/*`. Limit is such as `60/minute`, Name its name, and At
	// where it stands.
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	At    string `json:"at"`
	// Shadow says that it denies nothing: it is in shadow mode, or a candidate.
	Shadow bool `json:"shadow,omitempty"`
	Rate
	// TotalHits and TotalDenied are since the start of the process. Exceeded are hits that were admitted while the
	// store was away and turned out to be beyond the limit.
	TotalHits   uint64 `json:"hits"`
	TotalDenied uint64 `json:"denied"`
	Exceeded    uint64 `json:"exceeded,omitempty"`
	// Line is absent if there was no hit in the last five minutes.
	Line *Line `json:"line,omitempty"`
}

// Line is the last five minutes.
type Line struct {
	// Seconds is how long each point is.
	Seconds int `json:"seconds"`
	// Hits and Denied are hits in each, the oldest first.
	Hits   []uint32 `json:"hits"`
	Denied []uint32 `json:"denied"`
}

// Key is a counter that denies: a limit, and the values of one client.
type Key struct {
	// Hash stands for the counter.
	Hash string `json:"hash"`
	// Descriptor is what the client sent, such as user=alice, cut at 128 bytes. It is there with --top-keys=clear.
	Descriptor string `json:"descriptor,omitempty"`
	// Rule and Limit say which limit denies. Both are empty if it is one that requests carry.
	Rule  string `json:"rule,omitempty"`
	Limit string `json:"limit,omitempty"`
	// Name is the limit's name.
	Name string `json:"name,omitempty"`
	// PerSecond are denied descriptors a second, over the last five to ten seconds.
	PerSecond float64 `json:"denied_per_second"`
	// Share is the part of the domain's denials in that time.
	Share float64 `json:"share"`
	// Denied are the denied requests since Since, which is when the first was seen. Last is when the last was. A key
	// is forgotten a minute after it.
	Denied uint64    `json:"denied"`
	Since  time.Time `json:"since"`
	Last   time.Time `json:"last"`
	// PenaltyUntil is there if the key is under a penalty: when it may pass again, to a second.
	PenaltyUntil *time.Time `json:"penalty_until,omitempty"`
}

// Unmatched is where descriptors end without a limit.
type Unmatched struct {
	// Key is that of the first entry that leads nowhere, cut at 64 bytes, and Entry its number from 1. Both are empty
	// if the rules go on below the descriptor's last entry.
	Key   string `json:"key,omitempty"`
	Entry int    `json:"entry,omitempty"`
	// Below is the last descriptor of the rules that is reached.
	Below string `json:"below,omitempty"`
	// Why says it in a sentence with the nearest rules, and Meant is the key that was likely meant.
	Why   string `json:"why"`
	Meant string `json:"meant,omitempty"`
	// Seen is how often, of at most 64 descriptors a second.
	Seen  uint64    `json:"seen"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
}

// UnknownDomain is a domain that requests name and no rule has.
type UnknownDomain struct {
	Domain string `json:"domain"`
	// Descriptors is how many since the start.
	Descriptors uint64 `json:"descriptors"`
	// PerSecond is how many a second, over the last five to ten seconds.
	PerSecond float64 `json:"descriptors_per_second"`
	// Meant is the domain that was likely meant.
	Meant string `json:"meant,omitempty"`
}
