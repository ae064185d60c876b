package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestPageShowsEveryPart renders a state with all optional parts, since a template finds the fields
// that it names at run time only.
func TestPageShowsEveryPart(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	got, err := admin.RenderPage(&live.State{
		Time: at, Counters: "store", ShadowMode: true, TopKeys: live.Hashed,
		Conditions: []telemetry.Condition{{Code: telemetry.RulesRejected, Since: at, Text: "a condition", Remedy: "a remedy", Docs: "docs/a.md", Lines: []string{"a line"}}},
		Domains: []live.DomainState{{
			Domain:     "shop",
			DeniedKeys: []live.Key{{Hash: "cafe", Rule: "user", Limit: "5/hour", PenaltyUntil: &at}},
			Unmatched:  []live.Unmatched{{Why: "a reason", Seen: 3, Last: at}},
		}},
		UnknownDomains: []live.UnknownDomain{{Domain: "shpo", PerSecond: 1, Meant: "shop"}, {Domain: "past", Descriptors: 7}},
		Quota: &live.Quota{Streams: 1, Buckets: 2, Largest: []live.QuotaBucket{{
			Domain: "shop", Rule: "api", Limit: "100/second", Hash: "beef", LimitRate: 100, Assigned: 98.5, DemandRate: 130, Unconfirmed: 3,
			Lost: 20, LostUntil: &at, LearningUntil: &at, Holders: 1, Shares: []live.QuotaShare{{Stream: 2, Share: 60, Demand: 90}},
		}}},
		Events: []telemetry.Event{{Time: at, Text: "an event", Code: "a_code", Ends: true, Count: 2, Lines: []string{"another line"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rates and keys are those seen by this replica", "shadow mode: every request is allowed", "a condition", "a remedy (docs/a.md)", "a line",
		"penalty until", "a reason", "did you mean <code>shop</code>?", "none now, 7 before", ">98.5<", "stream 2</span> 60.0 of 90.0",
		"3.0 not confirmed", "lost until", "learning until", "the 1 with the largest demand, of 2", "an event ends <code>a_code</code>", "(2 times)", "another line",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}
