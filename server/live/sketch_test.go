package live

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

var begin = time.Unix(1_700_000_000, 0)

// testLive returns a Recorder with one domain that has a sketch.
func testLive(mode string) (*Recorder, *Domain) {
	l := New(mode, identity.Key{1}, nil)
	l.SetTime(begin)
	set, found := descriptors.Compile([]rules.Config{{Domain: "shop"}}, descriptors.Options{})
	if err := found.Err(); err != nil {
		panic(err)
	}
	return l, l.SetRules(set)[0]
}

// keys returns the most denied keys.
func (l *Recorder) keys() []Key {
	if d := l.Denials(math.MaxInt)["shop"]; d != nil {
		return d.Keys
	}
	return nil
}

// id returns the identity of the counter of key i.
func id(i int) identity.ID {
	h := hasher
	h.AddWord(uint64(i))
	return h.Sum()
}

var hasher = identity.Key{2}.Hasher()

func entries(text string) []descriptors.Entry {
	e, err := descriptors.ParseEntries(text)
	if err != nil {
		panic(err)
	}
	return e
}

// TestFlooderIsFirst checks that one flooder is found among any number of other keys.
func TestFlooderIsFirst(t *testing.T) {
	l, d := testLive(Hashed)
	random := rand.New(rand.NewPCG(1, 2))
	const denials = 200_000
	flooder := 0
	for range denials {
		if random.IntN(50) == 0 {
			d.RecordDenial(&Denial{ID: id(0)})
			flooder++
		} else {
			d.RecordDenial(&Denial{ID: id(1 + random.IntN(1e9))}) // clients that are denied once
		}
	}
	keys := l.keys()
	if len(keys) != MaxKeys {
		t.Fatalf("%d keys, want %d", len(keys), MaxKeys)
	}
	if keys[0].Hash != l.Hash(id(0)) {
		t.Fatalf("the first is %+v, want the flooder %s", keys[0], l.Hash(id(0)))
	}
	if got := int(keys[0].Denied); got > flooder || got < flooder*9/10 {
		t.Errorf("the flooder has %d denials, want at most %d and not many fewer", got, flooder)
	}
	if got, want := keys[0].Share, float64(flooder)/denials; got < want*0.9 || got > want {
		t.Errorf("the flooder's share is %v, want at most %v and not much less", got, want)
	}
	for _, k := range keys[1:] {
		if k.Denied > 1 {
			t.Errorf("a key that was denied once has %d denials", k.Denied)
		}
	}
}

// TestNewFlooderOvertakesAnOldOne checks that an hour of past denials does not hide the current
// flooder.
func TestNewFlooderOvertakesAnOldOne(t *testing.T) {
	l, d := testLive(Hashed)
	now := begin
	for range 3600 {
		for i := range sets * ways * 2 { // fill all entries
			d.RecordDenial(&Denial{ID: id(i)})
		}
		now = now.Add(time.Second)
		l.Tick(now)
	}
	for range 100 {
		d.RecordDenial(&Denial{ID: id(-1)})
	}
	now = now.Add(time.Second)
	l.Tick(now)
	if first := l.keys()[0]; first.Hash != l.Hash(id(-1)) {
		t.Errorf("the first is %+v, want the new key", first)
	}
}

// TestKeyUnderPenalty checks that only a key under a penalty has the penalty's end.
func TestKeyUnderPenalty(t *testing.T) {
	l, d := testLive(Hashed)
	for i, left := range []time.Duration{90 * time.Second, 0, 1500 * time.Millisecond} {
		d.RecordDenial(&Denial{ID: id(i)})
		if left > 0 {
			d.RecordPenalty(id(i), left)
		}
	}
	until := func() map[string]time.Time {
		all := map[string]time.Time{}
		for _, k := range l.keys() {
			if k.PenaltyUntil != nil {
				all[k.Hash] = *k.PenaltyUntil
			}
		}
		return all
	}
	want := map[string]time.Time{l.Hash(id(0)): begin.Add(90 * time.Second).UTC(), l.Hash(id(2)): begin.Add(2 * time.Second).UTC()}
	if got := until(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	l.Tick(begin.Add(2 * time.Second))
	delete(want, l.Hash(id(2)))
	if got := until(); !maps.Equal(got, want) {
		t.Errorf("after two seconds %v, want %v", got, want)
	}
	sum := Sum([]string{"a", "b"}, []*State{
		{Domains: []DomainState{{DeniedKeys: []Key{{Hash: "h", PenaltyUntil: new(begin)}}}}},
		{Domains: []DomainState{{DeniedKeys: []Key{{Hash: "h", PenaltyUntil: new(begin.Add(time.Second))}}}}},
	})
	if got := sum.Domains[0].DeniedKeys[0].PenaltyUntil; !got.Equal(begin.Add(time.Second)) {
		t.Errorf("the sum of two replicas has the end %v, want the later one", got)
	}
}

// TestKeyComesAndGoes checks when a key is shown, and with which rate.
func TestKeyComesAndGoes(t *testing.T) {
	l, d := testLive(Hashed)
	if keys := l.keys(); len(keys) > 0 {
		t.Errorf("before any denial there are keys: %+v", keys)
	}
	now := begin
	for i := range 60 { // ten denials per second for a minute
		for range 10 {
			d.RecordDenial(&Denial{ID: id(1)})
		}
		now = now.Add(time.Second)
		l.Tick(now)
		keys := l.keys()
		if len(keys) != 1 || keys[0].PerSecond != 10 || keys[0].Denied != uint64(10*(i+1)) || !keys[0].Since.Equal(begin) || keys[0].Share != 1 {
			t.Fatalf("after %d s: %+v, want 10 a second since the start", i+1, keys)
		}
	}
	last := now
	for now.Sub(last) < 2*time.Minute && len(l.keys()) > 0 {
		now = now.Add(time.Second)
		l.Tick(now)
		if k := l.keys(); len(k) > 0 && now.Sub(last) > 2*interval && (k[0].PerSecond != 0 || k[0].Last.After(last.Add(interval))) {
			t.Fatalf("%v after the end: %+v, want a rate of 0", now.Sub(last), k[0])
		}
	}
	if idle := now.Sub(last); idle < forgetAfter || idle >= 2*time.Minute {
		t.Errorf("the key is removed %v after its last denial, want one to two minutes", idle)
	}
}

// deniedTwenty returns a recorder with one key that was denied once in each of the last 20 seconds.
func deniedTwenty() (l *Recorder, now time.Time) {
	l, d := testLive(Hashed)
	now = begin
	for range 20 {
		now = now.Add(time.Second)
		l.Tick(now)
		d.RecordDenial(&Denial{ID: id(1)})
	}
	return l, now
}

// checkKeysAreRemoved checks that all keys are removed within two minutes from now.
func checkKeysAreRemoved(t *testing.T, l *Recorder, now time.Time, when string) {
	t.Helper()
	for last := now; len(l.keys()) > 0; now = now.Add(time.Second) {
		if l.Tick(now); now.Sub(last) > 2*time.Minute {
			t.Fatalf("%s: two minutes later there are %+v", when, l.keys())
		}
	}
}

// TestIdleKeysStayWhileEntriesAreFree adds a key in each interval until the eight entries of a set
// are full. Idle keys are not replaced while entries are free.
func TestIdleKeysStayWhileEntriesAreFree(t *testing.T) {
	l, d := testLive(Hashed)
	for i := range uint64(ways) {
		l.Tick(begin.Add(time.Duration(i) * interval))
		d.RecordDenial(&Denial{ID: identity.ID{Hi: 1, Lo: i + 1}})
	}
	for i := range uint64(ways) {
		if !d.HasKey(identity.ID{Hi: 1, Lo: i + 1}) {
			t.Errorf("key %d was forgotten", i)
		}
	}
}

// TestKeysOfAClockThatIsSetBack checks that keys stay, have no time after now, and are removed as
// usual.
func TestKeysOfAClockThatIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{time.Second, time.Minute, time.Hour} {
		l, now := deniedTwenty()
		l.Tick(now.Add(interval)) // the key has no denial in this interval
		now = now.Add(interval - back)
		l.Tick(now)
		if keys := l.keys(); len(keys) != 1 || keys[0].Denied != 20 || keys[0].Since.After(now) || keys[0].Last.After(now) {
			t.Errorf("set back by %v: %+v at %v, want the key with 20 denials before", back, keys, now)
		}
		checkKeysAreRemoved(t, l, now, fmt.Sprintf("set back by %v", back))
	}
}

// TestDeniedAllocatesNothing checks known and new keys.
func TestDeniedAllocatesNothing(t *testing.T) {
	for _, mode := range []string{Off, Hashed, Clear} {
		_, d := testLive(mode)
		sent := entries("user=alice,path=/search")
		own := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Hour}
		d.RecordDenial(&Denial{ID: id(0), Entries: sent})
		i := 0
		if n := must.AllocsPerRun(1000, func() {
			i++
			d.RecordDenial(&Denial{ID: id(0), Entries: sent})
			d.RecordDenial(&Denial{ID: id(i), Entries: sent})
			d.RecordDenial(&Denial{ID: id(-i), Entries: sent, Policy: own, Domain: "shop"})
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", mode, n)
		}
	}
}

// TestClearStoresDescriptors checks that mode clear stores the descriptors of keys, in the form
// that explain parses, and that other modes do not.
func TestClearStoresDescriptors(t *testing.T) {
	long := fmt.Sprintf("user=%0200d", 7)
	for _, sent := range []string{"user=alice,path=/a\\,b", "k\\=y=v=w", "user=", long} {
		want := sent
		if sent == long {
			want = long[:5+122] + "…"
		}
		l, d := testLive(Clear)
		d.RecordDenial(&Denial{ID: id(1), Entries: entries(sent)})
		if got := l.keys()[0].Descriptor; got != want {
			t.Errorf("%q is stored as %q, want %q", sent, got, want)
		}
		l, d = testLive(Hashed)
		d.RecordDenial(&Denial{ID: id(1), Entries: entries(sent)})
		if got := l.keys()[0].Descriptor; got != "" {
			t.Errorf("mode hashed stores %q", got)
		}
	}
}

// TestRateOfAFlood checks, each second, the rate of a domain in which most clients are denied once,
// and the share of one that is denied more often. The end of an interval changes neither.
func TestRateOfAFlood(t *testing.T) {
	for _, frequent := range []int{0, 250} {
		l, d := testLive(Hashed)
		now, next := begin, 1
		for i := range 60 {
			for range 1000 {
				d.RecordDenial(&Denial{ID: id(next)})
				next++
			}
			for range frequent {
				d.RecordDenial(&Denial{ID: id(0)})
			}
			now = now.Add(time.Second)
			l.Tick(now)
			denials := l.Denials(math.MaxInt)["shop"]
			if want := float64(1000 + frequent); denials.PerSecond != want {
				t.Fatalf("after %d s %v are denied a second, want %v", i+1, denials.PerSecond, want)
			}
			if first := denials.Keys[0]; frequent > 0 && (first.Hash != l.Hash(id(0)) || first.Share > 0.2 || first.Share < 0.15) {
				t.Fatalf("after %d s most denials are of %+v, want a share of 0.2", i+1, first)
			}
		}
	}
}

// TestTicksOutOfOrder checks that a time slightly before the last one, from a concurrent caller,
// does not end the interval.
func TestTicksOutOfOrder(t *testing.T) {
	l, d := testLive(Hashed)
	now := begin
	for range 60 {
		for range 10 {
			d.RecordDenial(&Denial{ID: id(1)})
		}
		now = now.Add(time.Second)
		l.Tick(now)
		l.Tick(now.Add(-time.Second))
		l.Tick(now)
		if keys := l.keys(); len(keys) != 1 || keys[0].PerSecond != 10 {
			t.Fatalf("%v after the start the keys are %+v, want 10 denials a second", now.Sub(begin), keys)
		}
	}
}

// TestKeysOfAClockThatIsSetAhead checks that keys stay with all of their denials, and are removed
// as usual.
func TestKeysOfAClockThatIsSetAhead(t *testing.T) {
	for _, ahead := range []time.Duration{time.Minute, time.Hour, 50 * 365 * 24 * time.Hour} {
		l, now := deniedTwenty()
		for _, now := range []time.Time{now.Add(interval), now.Add(interval + ahead), now.Add(interval)} {
			l.Tick(now)
			if keys := l.keys(); len(keys) != 1 || keys[0].Denied != 20 || keys[0].Since.After(now) || keys[0].Last.After(now) {
				t.Errorf("set ahead by %v: %+v at %v, want the key with 20 denials before", ahead, keys, now)
			}
		}
		checkKeysAreRemoved(t, l, now, fmt.Sprintf("set ahead by %v", ahead))
	}
}

// TestPenaltyOfAnyLength checks that the end of a penalty is never before now.
func TestPenaltyOfAnyLength(t *testing.T) {
	for _, left := range []time.Duration{1, time.Second, math.MaxInt64 - 1, math.MaxInt64} {
		l, d := testLive(Hashed)
		d.RecordDenial(&Denial{ID: id(1)})
		d.RecordPenalty(id(1), left)
		if k := l.keys()[0]; k.PenaltyUntil == nil || !k.PenaltyUntil.After(begin) {
			t.Errorf("penalty of %v: the key is %+v, want a later end", left, k)
		}
	}
}

// TestRateAfterAReset forgets a key, as a reset or a reload without its limit does. Its denials
// stay in the rate of the domain.
func TestRateAfterAReset(t *testing.T) {
	set := compile(t, twoLimits)
	for name, forget := range map[string]func(*Recorder, *Domain){
		"reset": func(_ *Recorder, d *Domain) { d.Forget(id(1)) },
		"load": func(l *Recorder, _ *Domain) {
			l.SetRules(compile(t, "{domain: shop, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 9}}]}"))
		},
	} {
		l, _ := testLive(Hashed)
		d := l.SetRules(set)[0]
		for range 50 {
			d.RecordDenial(&Denial{ID: id(1), Limit: set.Limits[0]})
			d.RecordDenial(&Denial{ID: id(2), Limit: set.Limits[1], Duplicate: true})
		}
		forget(l, d)
		if all := l.Denials(math.MaxInt)["shop"]; all == nil || all.PerSecond != 50 || len(all.Keys) != 1 || all.Keys[0].Share != 1 {
			t.Errorf("after a %s the denials are %+v, want 50 descriptors a second, all of the other key", name, all)
		}
	}
}

// TestRatesOfDenialsAfterTheClockIsSet checks the rates of a key and of its domain when the clock
// is set.
func TestRatesOfDenialsAfterTheClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-2 * time.Second, -time.Minute, -time.Hour, time.Minute, time.Hour} {
		for _, clients := range []int{1, 10_000} { // one client, or enough to replace keys constantly
			l, d := testLive(Hashed)
			now, next := begin, 0
			for i := range 120 {
				if i == 60 {
					now = now.Add(by)
				}
				for range 1000 {
					d.RecordDenial(&Denial{ID: id(next % clients)})
					next++
				}
				now = now.Add(time.Second)
				l.Tick(now)
				denials := l.Denials(math.MaxInt)["shop"]
				if r := denials.PerSecond; r > 2000 || r < 500 || (i < 60 || i > 75) && r != 1000 {
					t.Errorf("%d s after the clock was set by %v: %v denials a second, want 1000", i-60, by, r)
				}
				if r := denials.Keys[0].PerSecond; clients == 1 && r != denials.PerSecond {
					t.Errorf("%d s after the clock was set by %v: the key has %v denials a second, want all %v", i-60, by, r, denials.PerSecond)
				}
			}
		}
	}
}
