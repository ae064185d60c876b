package live

import "time"

// Version is that of [State]. A field may be added without a new one; nothing changes its meaning.
const Version = 1

// State is what /api/v1/state answers.
type State struct {
	Version int `json:"version"`
	// Time is that of the answer.
	Time time.Time `json:"time"`
	// TopKeys is what is kept of denied keys: off, hashed or clear. Hashes can be compared between replicas whose
	// HashKey is the same.
	TopKeys string `json:"top_keys"`
	HashKey string `json:"hash_key"`
	// Config is about the rules in force.
	Config Config `json:"config"`
	// Domains has each domain of the rules, the one with most denials first.
	Domains []DomainState `json:"domains"`
}

// Config is about the rules in force.
type Config struct {
	// Hash is that of the rules, empty while there are none.
	Hash string `json:"hash"`
	// Limits is how many there are.
	Limits int `json:"limits"`
}

// DomainState is one domain.
type DomainState struct {
	Domain string `json:"domain"`
	// DeniedKeys are those denied most, most denials a second first, at most [MaxKeys].
	DeniedKeys []Key `json:"denied_keys"`
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
	// PerSecond are denied requests a second, over the last five to ten seconds.
	PerSecond float64 `json:"denied_per_second"`
	// Share is the part of the domain's denials in that time.
	Share float64 `json:"share"`
	// Denied are the denied requests since Since, which is when the first was seen. Last is when the last was.
	Denied uint64    `json:"denied"`
	Since  time.Time `json:"since"`
	Last   time.Time `json:"last"`
}
