package answer

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestDescribedMatches decides which matches of a denied request are described. One that is over its
// limit has hits left if the request has more.
func TestDescribedMatches(t *testing.T) {
	over, within := descriptorStatus{code: codeOverLimit, remaining: 5}, descriptorStatus{code: codeOK, remaining: 1}
	hidden := over
	hidden.limit = &descriptors.Limit{Terms: &descriptors.Terms{Hidden: true}}
	quota := &descriptors.Rule{Quota: true}
	for name, c := range map[string]struct {
		statuses           []descriptorStatus
		rules              []*descriptors.Rule
		described, denying int
	}{
		"over before within":     {[]descriptorStatus{over, within}, []*descriptors.Rule{nil, nil}, 0, 0},
		"over after within":      {[]descriptorStatus{within, over}, []*descriptors.Rule{nil, nil}, 1, 1},
		"a quota is the last":    {[]descriptorStatus{over, over}, []*descriptors.Rule{nil, quota}, 0, 0},
		"a quota is the first":   {[]descriptorStatus{over, over}, []*descriptors.Rule{quota, nil}, 1, 1},
		"the first of quotas":    {[]descriptorStatus{over, over}, []*descriptors.Rule{quota, quota}, 0, 0},
		"hidden":                 {[]descriptorStatus{hidden}, []*descriptors.Rule{nil}, -1, 0},
		"hidden after within":    {[]descriptorStatus{within, hidden}, []*descriptors.Rule{nil, nil}, 0, 1},
		"hidden after over":      {[]descriptorStatus{over, hidden}, []*descriptors.Rule{nil, nil}, 0, 0},
		"hidden before a quota":  {[]descriptorStatus{hidden, over}, []*descriptors.Rule{nil, quota}, 1, 1},
		"the last of the others": {[]descriptorStatus{over, over}, []*descriptors.Rule{nil, nil}, 1, 1},
	} {
		x := &Exchange{overLimit: true}
		for i, st := range c.statuses {
			if st.limit == nil {
				st.limit = &descriptors.Limit{Terms: new(descriptors.Terms)}
			}
			st.charge = i
			x.statuses = append(x.statuses, st)
			x.plan.Matches = append(x.plan.Matches, descriptors.Match{Rule: c.rules[i], First: i, Count: 1})
			x.plan.Batch.Charges = append(x.plan.Batch.Charges, limiter.Charge{Policy: &st.limit.Policy, Hits: 7})
			denied := st.code == codeOverLimit
			x.plan.Batch.Decisions = append(x.plan.Batch.Decisions, limiter.Decision{Over: denied, Denied: denied})
		}
		if got := new(Service).summarize(x); got.described != c.described || got.denying != c.denying {
			t.Errorf("%s: described %d, denying %d; want %d and %d", name, got.described, got.denying, c.described, c.denying)
		}
	}
}

// TestQuotasOfDeniedRequest checks that a quota that passes does not make a denial by other quotas, as by
// --store-fallback deny, one without a time to wait.
func TestQuotasOfDeniedRequest(t *testing.T) {
	for name, c := range map[string]struct {
		mode   limiter.Mode
		passes bool
		wait   time.Duration
	}{
		"quotas only":       {limiter.Quota, false, time.Second},
		"a quota and limit": {limiter.Enforce, true, 2 * time.Second},
	} {
		x := &Exchange{overLimit: true}
		for i, mode := range []limiter.Mode{limiter.Quota, c.mode} {
			limit := &descriptors.Limit{Terms: new(descriptors.Terms)}
			x.statuses = append(x.statuses, descriptorStatus{code: codeOverLimit, limit: limit, charge: i})
			x.plan.Matches = append(x.plan.Matches, descriptors.Match{First: i, Count: 1})
			x.plan.Batch.Charges = append(x.plan.Batch.Charges, limiter.Charge{Policy: &limit.Policy, Hits: 1, Mode: mode})
			x.plan.Batch.Decisions = append(x.plan.Batch.Decisions, limiter.Decision{Over: true, Denied: true, Reset: time.Duration(i+1) * time.Second})
		}
		x.plan.Batch.QuotaPass = true
		if x.quotaPasses = x.findQuotaPass(); x.quotaPasses != c.passes {
			t.Errorf("%s: a quota passes is %v", name, x.quotaPasses)
		}
		if got := new(Service).summarize(x); got.wait != c.wait {
			t.Errorf("%s: wait %v, want %v", name, got.wait, c.wait)
		}
	}
}
