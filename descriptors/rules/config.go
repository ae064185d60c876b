package rules

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Config contains the rules of one domain from one YAML document or xDS resource, before they are
// compiled. If [descriptors.Options.MergeDomains] is set, several Configs may have the same domain.
type Config struct {
	Pos         Pos
	Domain      string
	Descriptors []Descriptor
	// AllOrNothing is the field all_or_nothing, nil if it is absent.
	AllOrNothing *bool
	// MaxCounters is the field max_counters: the number of counters of each size that are reserved
	// for the domain, or 0. If Configs of a domain differ, the smallest applies.
	MaxCounters int64
	// Denied is the field denied_response, nil if it is absent.
	Denied *DeniedResponse
	// Exempt is the field exempt. Its items have Pos, Key, and Value or Set. If several Configs have
	// the domain, the items of all apply.
	Exempt []Descriptor
	// Allowances are the warnings that the file acknowledges, or nil.
	Allowances Allowances `json:"-"`
}

// Descriptor is a node of a domain's tree.
type Descriptor struct {
	Pos Pos
	// Key is not empty in a valid tree. An empty Value matches any value.
	Key, Value string
	// Set selects the values to match if Value is empty, or is nil.
	Set *ValueSet
	// ShadowMode and DetailedMetric are nil if the field is absent, so that defaults can set it. An
	// xDS message cannot express false.
	ShadowMode, DetailedMetric *bool
	QuotaMode                  bool
	ValueToMetric              bool
	ShareThreshold             bool
	// FirstWithRoom is the field charge: first_with_room.
	FirstWithRoom bool
	// Metadata is nil or a tree of map[string]any, []any, string, float64, bool and nil, as in
	// google.protobuf.Struct.
	Metadata map[string]any
	// Denied is the field denied_response, nil if it is absent.
	Denied *DeniedResponse
	// RateLimits is empty for a node without a limit, and has one element for rate_limit, or those
	// of rate_limits.
	RateLimits []Limit
	// List is true if the source has rate_limits.
	List        bool
	Descriptors []Descriptor
}

// Level returns the descriptor's key and value, or the text of its set of values.
func (d *Descriptor) Level() Level {
	if d.Set != nil {
		return Level{d.Key, d.Set.Text()}
	}
	return Level{d.Key, d.Value}
}

// Limit is one rate_limit block.
type Limit struct {
	DefaultFields

	Pos             Pos
	Unlimited       bool
	RequestsPerUnit uint32
	// Unit is 0 only if Unlimited is set.
	Unit Unit
	// UnitMultiplier is at least 1.
	UnitMultiplier uint32
	Name           string
	Replaces       []string
	// Reserve, Penalty and Quota are nil if the field is absent.
	Reserve *Reserve
	Penalty []time.Duration
	Quota   *Quota
	// Counter is the field counter: the name of a counter that limits of the domain share, or empty.
	Counter string
	// Shadow marks a candidate: a limit in a list that is counted but never denies.
	Shadow bool
}

// DefaultFields are the fields of a limit that [Defaults] can set, in addition to unit_multiplier,
// reserve, penalty and name.
type DefaultFields struct {
	// Algorithm is 0 if the field is absent, which means a fixed window.
	Algorithm limiter.Algorithm
	// The next fields belong to one algorithm each, and are errors with others. They are nil if
	// absent.

	SubWindows *uint32        // sliding_window: 1..60, default 10
	Burst      *uint32        // token_bucket: at least 1, default RequestsPerUnit
	Slack      *uint32        // leaky_bucket: default 10
	MaxWait    *time.Duration // leaky_bucket: 0..60s, default 0
	MaxWaiting *uint32        // leaky_bucket: default 100
	// CountRefused is nil if the field is absent.
	CountRefused *bool
	// NoBlocks is the field blocks: true for off, false for auto, nil if it is absent.
	NoBlocks *bool
	// Calendar is nil, Timezone empty and AnchorDay 0 if the field is absent. See calendar.go.
	Calendar  *bool
	Timezone  string
	AnchorDay uint32
	// Hidden is nil if the field is absent.
	Hidden *bool
	// Soft is nil if the field is absent, and NotifyAt zero; see soft.go.
	Soft     *bool
	NotifyAt Shares
	// Table is the name of the table whose rows replace the limit's numbers, or empty.
	Table string
}

// Pos is a place in a source. The zero value is unknown.
type Pos struct {
	File      string
	Line, Col int // from 1
}

// Unit is the time unit of a limit. The numbers are those of
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

// String returns file:line:col, without unknown parts.
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
