package answer

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// version consists of rules and the rows of two tables, which are activated together.
type version struct{ rules, first, second string }

// swapped is a service with two tables whose rows are loaded from files.
type swapped struct {
	*Service
	tables *tables.Registry
}

func newSwapped(t *testing.T) *swapped {
	t.Helper()
	all := new(tables.Registry)
	for _, name := range []string{"first", "second"} {
		if _, err := all.Add(name, name+".csv"); err != nil {
			t.Fatal(err)
		}
	}
	return &swapped{service(t, Settings{Tables: all}, ""), all}
}

// rows returns the rows of a version by table name.
func (s *swapped) rows(t *testing.T, v version) map[string]*tables.Rows {
	t.Helper()
	rows := map[string]*tables.Rows{}
	for name, text := range map[string]string{"first": v.first, "second": v.second} {
		e, err := s.tables.Table(name)
		if err != nil {
			t.Fatal(err)
		}
		var found interface{ Err() error }
		if rows[name], found = e.Read(e.Path, strings.NewReader(text)); found.Err() != nil {
			t.Fatal(found.Err())
		}
	}
	return rows
}

func (s *swapped) compile(t *testing.T, v version) *descriptors.Set {
	t.Helper()
	configs, ds := rulefile.Parse("rules.yaml", []byte(v.rules))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{Tables: s.tables, TablesLater: true, HashKey: s.table.Key()})
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}

// TestRulesAndRowsChangeTogether alternates between two versions of rules and rows while requests
// are answered. Both versions give each request the same answer. Mixtures give some requests
// another one: new rules with old rows, one new and one old table, and two lookups of a request in
// old and new rows of one table.
func TestRulesAndRowsChangeTogether(t *testing.T) {
	const zero = "{unit: year, requests_per_unit: 0, table: "
	both := "domain: d\ndescriptors:\n- {key: customer, rate_limit: " + zero + "first}}\n- {key: client, rate_limit: " + zero + "second}}\n"
	for name, test := range map[string]struct {
		versions [2]version
		asked    [2][2]string // entries of the two descriptors of a request
		denied   bool
	}{
		"rules and rows": {[2]version{
			{"domain: d\ndescriptors:\n- {key: customer, rate_limit: " + zero + "first}}", "customer,unlimited\nal,true\n", "x,unlimited\n"},
			{"domain: d\ndescriptors:\n- {key: client, rate_limit: " + zero + "first}}", "client,unlimited\nal,true\n", "x,unlimited\n"},
		}, [2][2]string{{"customer", "al"}, {"client", "al"}}, false},
		"two tables": {[2]version{
			{both, "customer,unlimited\nal,true\n", "client,unlimited\n"},
			{both, "customer,unlimited\n", "client,unlimited\nal,true\n"},
		}, [2][2]string{{"customer", "al"}, {"client", "al"}}, true},
		"two rows": {[2]version{
			{"domain: d\ndescriptors: [{key: customer, rate_limit: " + zero + "first}}]", "customer,unlimited\nal,true\n", "x,unlimited\n"},
			{"domain: d\ndescriptors: [{key: customer, rate_limit: " + zero + "first}}]", "customer,unlimited\nbo,true\n", "x,unlimited\n"},
		}, [2][2]string{{"customer", "al"}, {"customer", "bo"}}, true},
	} {
		t.Run(name, func(t *testing.T) { testSwaps(t, test.versions, test.asked, test.denied) })
	}
}

// TestOnRulesChangedCallsEachFunction registers two functions. Both are called when rules are
// activated, in order.
func TestOnRulesChangedCallsEachFunction(t *testing.T) {
	s := service(t, Settings{}, "")
	var called []int
	for i := range 2 {
		s.OnRulesChanged(func() { called = append(called, i) })
	}
	if err := s.SetRules(noon, compile(t, oneRule)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(called, []int{0, 1}) {
		t.Errorf("the functions %v are called, want 0 and 1", called)
	}
}

// testSwaps fails unless all requests are denied, or none is.
func testSwaps(t *testing.T, versions [2]version, asked [2][2]string, denied bool) {
	t.Helper()
	const swaps, askers = 300, 2
	s := newSwapped(t)
	activate := func(i int) {
		v := versions[i%2]
		switch {
		case i > 0 && versions[0].rules == versions[1].rules:
			s.ActivateRows(s.rows(t, v))
		default:
			if err := s.Activate(noon+limiter.Time(i), s.compile(t, v), s.rows(t, v)); err != nil {
				t.Error(err)
			}
		}
	}
	activate(0)
	request := &rls.RateLimitRequest{Domain: "d"}
	for _, e := range asked {
		request.Descriptors = append(request.Descriptors, &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry(e[0], e[1])}})
	}
	bytes := marshal(t, request)
	var stop atomic.Bool
	var asking sync.WaitGroup
	var answered, wrong atomic.Int64
	for range askers {
		asking.Go(func() {
			for x := new(Exchange); !stop.Load(); answered.Add(1) {
				if _, _, err := s.Answer(noon, time.Minute, x, bytes); err != nil {
					t.Error(err)
				}
				if x.OverLimit() != denied {
					wrong.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	for i := range swaps {
		activate(i + 1)
		for seen := answered.Load(); answered.Load() < seen+askers; { // each version answers some requests
			runtime.Gosched()
		}
	}
	stop.Store(true)
	asking.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d of %d requests get an answer that neither version gives", n, answered.Load())
	}
}

// TestUnsupportedChoicesAreRejected checks that a reload with charge: first_with_room leaves the rules as
// they are if the store does not support it.
func TestUnsupportedChoicesAreRejected(t *testing.T) {
	const plain = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}"
	s := service(t, Settings{NoChoices: `a cluster; use one primary, or remove "charge"`}, plain)
	before := s.Rules()
	err := s.SetRules(0, compile(t, `{domain: d, descriptors: [{key: k, charge: first_with_room, rate_limits: [
		{unit: hour, requests_per_unit: 1}, {unit: day, requests_per_unit: 1}]}]}`))
	if err == nil || !strings.Contains(err.Error(), `"charge: first_with_room" is not supported with a cluster; use one primary`) || s.Rules() != before {
		t.Errorf("SetRules returns %v, and the rules have changed: %t", err, s.Rules() != before)
	}
}
