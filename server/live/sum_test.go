package live

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestSum adds up the states of two replicas, one of which has other rules.
func TestSum(t *testing.T) {
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	a := &State{
		Time: at(9), Started: at(2), HashKey: "k", Config: Config{Hash: "1", Limits: 1},
		Conditions:     []telemetry.Condition{telemetry.NewCondition(telemetry.StoreUnavailable, at(3))},
		Events:         []telemetry.Event{{Time: at(5), Text: "b"}, {Time: at(1), Text: "a"}},
		UnknownDomains: []UnknownDomain{{Domain: "x", Descriptors: 1, PerSecond: 1}},
		Domains: []DomainState{{
			Domain: "shop", Rate: Rate{Hits: 10, Denied: 4}, DeniedRequests: 4,
			DeniedKeys: []Key{{Hash: "h1", PerSecond: 3, Denied: 30, Since: at(4), Last: at(5)}, {Hash: "h2", PerSecond: 1, Denied: 1}},
			Unmatched:  []Unmatched{{Key: "usr", Entry: 1, Seen: 5, Since: at(4), Last: at(5)}},
			Rules:      []RuleState{{Rule: "user", Limit: "5/hour", Rate: Rate{Hits: 10, Denied: 4}, TotalHits: 100, TotalDenied: 40, Line: &Line{Seconds: 10, Hits: []uint32{1, 2}, Denied: []uint32{0, 1}}}},
		}},
	}
	b := &State{
		Time: at(9), Started: at(1), HashKey: "k", Config: Config{Hash: "2", Limits: 1},
		Events: []telemetry.Event{{Time: at(4), Text: "c"}},
		Domains: []DomainState{{Domain: "new", Rate: Rate{Hits: 1}}, {
			Domain: "shop", Rate: Rate{Hits: 20, Denied: 16}, DeniedRequests: 16,
			DeniedKeys: []Key{{Hash: "h2", PerSecond: 16, Denied: 9, Since: at(1), Last: at(8)}},
			Unmatched:  []Unmatched{{Key: "usr", Entry: 1, Seen: 2, Since: at(3), Last: at(4)}},
			Rules:      []RuleState{{Rule: "user", Limit: "5/hour", Rate: Rate{Hits: 20, Denied: 16}, TotalHits: 10, TotalDenied: 9, Line: &Line{Seconds: 10, Hits: []uint32{3, 4}, Denied: []uint32{2, 2}}}},
		}},
	}
	if Sum([]string{"a"}, []*State{a}) != a {
		t.Error("the sum of a single state is not that state")
	}
	fast, slow := 1e-5, 2e-5
	a.Status = Status{Calls: 10, Denied: 1, Errors: 2, Connections: 3, P99: &fast, Counters: 5, MaxCounters: 50, Store: StoreUnavailable}
	b.Status = Status{Calls: 20, Denied: 4, Errors: 1, Connections: 1, P99: &slow, Counters: 7, MaxCounters: 50, Store: StoreAvailable}
	sum := Sum([]string{"a:1", "b:1"}, []*State{a, b})
	if want := (Status{Calls: 30, Denied: 5, Errors: 3, Connections: 4, P99: &slow, Counters: 12, MaxCounters: 100, Store: StoreUnavailable}); sum.Status != want {
		t.Errorf("the status is %+v, want %+v", sum.Status, want)
	}
	d := sum.Domains[0]
	if d.Domain != "shop" || sum.Domains[1].Domain != "new" || d.Rate != (Rate{Hits: 30, Denied: 20}) || d.DeniedRequests != 20 {
		t.Errorf("domains are %+v, want shop first, with the sums", sum.Domains)
	}
	if k := d.DeniedKeys; len(k) != 2 || k[0].Hash != "h2" || k[0].PerSecond != 17 || k[0].Share != 0.85 || k[0].Denied != 10 || !k[0].Last.Equal(at(8)) || k[1].Share != 0.15 {
		t.Errorf("keys are %+v, want h2 first, with 17 of 20 a second", k)
	}
	if u := d.Unmatched; len(u) != 1 || u[0].Seen != 7 || !u[0].Since.Equal(at(3)) || !u[0].Last.Equal(at(5)) {
		t.Errorf("unmatched is %+v", u)
	}
	if r := d.Rules; len(r) != 1 || r[0].TotalHits != 110 || r[0].TotalDenied != 49 || r[0].Line.Hits[1] != 6 || r[0].Line.Denied[1] != 3 {
		t.Errorf("rules are %+v, line %+v", r, r[0].Line)
	}
	if e := sum.Events; len(e) != 3 || e[0].Text != "b" || e[0].Replica != "a:1" || e[1].Text != "c" || e[1].Replica != "b:1" {
		t.Errorf("events are %+v, want the newest first, each with its replica", e)
	}
	if w := sum.Conditions; len(w) != 2 || w[0].Code != telemetry.RulesDiffer || w[0].Lines[1] != "b:1: rules 2" || w[1].Replica != "a:1" {
		t.Errorf("the conditions are %+v, want rules_differ first", w)
	}
	same := *b
	same.Config.Hash = a.Config.Hash
	if w := Sum([]string{"a:1", "b:1"}, []*State{a, &same}).Conditions; len(w) != 1 || w[0].Code != telemetry.StoreUnavailable {
		t.Errorf("with the same rules the conditions are %+v, want only store_unavailable", w)
	}
	if !sum.Started.Equal(at(1)) || sum.HashKey != "k" || a.Domains[0].Rules[0].TotalHits != 100 || a.Events[0].Replica != "" {
		t.Errorf("the sum is %+v; the first state is now %+v", sum, a)
	}
}

// TestSumOfDifferentSettings checks that the sum has no rules, shadow mode and no keys only if that is
// true of all replicas, in any order.
func TestSumOfDifferentSettings(t *testing.T) {
	addrs := []string{"a:1", "b:1"}
	bad, empty := &State{ShadowMode: true, TopKeys: Off}, &State{ShadowMode: true, TopKeys: Off, Config: Config{Hash: "0"}}
	good := &State{TopKeys: Hashed, Config: Config{Hash: "1", Limits: 3, Omitted: 2}}
	for _, states := range [][]*State{{bad, good}, {good, bad}, {empty, good}, {good, empty}} {
		sum := Sum(addrs, states)
		if sum.Config != good.Config || sum.ShadowMode || sum.TopKeys != Hashed || len(sum.Conditions) != 2 {
			t.Fatalf("the sum is %+v, want the rules and the keys of the replica that has them, and two conditions", sum)
		}
		c := sum.Conditions[1]
		if want := addrs[slices.Index(states, good)^1] + ": shadow mode"; c.Code != telemetry.ShadowModeDiffers || !slices.Equal(c.Lines, []string{want}) {
			t.Errorf("the second condition is %+v, want shadow_mode_differs with %q", c, want)
		}
	}
	if lines := Sum(addrs, []*State{bad, good}).Conditions[0].Lines; lines[0] != "a:1: rules are missing" || lines[1] != "b:1: rules 1" {
		t.Errorf("the condition has the lines %q", lines)
	}
	if sum := Sum(addrs, []*State{bad, empty}); sum.Config.Hash != "0" || !sum.ShadowMode || sum.TopKeys != Off || len(sum.Conditions) != 1 {
		t.Errorf("the sum is %+v, want rules without limits, shadow mode and no keys, and one condition", sum)
	}
	if sum := Sum(addrs, []*State{bad, bad}); sum.Config.Hash != "" || len(sum.Conditions) != 0 {
		t.Errorf("the sum is %+v, want no rules and no condition", sum)
	}
}

// TestSumOfUnknownCodes checks that a condition whose code this version does not know is kept.
func TestSumOfUnknownCodes(t *testing.T) {
	newer := &State{Conditions: []telemetry.Condition{{Code: "from_the_future", Severity: "info"}, telemetry.NewCondition(telemetry.StoreUnavailable, begin)}}
	c := Sum([]string{"a", "b"}, []*State{newer, {}}).Conditions
	if len(c) != 2 || c[0].Code != telemetry.StoreUnavailable || c[1].Code != "from_the_future" {
		t.Errorf("the conditions are %+v, want both, the error first", c)
	}
}

// TestSumOfReplicasThatCountSeparately checks that two replicas that share no counters are a
// condition, and that one of them with others that do is not.
func TestSumOfReplicasThatCountSeparately(t *testing.T) {
	alone, shared := &State{CountsAlone: true}, &State{}
	if sum := Sum([]string{"a", "b"}, []*State{shared, alone}); len(sum.Conditions) > 0 || !sum.CountsAlone {
		t.Errorf("one replica of two counts alone: %t, %+v; want true and no condition", sum.CountsAlone, sum.Conditions)
	}
	c := Sum([]string{"a", "b", "c"}, []*State{alone, alone, alone}).Conditions
	if len(c) != 1 || c[0].Code != telemetry.ReplicasCountSeparately || c[0].Text != "3 replicas count separately: each grants the whole limit" || len(c[0].Lines) != 3 {
		t.Errorf("the conditions of three replicas that count alone are %+v", c)
	}
}

// TestSumOfTruncatedKeys checks that clients whose descriptors are equal up to the cut stay
// separate, and that keys with the same descriptor are merged if their hashes are not comparable.
func TestSumOfTruncatedKeys(t *testing.T) {
	of := func(hashKey string, keys ...Key) *State {
		return &State{HashKey: hashKey, Domains: []DomainState{{Domain: "d", DeniedKeys: keys}}}
	}
	sum := Sum([]string{"a", "b"}, []*State{
		of("j", Key{Hash: "1", Descriptor: "token=xx…", PerSecond: 1}, Key{Hash: "2", Descriptor: "token=xx…", PerSecond: 2}, Key{Hash: "3", Descriptor: "token=y", PerSecond: 4}),
		of("k", Key{Hash: "1", Descriptor: "token=xx…", PerSecond: 8}, Key{Hash: "4", Descriptor: "token=y", PerSecond: 16}),
	})
	got := map[string]float64{}
	for _, k := range sum.Domains[0].DeniedKeys {
		got[k.Hash] = k.PerSecond
	}
	if len(got) != 3 || got["1"] != 9 || got["2"] != 2 || got["3"] != 20 {
		t.Errorf("rates by hash are %v, want 9, 2 and 20", got)
	}
}

// TestSumOfOwnLimits checks that counters of one descriptor with limits of their own stay separate,
// and that omitted keys are added up.
func TestSumOfOwnLimits(t *testing.T) {
	of := func(hashKey string, hashes ...string) *State {
		return &State{HashKey: hashKey, Domains: []DomainState{{Domain: "d", OmittedKeys: 7, DeniedKeys: []Key{
			{Hash: hashes[0], Descriptor: "user=al", OwnLimit: "5/minute", Denied: 100},
			{Hash: hashes[1], Descriptor: "user=al", OwnLimit: "9/hour", Denied: 10},
		}}}}
	}
	d := &Sum([]string{"a", "b"}, []*State{of("j", "1", "2"), of("k", "3", "4")}).Domains[0]
	got := map[string]uint64{}
	for _, k := range d.DeniedKeys {
		got[k.OwnLimit] += k.Denied
	}
	if got["5/minute"] != 200 || got["9/hour"] != 20 || d.OmittedKeys != 14 {
		t.Errorf("denials by limit are %v, and %d keys omitted, want 200, 20 and 14", got, d.OmittedKeys)
	}
}

// TestSumOfUnmaskedKeys checks that a key is one key if only one replica knows its values, because
// the other one denied it before the values were shown.
func TestSumOfUnmaskedKeys(t *testing.T) {
	of := func(descriptor string) *State {
		return &State{HashKey: "k", Domains: []DomainState{{Domain: "d", DeniedKeys: []Key{
			{Hash: "1", Rule: "user", Limit: "1/minute", Descriptor: descriptor, PerSecond: 5},
		}}}}
	}
	for _, states := range [][]*State{{of("user=alice"), of("")}, {of(""), of("user=alice"), of("")}} {
		keys := Sum(make([]string, len(states)), states).Domains[0].DeniedKeys
		if len(keys) != 1 || keys[0].Descriptor != "user=alice" || keys[0].PerSecond != 5*float64(len(states)) {
			t.Errorf("the keys of %d replicas are %+v, want one of user=alice", len(states), keys)
		}
	}
}

// TestSumOfPermits checks that the permits of a shared store count once, even if the rules of one
// replica are older, and that those in memory are added up.
func TestSumOfPermits(t *testing.T) {
	of := func(counters string, permits uint64) *State {
		return &State{Counters: counters, HashKey: "k", Domains: []DomainState{{Domain: "d", DeniedKeys: []Key{{Hash: "1", Permits: permits}}}}}
	}
	for counters, want := range map[string]uint64{"store": 10, "memory": 18} {
		sum := Sum([]string{"a", "b"}, []*State{of(counters, 8), of(counters, 10)})
		if got := sum.Domains[0].DeniedKeys[0].Permits; got != want {
			t.Errorf("the sum of 8 and 10 permits in %s is %d, want %d", counters, got, want)
		}
	}
}

// TestSumOfSaturatedCounts checks that sums saturate at the maximum.
func TestSumOfSaturatedCounts(t *testing.T) {
	const large, points = math.MaxUint64 - 1, 3_000_000_000
	of := func() *State {
		return &State{
			HashKey: "k", UnknownDomains: []UnknownDomain{{Domain: "x", Descriptors: large}},
			Domains: []DomainState{{
				DeniedKeys: []Key{{Hash: "h", Denied: large}}, Unmatched: []Unmatched{{Key: "k", Seen: large}},
				Rules: []RuleState{{TotalHits: large, TotalDenied: large, Exceeded: large, Line: &Line{Seconds: 10, Hits: []uint32{points}, Denied: []uint32{points}}}},
			}},
		}
	}
	sum := Sum([]string{"a", "b"}, []*State{of(), of()})
	d := sum.Domains[0]
	for name, got := range map[string]uint64{
		"descriptors": sum.UnknownDomains[0].Descriptors, "denied of a key": d.DeniedKeys[0].Denied, "unmatched": d.Unmatched[0].Seen,
		"hits": d.Rules[0].TotalHits, "denied": d.Rules[0].TotalDenied, "exceeded": d.Rules[0].Exceeded,
	} {
		if got != math.MaxUint64 {
			t.Errorf("%s: the sum is %d, want 2^64-1", name, got)
		}
	}
	if line := d.Rules[0].Line; line.Hits[0] != math.MaxUint32 || line.Denied[0] != math.MaxUint32 {
		t.Errorf("the sum of points of 3,000,000,000 hits is %+v, want 2^32-1", line)
	}
}
