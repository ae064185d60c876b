package answer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// A describingDecider records the descriptions of counters.
type describingDecider struct {
	elsewhere

	found []any
}

func (d *describingDecider) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (bool, error) {
	for i := range b.Charges {
		d.found = append(d.found, b.Describer.DescribeCounter(i))
	}
	return d.elsewhere.Decide(now, b, names, w)
}

// TestCountersAreDescribed describes the counters of a limit, of a candidate, of a row of a table and
// of a limit in the request.
func TestCountersAreDescribed(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - key: user
    rate_limits:
      - {unit: minute, requests_per_unit: 5}
      - {unit: second, requests_per_unit: 3, shadow: true}
  - key: customer
    rate_limit: {unit: hour, requests_per_unit: 9, table: plans}
`
	for _, mode := range []string{live.Hashed, live.Clear} {
		table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		d := &describingDecider{elsewhere: elsewhere{table}}
		s := tableService(t, Settings{Decider: d, Namer: descriptors.NewNamer("", nil), TopKeys: mode}, rules, map[string]tables.Row{"al": {RequestsPerUnit: 7}})
		for _, request := range [][]byte{
			marshal(t, oneDescriptor(0, "user", "u")), marshal(t, oneDescriptor(0, "customer", "al")),
			marshal(t, oneDescriptor(0, "customer", "bo")), marshal(t, oneDescriptor(4, "customer", "al")),
		} {
			if _, _, err := s.Answer(noon, 0, new(Exchange), request); err != nil {
				t.Fatal(err)
			}
		}
		want := []live.CounterName{
			{Domain: "d", Descriptor: "user=u", Rule: "user", Limit: "5/minute"},
			{Domain: "d", Descriptor: "user=u", Rule: "user", Limit: "3/second"},
			{Domain: "d", Descriptor: "customer=al", Rule: "customer", Limit: "9/hour, table: plans", OwnLimit: "7/hour", Table: "plans"},
			{Domain: "d", Descriptor: "customer=bo", Rule: "customer", Limit: "9/hour, table: plans"},
			{Domain: "d", Limit: "4/hour"},
		}
		var all []any
		for _, name := range want {
			if mode == live.Hashed {
				name.Descriptor = ""
			}
			all = append(all, name)
		}
		if diff := cmp.Diff(all, d.found); diff != "" {
			t.Errorf("%s: descriptions (-want +got):\n%s", mode, diff)
		}
	}
}
