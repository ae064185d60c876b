package live

import (
	"fmt"
	"slices"
	"testing"
)

// TestSumOfShares adds up the quota states of two replicas, and of one without a state.
func TestSumOfShares(t *testing.T) {
	of := func(names ...string) *Quota {
		q := &Quota{Streams: 2, Buckets: 30}
		for i, name := range names {
			q.Largest = append(q.Largest, QuotaBucket{Rule: name, DemandRate: float64(100 - 3*i)})
		}
		return q
	}
	many := make([]string, MaxQuotaBuckets)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	states := []*State{{Quota: of("a", "b")}, {}, {Quota: of(many...)}}
	sum := Sum([]string{"x:1", "y:1", "z:1"}, states).Quota
	if sum == nil || sum.Streams != 4 || sum.Buckets != 60 || len(sum.Largest) != MaxQuotaBuckets {
		t.Fatalf("the sum is %+v", sum)
	}
	got := make([]string, 0, 4)
	for _, b := range sum.Largest[:4] {
		got = append(got, b.Replica+" "+b.Rule)
	}
	if want := []string{"x:1 a", "z:1 n0", "x:1 b", "z:1 n1"}; !slices.Equal(got, want) {
		t.Errorf("the largest are %q, want %q", got, want)
	}
	if states[0].Quota.Largest[0].Replica != "" {
		t.Error("a replica's state is changed")
	}
	if sum := Sum([]string{"x:1", "y:1"}, []*State{{}, {}}); sum.Quota != nil {
		t.Errorf("the sum of replicas without divided limits is %+v", sum.Quota)
	}
}
