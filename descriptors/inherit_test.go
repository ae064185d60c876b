package descriptors

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestLeasesOfEarlierSets returns a lease several sets after the rules stopped granting leases.
func TestLeasesOfEarlierSets(t *testing.T) {
	const (
		none    = "{domain: d, descriptors: [{key: other, rate_limit: {unit: day, requests_per_unit: 100}}]}"
		gone    = "{domain: e}"
		counts  = "{domain: d, descriptors: [{key: user, rate_limit: {name: n, unit: day, requests_per_unit: 100}}]}"
		value   = "{domain: d, descriptors: [{key: user, value: al, rate_limit: {unit: day, requests_per_unit: 100}}]}"
		pattern = "{domain: d, descriptors: [{key: us*, rate_limit: {unit: day, requests_per_unit: 100}}]}"
		shares  = "{domain: d, descriptors: [{key: us*, rate_limit: {name: s, unit: minute, requests_per_unit: 1, algorithm: concurrency}}]}"
	)
	for name, test := range map[string]struct {
		first string
		sets  []string
	}{
		"another limit immediately":                 {onePermit, []string{counts}},
		"no rule and then another limit":            {onePermit, []string{none, counts}},
		"no domain and then another limit":          {onePermit, []string{gone, none, gone, counts}},
		"a rolled-back rule and then another limit": {onePermit, []string{counts, onePermit, none, onePermit, counts}},
		"a rule of one value":                       {onePermit, []string{none, value}},
		"a rule of a key pattern":                   {onePermit, []string{none, pattern}},
		"a rule of the key after a pattern":         {shares, []string{none, counts}},
		"many sets":                                 {onePermit, append(slices.Repeat([]string{none}, 50), counts)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, negative := range []bool{false, true} {
				d := newTestService(t, test.first)
				lease := d.lease()
				for _, text := range test.sets {
					d.reload(text)
				}
				d.decide(startCall())
				d.decide(hitsOf(lease, negative))
				if used := d.used(); used != 1 {
					t.Errorf("negative %v: after a returned lease %d hits are used, want 1", negative, used)
				}
			}
		})
	}
}

// TestLeaseReturnedWithOverride returns a lease in a descriptor with an override after its rule was
// removed.
func TestLeaseReturnedWithOverride(t *testing.T) {
	own := func(x Descriptor) Descriptor { return x.limit(1000, int32(rules.Hour), 1) }
	d := newTestService(t, onePermit)
	lease := d.decide(own(startCall())).Batch.Lease(0)
	if lease == 0 {
		t.Fatal("no lease")
	}
	other := own(hitsOf(lease, false))
	other.Entries = []Entry{{[]byte("bytes"), []byte("al")}}
	for range 2 {
		d.reload("{domain: d, descriptors: [{key: other, rate_limit: {unit: day, requests_per_unit: 100}}]}")
		d.decide(own(hitsOf(lease, false)))
		if p := d.decide(own(startCall())); p.Batch.Denied {
			t.Fatalf("after a lease of a removed rule was returned, %d hits are used, want 0", p.Batch.Decisions[0].Before)
		}
		if p := d.decide(other); p.Matches[0].Lease > 0 || !p.Batch.Denied {
			t.Fatal("large hits on keys without a lease-granting rule are treated as a lease")
		}
	}
}

// TestEstimatesSurviveRollback checks that a limit that is absent from two sets keeps its estimate.
func TestEstimatesSurviveRollback(t *testing.T) {
	const text = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, unit: day, requests_per_unit: 100000, reserve: {p90: true, first: 400}}}]}"
	d := newTestService(t, text)
	for range 64 {
		d.decide(hitsOf(d.lease(), false), hitsOf(100, false))
	}
	for range 2 {
		d.reload("{domain: d, descriptors: [{key: other, rate_limit: {unit: day, requests_per_unit: 100}}]}")
	}
	d.reload(text)
	if got := d.decide(startCall()).Batch.Decisions[0].Charged; got != 100 {
		t.Errorf("after 64 requests of 100 hits and a rollback, the next request reserves %d", got)
	}
}

// TestInheritanceIsBounded loads many sets that each grant leases for other keys.
func TestInheritanceIsBounded(t *testing.T) {
	const atOnce = 1000
	var set *Set
	for n := range maxInherited/atOnce + 3 {
		var text strings.Builder
		text.WriteString("domain: d\ndescriptors:\n")
		for i := range atOnce {
			fmt.Fprintf(&text, "- {key: %d-%d, rate_limit: {name: n%[2]d, unit: minute, requests_per_unit: 1, algorithm: concurrency}}\n", n, i)
		}
		next := load(t, Options{}, text.String())
		next.Inherit(set)
		set = next
	}
	if n := len(set.inherited.leaseKeys); n != maxInherited {
		t.Fatalf("%d key paths are inherited, want %d", n, maxInherited)
	}
	oldest := set.inherited.sets - maxInherited/atOnce
	for path, k := range set.inherited.leaseKeys {
		if k.last < oldest {
			t.Fatalf("%v of set %d is inherited instead of newer ones", path, k.last)
		}
	}
}
