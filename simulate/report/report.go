package report

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// Report is the result of a simulation.
//
// Its JSON is stable and described by [Schema]. Within a version, fields are only added.
type Report struct {
	// Version is the version of the JSON: 1.
	Version int `json:"version"`
	// Logs are the names of the logs.
	Logs []string `json:"logs"`
	// Lines counts the nonempty lines of the logs, and Requests those that led to a decision.
	Lines    int    `json:"lines"`
	Requests uint64 `json:"requests"`
	// WithoutDescriptor counts the lines without a descriptor, for which Envoy would not query the
	// service.
	WithoutDescriptor int `json:"without_descriptor"`
	// OutsideRange counts the lines outside the time range.
	OutsideRange int `json:"outside_time_range,omitempty"`
	// NoRequest counts the skipped lines about connections and other messages of the server.
	NoRequest int `json:"without_request,omitempty"`
	// Bad counts the unreadable lines, and Late the requests that came too late to be sorted. Both
	// are skipped.
	Bad  int `json:"unreadable"`
	Late int `json:"late"`
	// Ahead is the line because of which the first of the Late requests came too late, or nil.
	Ahead    *AheadLine          `json:"ahead,omitempty"`
	FirstBad []accesslog.BadLine `json:"first_unreadable"`
	// OtherDomain counts the calls to unselected domains, and UnknownDomain those to domains
	// without rules.
	OtherDomain   int    `json:"other_domain,omitempty"`
	UnknownDomain uint64 `json:"domain_without_rules,omitempty"`
	// Exempt counts the calls that the field exempt lets pass, most first.
	Exempt []Exempt  `json:"exempt,omitempty"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	// Source is the source of the descriptors.
	Source   string    `json:"source"`
	Computed int       `json:"descriptors_computed"`
	Unknown  []Unknown `json:"descriptors_unknown"`
	// Recommend is the percentage of hits that recommended limits admit, or 0.
	Recommend float64 `json:"recommended_for_percent,omitempty"`

	// Recorded compares with the outcomes in the log; nil if it has none.
	Recorded *Recorded `json:"recorded,omitempty"`
	Rules    Outcome   `json:"rules"`
	// Against are the outcomes of the other rules.
	Against []Comparison `json:"against,omitempty"`
}

// AheadLine is a line with a later time than lines after it.
type AheadLine struct {
	Log string `json:"log"`
	// Line is counted from 1.
	Line int `json:"line"`
	// Seconds is how far its time is ahead of that of the first late line.
	Seconds float64 `json:"seconds"`
}

// String formats the line for messages.
func (a *AheadLine) String() string {
	by := time.Duration(a.Seconds * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s:%d is %v ahead of later lines", a.Log, a.Line, by)
}

// SetZone sets the time zone in which the text and the page show times.
func (r *Report) SetZone(zone *time.Location) {
	r.From = r.From.In(zone)
	r.To = r.To.In(zone)
	for _, o := range r.outcomes() {
		o.BinStart = o.BinStart.In(zone)
	}
}

// Recorded compares the decisions with the recorded outcomes.
type Recorded struct {
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	Agree    uint64 `json:"agree"`
}

// Outcome is the outcome of one set of rules.
type Outcome struct {
	// Name is the name of the rules.
	Name   string  `json:"name"`
	Denied uint64  `json:"denied"`
	Keys   int     `json:"keys"`
	Limits []Limit `json:"limits"`
	// Unused counts the limits without hits.
	Unused int `json:"limits_without_hits"`
	// BinSeconds is the length of a timeline's bin; the first begins at BinStart.
	BinSeconds int64     `json:"bin_seconds"`
	BinStart   time.Time `json:"bin_start"`
}

// Comparison is the outcome of other rules for the same requests.
type Comparison struct {
	Outcome

	// More counts the requests that only these rules deny, and Fewer those that only these rules
	// admit.
	More  uint64 `json:"more_denied"`
	Fewer uint64 `json:"fewer_denied"`
}

// Limit is the outcome of one limit.
type Limit struct {
	Rule     string `json:"rule"`
	Name     string `json:"name,omitempty"`
	Limit    string `json:"limit"`
	Place    string `json:"place,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	Soft     bool   `json:"soft,omitempty"`
	Hits     uint64 `json:"hits"`
	Over     uint64 `json:"over"`
	Keys     int    `json:"keys"`
	KeysOver int    `json:"keys_over"`
	// Used are quantiles of the hits of a key in a window, relative to the limit.
	Used Used `json:"used_of_limit"`
	// Timeline is the number of hits by time.
	Timeline []Bin `json:"timeline"`
	// TopKeys are the keys with the most hits over the limit, followed by those with the most hits.
	TopKeys []Key `json:"top_keys"`
	// Recommended is nil unless requested.
	Recommended *Recommendation `json:"recommended,omitempty"`
}

// Used are quantiles, relative to the limit.
type Used struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Bin is an interval of a timeline.
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
}

// Exempt counts the calls that an item of exempt lets pass. Item has its text and place.
type Exempt struct {
	Calls uint64 `json:"calls"`
	Item  string `json:"item"`
}

// Unknown counts the descriptors that could not be computed for one reason.
type Unknown struct {
	Count  int    `json:"count"`
	Reason string `json:"reason"`
}

// Recommendation is the smallest number of a limit that admits a share of its hits.
type Recommendation struct {
	// Limit is the limit with that number; empty if there is none.
	Limit           string `json:"limit,omitempty"`
	RequestsPerUnit uint32 `json:"requests_per_unit,omitempty"`
	// Hits and Over were measured with that number.
	Hits uint64 `json:"hits,omitempty"`
	Over uint64 `json:"over,omitempty"`
	// Reason explains why there is none.
	Reason string `json:"reason,omitempty"`
}
