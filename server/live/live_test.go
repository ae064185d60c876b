package live

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// compile compiles rules.
func compile(t *testing.T, text string) *descriptors.Set {
	t.Helper()
	configs, found := rulefile.Parse("rules.yaml", []byte(text))
	set, found := descriptors.Build(configs, found, nil, descriptors.Options{})
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}

const twoLimits = "{domain: shop, descriptors: [{key: user, rate_limits: [{unit: hour, requests_per_unit: 5}, {unit: day, requests_per_unit: 9}]}]}"

// TestKeysAcrossReload checks that a reload keeps a key with the new limit, and removes it if its
// limit is removed.
func TestKeysAcrossReload(t *testing.T) {
	l, _ := testLive(Hashed)
	old := compile(t, twoLimits)
	d := l.SetRules(old)[0]
	d.RecordDenial(&Denial{ID: id(1), Limit: old.Limits[0]})
	d.RecordDenial(&Denial{ID: id(2), Limit: old.Limits[1]})
	l.SetRules(compile(t, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 7}}]}"))
	if keys := l.keys(); len(keys) != 1 || keys[0].Hash != l.Hash(id(1)) || keys[0].Limit != "7/hour" || keys[0].Rule != "user" {
		t.Errorf("after the reload the keys are %+v, want the first, of 7/hour", keys)
	}
	l.SetRules(compile(t, "domain: other"))
	if all := l.Denials(math.MaxInt); len(all) > 0 {
		t.Errorf("without the domain there are %+v", all)
	}
}

func TestSelect(t *testing.T) {
	l, _ := testLive(Hashed)
	set := compile(t, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}, {key: path, value: /x, rate_limit: {unit: hour, requests_per_unit: 5}}]}")
	d := l.SetRules(set)[0]
	d.RecordDenial(&Denial{ID: id(1), Limit: set.Limits[0]})
	d.RecordDenial(&Denial{ID: id(2), Limit: set.Limits[0]})
	d.RecordDenial(&Denial{ID: id(3), Limit: set.Limits[1]})
	d.RecordDenial(&Denial{ID: id(4)}) // neither limit nor domain
	own := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Hour}
	d.RecordDenial(&Denial{ID: id(5), Policy: own, Domain: "shop"})                       // of a limit override
	d.RecordDenial(&Denial{ID: id(6), Limit: set.Limits[1], Policy: own, Domain: "shop"}) // of a table row
	for _, tt := range []struct {
		which Selection
		want  int
	}{
		{Selection{Domain: "shop"}, 5},
		{Selection{Domain: "shop", Rule: "user"}, 2},
		{Selection{Domain: "shop", Rule: "path=/x"}, 2},
		{Selection{Domain: "shop", Key: l.Hash(id(2))}, 1},
		{Selection{Domain: "shop", Rule: "user", Key: l.Hash(id(3))}, 0},
		{Selection{Domain: "shop", Key: l.Hash(id(4))}, 0},
		{Selection{Domain: "shop", Key: l.Hash(id(5))}, 1},
		{Selection{Domain: "other"}, 0},
	} {
		if got := l.Select(tt.which); len(got) != tt.want {
			t.Errorf("%s: %d keys, want %d", tt.which, len(got), tt.want)
		}
	}
	*own = limiter.Policy{} // the plan reuses its memory
	for _, c := range l.Select(Selection{Domain: "shop"}) {
		limit := uint32(5)
		if c.ID == id(5) || c.ID == id(6) {
			limit = 1
		}
		if c.Policy.Window != time.Hour || c.Policy.Limit != limit {
			t.Errorf("the counter %v has the policy %+v, want the limit %d", c.ID, c.Policy, limit)
		}
	}
	l.Forget(l.Select(Selection{Domain: "shop", Key: l.Hash(id(2))})[0])
	for _, k := range l.keys() {
		if k.Hash == l.Hash(id(2)) {
			t.Errorf("a forgotten key is still recorded: %+v", k)
		}
	}
}

// TestSelectNames checks that a counter's name in a store is known unless it contains a value.
func TestSelectNames(t *testing.T) {
	l := New(Hashed, identity.Key{1}, descriptors.NewRatelimitNamer("pre:", nil))
	set := compile(t, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]}")
	d := l.SetRules(set)[0]
	const exact = "pre:s1{KvY7BUwC8IIbEg4lu7ekBg}f60_"
	d.RecordDenial(&Denial{ID: id(1), Limit: set.Limits[0], Name: []byte(exact)})
	d.RecordDenial(&Denial{ID: id(2), Limit: set.Limits[0], Name: []byte("pre:shop_user_al_")})
	for i, want := range []string{exact, ""} {
		if got := l.Select(Selection{Domain: "shop", Key: l.Hash(id(i + 1))}); len(got) != 1 || string(got[0].Name) != want {
			t.Errorf("the counter is %+v, want the name %q", got, want)
		}
	}
}

// TestUnmatched checks which descriptors without a rule are recorded, and for how long.
func TestUnmatched(t *testing.T) {
	l, _ := testLive(Off)
	set := compile(t, twoLimits)
	d := l.SetRules(set)[0]
	send := func(text string) { d.RecordUnmatched(set.Unmatched(0, entries(text))) }
	for range 3 {
		send("usr=al")
	}
	send("user=al,path=/")
	send(strings.Repeat("k", 100) + "=v")
	found := l.Unmatched()["shop"]
	if len(found) != 3 || found[0].Key != "usr" || found[0].Seen != 3 || found[0].Meant != "user" || !found[0].Since.Equal(begin.UTC()) {
		t.Fatalf("found %+v, want usr first, with user as its probable meaning", found)
	}
	if found[1].Key != strings.Repeat("k", unmatchedKey) || found[2].Key != "path" || found[2].Below != "user" || found[2].Entry != 2 {
		t.Errorf("found %+v, want a cut key, and path below user", found[1:])
	}
	for now := begin; now.Sub(begin) <= forgetAfter+2*interval; now = now.Add(time.Second) {
		l.Tick(now)
	}
	if found := l.Unmatched()["shop"]; len(found) > 0 {
		t.Errorf("after a minute: %+v, want nothing", found)
	}
}

// TestUnmatchedIsBounded checks that a flood of keys is examined within the budget per second, and
// replaces old entries.
func TestUnmatchedIsBounded(t *testing.T) {
	l, _ := testLive(Hashed)
	set := compile(t, twoLimits)
	d := l.SetRules(set)[0]
	now := begin
	l.Tick(now)
	examined := 0
	for range 100 {
		for i := range 1000 {
			if d.AcceptsUnmatched() {
				examined++
				d.RecordUnmatched(set.Unmatched(0, entries(fmt.Sprintf("k%d=v", examined*1000+i))))
			}
		}
		now = now.Add(time.Second)
		l.Tick(now)
	}
	if examined != 100*unmatchedBudget {
		t.Errorf("%d descriptors were examined in 100 s, want %d a second", examined, unmatchedBudget)
	}
	if n := len(l.Unmatched()["shop"]); n != MaxUnmatched {
		t.Errorf("%d entries are recorded, want %d", n, MaxUnmatched)
	}
	d.RecordUnmatched(set.Unmatched(0, entries("usr=v")))
	if found := l.Unmatched()["shop"]; found[len(found)-1].Key != "usr" {
		t.Errorf("the newest descriptor is not recorded: %+v", found)
	}
}

// TestMemoryIsBounded fills all memory for 150 domains, of which 50 share one sketch, and checks
// its size.
func TestMemoryIsBounded(t *testing.T) {
	effort.Require(t, effort.More)
	var text strings.Builder
	const n = MaxDomains + 50
	for i := range n {
		fmt.Fprintf(&text, "---\n{domain: d%03d, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]}\n", i)
	}
	set := compile(t, text.String())
	for maxBytes, namer := range map[int64]*descriptors.Namer{2 << 20: nil, 5 << 19: descriptors.NewNamer("", nil)} {
		l := New(Hashed, identity.Key{1}, namer)
		before := heap()
		domains := l.SetRules(set)
		sent := entries("user=al")
		for i, d := range domains {
			for j := range 10_000 {
				d.RecordDenial(&Denial{ID: id(i*10_000 + j), Limit: set.Limits[i], Entries: sent, Name: []byte("s1{KvY7BUwC8IIbEg4lu7ekBg}f60_")})
			}
			for j := range 2 * MaxUnmatched {
				d.RecordUnmatched(set.Unmatched(i, entries(fmt.Sprintf("%060d=v", j))))
			}
		}
		used := heap() - before
		t.Logf("%d domains use %d bytes", n, used)
		if used > maxBytes {
			t.Errorf("%d domains use %d bytes, want at most %d", n, used, maxBytes)
		}
		if all := l.Denials(math.MaxInt); len(all) < MaxDomains {
			t.Errorf("%d domains have denials, want at least %d", len(all), MaxDomains)
		}
		runtime.KeepAlive(set)
	}
}

// heap returns the bytes of all reachable objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestUnmatchedOfAClockThatIsSet checks that entries stay when the clock is set, have no time after
// now, are replaced by new ones, and are removed as usual.
func TestUnmatchedOfAClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, -time.Minute, -2 * time.Second, time.Minute, time.Hour} {
		l, _ := testLive(Off)
		set := compile(t, twoLimits)
		d := l.SetRules(set)[0]
		send := func(i int) { d.RecordUnmatched(set.Unmatched(0, entries(fmt.Sprintf("k%d=v", i)))) }
		now := begin
		for i := range MaxUnmatched {
			send(i)
		}
		for _, now = range []time.Time{begin.Add(by), begin, begin.Add(by)} {
			l.Tick(now)
			found := l.Unmatched()["shop"]
			if len(found) != MaxUnmatched || found[0].Last.After(now) || found[0].Since.After(now) {
				t.Fatalf("set by %v: at %v there are %d entries: %+v", by, now, len(found), found)
			}
		}
		for i := range 2 * MaxUnmatched {
			now = now.Add(time.Second)
			l.Tick(now)
			send(100 + i)
		}
		found := l.Unmatched()["shop"]
		for _, u := range found {
			if !strings.HasPrefix(u.Key, "k1") || len(u.Key) != len("k100") {
				t.Errorf("set by %v: %s is recorded, want only the newest keys", by, u.Key)
			}
		}
		for last := now; len(l.Unmatched()["shop"]) > 0; now = now.Add(time.Second) {
			if l.Tick(now); now.Sub(last) > 2*time.Minute {
				t.Fatalf("set by %v: two minutes later there are %+v", by, l.Unmatched())
			}
		}
	}
}

// TestUnmatchedBudget checks that the budget is per second, even if the state is read more often.
func TestUnmatchedBudget(t *testing.T) {
	l, _ := testLive(Off)
	set := compile(t, twoLimits)
	d := l.SetRules(set)[0]
	examined := 0
	for range 100 {
		l.Tick(begin)
		for range 10 {
			if d.AcceptsUnmatched() {
				examined++
				d.RecordUnmatched(set.Unmatched(0, entries("usr=v")))
			}
		}
	}
	if examined != unmatchedBudget {
		t.Errorf("%d descriptors were examined in a second, want %d", examined, unmatchedBudget)
	}
}
