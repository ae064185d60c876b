package admin

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// Usage is the state of the limits that apply to an end client, without hidden limits and those in
// shadow mode. The listener of /json serves it as JSON; see docs/usage.md.
type Usage struct {
	Limits []LimitUsage `json:"limits"`
}

// LimitUsage is the state of a limit.
type LimitUsage struct {
	Name string `json:"name,omitempty"`
	// Limit is the number of requests_per_unit, and Window the window, such as day or 10minute. A
	// concurrency limit has no window.
	Limit  uint32 `json:"limit"`
	Window string `json:"window,omitempty"`
	// Burst is the number of hits that a bucket admits at once.
	Burst uint64 `json:"burst,omitempty"`
	// Used, Remaining, ResetsIn and ResetsAt are those of [CounterState], in whole seconds.
	Used      uint64     `json:"used"`
	Remaining uint64     `json:"remaining"`
	ResetsIn  uint64     `json:"resets_in_seconds"`
	ResetsAt  *time.Time `json:"resets_at,omitempty"`
	// Soft is true if the limit never denies.
	Soft bool `json:"soft"`
	// Held is the number of permits or reserved hits of running requests, which Used includes. It is
	// nil if the limit grants no leases.
	Held *uint64 `json:"held,omitempty"`
}

// errUnknownDomain is the error for a domain that has no rules.
var errUnknownDomain = errors.New("no rules for this domain")

// IsUnknownDomain reports whether [API.Usage] returned err because the domain has no rules.
func IsUnknownDomain(err error) bool { return errors.Is(err, errUnknownDomain) }

// Usage reads the counters of the descriptors of a request. It neither changes nor creates counters.
func (a *API) Usage(domain string, all []descriptors.Descriptor) (*Usage, error) {
	active, err := a.service.Active()
	if err != nil {
		return nil, err
	}
	lookup := active.Lookup(domain, all...)
	if !lookup.Plan.KnownDomain {
		return nil, errUnknownDomain
	}
	unreserved := lookup.ReadUnreserved()
	now, _ := a.clock.Now()
	if err := lookup.Decide(now); err != nil {
		return nil, err
	}
	usage := &Usage{Limits: []LimitUsage{}}
	for i, charged := range unreserved {
		l := lookup.Plan.Limits[i]
		if l.Hidden || l.InShadow() {
			continue
		}
		c := a.counterState(now, active, lookup, i)
		u := LimitUsage{
			Name: l.Name, Limit: l.RequestsPerUnit, Used: c.Used, Remaining: c.Remaining,
			ResetsIn: uint64(math.Ceil(c.ResetsIn)), Soft: l.Soft,
		}
		if c.ResetsAt != nil {
			u.ResetsAt = new(c.ResetsAt.Round(time.Second))
		}
		if l.HasWindow() {
			u.Window = strings.ToLower(l.Unit.String())
			if l.UnitMultiplier > 1 {
				u.Window = strconv.FormatUint(uint64(l.UnitMultiplier), 10) + u.Window
			}
			if c.Capacity != uint64(l.RequestsPerUnit) {
				u.Burst = c.Capacity
			}
		}
		if charge := &lookup.Plan.Batch.Charges[i]; charge.Policy.UsesLeases() {
			held := c.Used
			if charged >= 0 {
				held -= min(held, lookup.Plan.Batch.Decisions[charged].Before)
			}
			u.Held = &held
		}
		usage.Limits = append(usage.Limits, u)
	}
	return usage, nil
}
