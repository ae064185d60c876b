package descriptors

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
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

// TestRangesEqualPythonModel compares matching with testdata/ranges.py, which uses Python's
// ipaddress.
func TestRangesEqualPythonModel(t *testing.T) {
	effort.Require(t, effort.More)
	python, err := exec.LookPath("python3")
	if err != nil {
		storetest.NotRun(t, t.Name()+": python3, which runs the model, is not installed")
	}
	r := rand.New(rand.NewPCG(9, 10))
	s, ranges := modelSet(t, r)
	var in strings.Builder
	for i := range ranges {
		for _, p := range ranges[i] {
			fmt.Fprintf(&in, "range %d %v\n", i, p)
		}
	}
	var values []string
	for len(values) < effort.Times(t, 2000) {
		if value := randomValue(r); !strings.ContainsAny(value, "\x00") {
			values = append(values, value)
			fmt.Fprintf(&in, "value %q\n", value)
		}
	}
	cmd := exec.Command(python, "testdata/ranges.py")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	must.OK(t, err)
	answers := bufio.NewScanner(strings.NewReader(string(out)))
	for _, value := range values {
		if !answers.Scan() {
			t.Fatal("the model gave too few answers")
		}
		if got := limitOf(s, value); got != answers.Text() && got != "exact" {
			t.Errorf("%q matches %s; the model returns %s", value, got, answers.Text())
		}
	}
}
