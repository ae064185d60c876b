package blocks_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// lasting are clients whose limits are not refilled during a test. The first limit is the smallest.
var lasting = []mixClient{
	{name: "list", descriptors: [][]limit{{fixed(2000, year), sliding(5000, year, 10)}}},
	{name: "separate", descriptors: [][]limit{{sliding(1500, year, 4)}, {fixed(100_000, year)}}},
	{name: "group", together: true, descriptors: [][]limit{{fixed(2500, year)}, {sliding(6000, year, 10)}}},
	{name: "lists", together: true, descriptors: [][]limit{{sliding(2000, year, 10), fixed(5000, year)}, {fixed(6000, year), sliding(7000, year, 1)}}},
	{name: "candidate", descriptors: [][]limit{{fixed(2000, year).with("count_refused: false"), sliding(1_000_000, year, 10).asCandidate()}}},
}

// TestGroupsAreChargedTogether exhausts the smallest limit of requests with several limits. When all
// unused hits have been returned, each limit has exactly the hits of the requests that were admitted:
// those that another limit denied are not charged, except to a candidate, and to another descriptor
// without all_or_nothing. There are no buckets: those that are not refilled have no blocks.
func TestGroupsAreChargedTogether(t *testing.T) {
	t.Parallel()
	m := startPatientMix(t, lasting)
	all := m.some(len(lasting))
	m.awaitBlocks(t, all)
	together(all, func(which int) {
		suite.Eventually(t, lasting[which].name+" has used up a limit", func() bool {
			m.burst(t.Context(), which, rand.IntN(3), rand.IntN(3))
			for range 20 {
				m.send(t.Context(), rand.IntN(3), which, 1)
			}
			admitted, _ := m.counters[which][0].used()
			return admitted >= m.counters[which][0].capacity()
		})
	})
	for which, counters := range m.counters {
		for i, c := range counters {
			admitted, requested := c.used()
			if c.candidate {
				admitted = requested
			}
			suite.Eventually(t, fmt.Sprintf("%s, limit %d: all unused hits of %d are returned, and no others", lasting[which].name, i, admitted),
				func() bool { return m.look(t, 0, c).Used == admitted })
		}
	}
	m.verify(t, 1)
	if n := m.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}
