package report

import (
	"time"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// Report is what a simulation found.
//
// As JSON it is stable: [Schema] describes it, and a program that reads version 1 can read all
// that says it. Fields may be added.
type Report struct {
	// Version is that of the JSON: 1.
	Version int `json:"version"`
	// Logs are those that were read, as people call them.
	Logs []string `json:"logs"`
	// Lines counts the lines of the logs, empty ones left out, and Requests those of them
	// that led to a decision.
	Lines    int    `json:"lines"`
	Requests uint64 `json:"requests"`
	// WithoutDescriptor counts lines that lead to no descriptor, so that nothing is asked about them.
	WithoutDescriptor int `json:"without_descriptor"`
	// OutsideRange counts the lines of another time than was wanted.
	OutsideRange int `json:"outside_time_range,omitempty"`
	// NoRequest counts the lines about connections and other messages of the server. They are left out.
	NoRequest int `json:"without_request,omitempty"`
	// Bad counts the lines that could not be read, and Late those that came too late to be
	// put into order. Both are left out.
	Bad      int                 `json:"unreadable"`
	Late     int                 `json:"late"`
	FirstBad []accesslog.BadLine `json:"first_unreadable"`
	// OtherDomain counts the calls to other domains than the one that is looked at, and
	// Strange those to domains without rules.
	OtherDomain   int       `json:"other_domain,omitempty"`
	UnknownDomain uint64    `json:"domain_without_rules,omitempty"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	// Source says where descriptors come from.
	Source   string    `json:"source"`
	Computed int       `json:"descriptors_computed"`
	Unknown  []Unknown `json:"descriptors_unknown"`
	Replicas int       `json:"replicas"`
	// Recommend is the share in percent for which numbers are recommended; 0 if none are.
	Recommend float64 `json:"recommended_for_percent,omitempty"`

	// Recorded is what the log says; nil where it says nothing.
	Recorded *Recorded `json:"recorded,omitempty"`
	// StatusHint explains how to name the field with the status; empty where it is known.
	StatusHint string  `json:"-"`
	Rules      Outcome `json:"rules"`
	// Against are what other rules make of the same requests.
	Against []Comparison `json:"against,omitempty"`
	// Divided is what Envoys that divide limits make of them; nil if that is not wanted.
	Divided *Division `json:"divided,omitempty"`
}

// Recorded compares with what the log says.
type Recorded struct {
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	Agree    uint64 `json:"agree"`
}

// Outcome is what one set of rules makes of the requests.
type Outcome struct {
	// Name is how people call the rules.
	Name   string  `json:"name"`
	Denied uint64  `json:"denied"`
	Keys   int     `json:"keys"`
	Limits []Limit `json:"limits"`
	// Unused counts the limits that no request asked for.
	Unused int `json:"limits_without_hits"`
	// BinSeconds is how long a bin of the timelines is; they begin at BinStart.
	BinSeconds int64     `json:"bin_seconds"`
	BinStart   time.Time `json:"bin_start"`
}

// Comparison is what other rules make of the same requests.
type Comparison struct {
	Outcome

	// More counts the requests that only these rules deny, and Fewer those that they alone
	// admit.
	More  uint64 `json:"more_denied"`
	Fewer uint64 `json:"fewer_denied"`
	// Keys are those that the most of these requests are denied for.
	MostDenied []Key `json:"most_denied_keys"`
	// MoreKeys counts the keys over limit beyond those of the first rules.
	MoreKeys int `json:"more_keys_over"`
}

// Division is what Envoys make of the requests that divide the limits of rules with quota, compared with
// one counter.
type Division struct {
	Comparison

	Envoys int `json:"envoys"`
	// WithoutShare counts the requests that passed while their bucket had no share.
	WithoutShare uint64 `json:"without_share"`
	// Divided has each limit that is divided and has had a request.
	Divided []Divided `json:"divided_limits"`
}

// Divided is how many requests of a limit pass.
type Divided struct {
	Rule     string `json:"rule"`
	Name     string `json:"name,omitempty"`
	Limit    string `json:"limit"`
	Place    string `json:"place,omitempty"`
	Requests uint64 `json:"requests"`
	// Counter is how many one exact counter admits, Envoys how many the Envoys do.
	Counter uint64 `json:"one_counter_admits"`
	Envoys  uint64 `json:"envoys_admit"`
}

// Limit is what became of one limit.
type Limit struct {
	Rule     string `json:"rule"`
	Name     string `json:"name,omitempty"`
	Limit    string `json:"limit"`
	Place    string `json:"place,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	Hits     uint64 `json:"hits"`
	Over     uint64 `json:"over"`
	Keys     int    `json:"keys"`
	KeysOver int    `json:"keys_over"`
	// Used are quantiles of what a key asked for in a window, as a share of the limit.
	Used Used `json:"used_of_limit"`
	// Use counts windows by what was asked for in them.
	Use []Use `json:"use"`
	// Worst is the minute with the greatest share over limit; nil where nothing was.
	Worst *Minute `json:"worst_minute,omitempty"`
	// Hits and hits over limit by time.
	Timeline []Bin `json:"timeline"`
	// Largest are the keys with the most hits, and MostOver those with the most hits over the
	// limit.
	Largest  []Key `json:"largest_keys"`
	MostOver []Key `json:"most_over"`
	// Recommended is nil unless it was asked for.
	Recommended *Recommendation `json:"recommended,omitempty"`
}

// Used are quantiles.
type Used struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Minute is a minute of a limit.
type Minute struct {
	At   time.Time `json:"at"`
	Hits uint64    `json:"hits"`
	Over uint64    `json:"over"`
}

// Bin is a while of a limit.
type Bin struct {
	Hits uint64 `json:"hits"`
	Over uint64 `json:"over"`
}

// Key is a counter.
type Key struct {
	Name string  `json:"key"`
	Hits uint64  `json:"hits"`
	Over uint64  `json:"over"`
	Peak float64 `json:"peak_of_limit"`
	More uint32  `json:"more_denied,omitempty"`
}

// Unknown is why descriptors cannot be computed.
type Unknown struct {
	Count  int    `json:"count"`
	Reason string `json:"reason"`
}

// Recommendation is the smallest number of a limit that has room for a share of its hits.
type Recommendation struct {
	// Limit is the limit with that number; empty if there is none.
	Limit string `json:"limit,omitempty"`
	// RequestsPerUnit is the number.
	RequestsPerUnit uint32 `json:"requests_per_unit,omitempty"`
	// Hits and Over are what a run with it found.
	Hits uint64 `json:"hits,omitempty"`
	Over uint64 `json:"over,omitempty"`
	// Reason says why there is none.
	Reason string `json:"reason,omitempty"`
}

// Use is in how many windows of its keys a limit was used so much.
type Use struct {
	// From and UpTo are shares of the limit: more than From, up to UpTo. The last has no
	// end, and UpTo 0.
	From    float64 `json:"more_than"`
	UpTo    float64 `json:"up_to,omitempty"`
	Windows uint64  `json:"windows"`
}
