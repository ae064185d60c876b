package descriptors

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// modelSet compiles a few hundred ranges that often contain each other, in descriptors named 0, 1
// and so on. The key alone is named any, and 10.0.0.1 exact.
func modelSet(t *testing.T, r *rand.Rand) (*Set, [][]netip.Prefix) {
	t.Helper()
	limit := func(name string) []rules.Limit {
		return []rules.Limit{{Name: name, Unit: rules.Minute, UnitMultiplier: 1, RequestsPerUnit: 1}}
	}
	all := []rules.Descriptor{{Key: "a", RateLimits: limit("any")}, {Key: "a", Value: "10.0.0.1", RateLimits: limit("exact")}}
	known := map[netip.Prefix]bool{}
	ranges := make([][]netip.Prefix, 20)
	for i := range ranges {
		set := &rules.ValueSet{}
		for len(ranges[i]) < 20 {
			p, ok := naiveAddress(randomValue(r))
			if ok {
				p = netip.PrefixFrom(p.Addr(), r.IntN(p.Bits()+1)).Masked()
			}
			if !ok || known[p] || p.Bits() == 0 && r.IntN(20) > 0 {
				continue
			}
			known[p] = true
			ranges[i] = append(ranges[i], p)
			set.Ranges = append(set.Ranges, rules.Range{Prefix: p})
		}
		all = append(all, rules.Descriptor{Key: "a", Set: set, RateLimits: limit(strconv.Itoa(i))})
	}
	s, ds := Compile([]rules.Config{{Domain: "d", Descriptors: all}}, Options{})
	must.OK(t, ds.Err())
	return s, ranges
}

// limitOf returns the name of the limit that a value matches.
func limitOf(s *Set, value string) string {
	return s.Match([]byte("d"), []Entry{{[]byte("a"), []byte(value)}}).Limits[0].Name
}

// TestRangesEqualNaiveModel compares matching with a search through all ranges.
func TestRangesEqualNaiveModel(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	named := map[string]int{}
	for range 20 {
		s, ranges := modelSet(t, r)
		for range effort.Times(t, 5000) {
			value := randomValue(r)
			want, longest := "any", -1
			p, ok := naiveAddress(value)
			for i := range ranges {
				for _, within := range ranges[i] {
					if ok && within.Bits() <= p.Bits() && within.Contains(p.Addr()) && within.Bits() > longest {
						want, longest = strconv.Itoa(i), within.Bits()
					}
				}
			}
			if value == "10.0.0.1" {
				want = "exact"
			}
			if got := limitOf(s, value); got != want {
				t.Fatalf("%q matches %s, want %s of the ranges %v", value, got, want, ranges)
			}
			named[want]++
		}
	}
	if all := effort.Times(t, 100_000); named["any"] < all/10 || named["any"] > all*9/10 || len(named) < 20 {
		t.Errorf("the limits matched %v times, want all of them often", named)
	}
}
