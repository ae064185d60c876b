package rules

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Config is one domain's rules as a source wrote them, before they are compiled:
// one YAML document, or one xDS resource. Several Configs of one domain merge if
// the options of descriptors.Compile say so.
type Config struct {
	Pos         Pos
	Domain      string
	Descriptors []Descriptor
	// AllOrNothing is the root word all_or_nothing, nil if the source does not have it.
	AllOrNothing *bool
	// MaxCounters is the root word max_counters: how many counters of each size are
	// reserved for the domain. 0 reserves none. Of several Configs of one domain the
	// smallest holds.
	MaxCounters int64
	// Allowances are the warnings that the file of the document acknowledges. Nil for none.
	Allowances Allowances `json:"-"`
}

// Descriptor is one node of a domain's tree.
type Descriptor struct {
	Pos Pos
	// Key is never empty in a valid tree; Value "" stands for any value.
	Key, Value     string
	ShadowMode     bool
	QuotaMode      bool
	DetailedMetric bool
	ValueToMetric  bool
	ShareThreshold bool
	// Metadata is nil or a tree of map[string]any, []any, string, float64, bool
	// and nil, as google.protobuf.Struct has them.
	Metadata map[string]any
	// RateLimits is empty where the node has no limit, one element for
	// rate_limit, and all blocks for rate_limits.
	RateLimits []Limit
	// List says that RateLimits was written as a rate_limits list.
	List        bool
	Descriptors []Descriptor
}

// Limit is one rate_limit block.
type Limit struct {
	Words

	Pos             Pos
	Unlimited       bool
	RequestsPerUnit uint32
	// Unit is 0 only where Unlimited is set.
	Unit Unit
	// UnitMultiplier is at least 1.
	UnitMultiplier uint32
	Name           string
	Replaces       []string
	// Reserve is nil if the source does not have the word.
	Reserve *Reserve
	// Penalty has the steps of the word penalty, nil if the source does not have it.
	Penalty []time.Duration
	// Quota is nil if the source does not have the word.
	Quota *Quota
	// Shadow says that the limit is a candidate beside those of its list that are in force:
	// it is counted and decides nothing.
	Shadow bool
}

// Words are those of a limit that [Defaults] can give, beside the unit multiplier.
type Words struct {
	// Algorithm is 0 if the source does not have the word. It is a fixed window then.
	Algorithm limiter.Algorithm
	// The words of one algorithm each, nil if the source does not have them. Under
	// another algorithm than their own they are errors.
	SubWindows *uint32        // sliding_window: 1..60, default 10
	Burst      *uint32        // token_bucket: at least 1, default RequestsPerUnit
	Slack      *uint32        // leaky_bucket: default 10
	MaxWait    *time.Duration // leaky_bucket: 0..60s, default 0
	MaxWaiting *uint32        // leaky_bucket: default 100
	// CountRefused is nil if the source does not have the word.
	CountRefused *bool
	// Calendar is nil if the source does not have the word, Timezone is empty and AnchorDay 0. See calendar.go.
	Calendar  *bool
	Timezone  string
	AnchorDay uint32
	// Table names the table whose rows have numbers in place of the limit's. Empty for none.
	Table string
}

// Pos is a place in a source. The zero value is unknown.
type Pos struct {
	File      string
	Line, Col int // from 1
}

// Unit is the unit of time of a limit, numbered as
// envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
type Unit int32

// The units. A month has 30 days and a year 365, as in envoyproxy/ratelimit.
const (
	Second Unit = 1
	Minute Unit = 2
	Hour   Unit = 3
	Day    Unit = 4
	Month  Unit = 5
	Year   Unit = 6
	Week   Unit = 7
)

// unitSeconds are the lengths of the units.
var unitSeconds = [...]int64{
	Second: 1, Minute: 60, Hour: 3600, Day: 86400, Week: 7 * 86400, Month: 30 * 86400, Year: 365 * 86400,
}

// unitNames are the names of the units as rules spell them.
var unitNames = [...]string{
	Second: "second", Minute: "minute", Hour: "hour", Day: "day", Week: "week", Month: "month", Year: "year",
}

// Seconds returns the unit's length, or 0 if u is not a unit.
func (u Unit) Seconds() int64 {
	if u < 0 || int(u) >= len(unitSeconds) {
		return 0
	}
	return unitSeconds[u]
}

// String returns the unit's name as rules spell it, in lower case.
func (u Unit) String() string {
	if u.Seconds() == 0 {
		return "unknown"
	}
	return unitNames[u]
}

// String returns the place as file:line:col, without what is not known.
func (p Pos) String() string {
	switch {
	case p.File == "":
		return "an unknown place"
	case p.Line == 0:
		return p.File
	default:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
	}
}
