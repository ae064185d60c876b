package live

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

const unmaskRules = "{domain: shop, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]}"

// descriptorsOf returns the descriptors of the denied keys of the domain shop.
func descriptorsOf(l *Recorder) (all []string) {
	for _, k := range l.Denials(math.MaxInt)["shop"].Keys {
		all = append(all, k.Descriptor)
	}
	return all
}

// TestUnmask has keys that are denied before, during and after the time in which values are shown.
func TestUnmask(t *testing.T) {
	set := compile(t, unmaskRules)
	l := New(Hashed, identity.Key{1}, nil)
	d := l.SetRules(set)[0]
	deny := func(n int) {
		d.RecordDenial(&Denial{ID: id(n), Limit: set.Limits[0], Domain: "shop", Entries: entries(fmt.Sprint("user=", n))})
	}
	expect := func(when string, want ...string) {
		t.Helper()
		got := map[string]bool{}
		for _, text := range descriptorsOf(l) {
			if text != "" {
				got[text] = true
			}
		}
		for _, text := range want {
			if !got[text] {
				t.Errorf("%s: the key %s has no value", when, text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: the values are %v, want %v", when, got, want)
		}
	}
	l.Tick(begin)
	deny(1)
	deny(2)
	expect("before")
	if err := l.Unmask(begin, time.Hour, 10*time.Minute); err != nil || !l.UnmaskedUntil().Equal(begin.Add(10*time.Minute)) {
		t.Fatal(err, l.UnmaskedUntil())
	}
	expect("before the next denials")
	deny(1)
	deny(3)
	expect("after a known key and a new one were denied", "user=1", "user=3")
	if l.MaskExpired(time.Hour + 10*time.Minute - 1) {
		t.Error("values are removed too early")
	}
	if !l.MaskExpired(time.Hour+10*time.Minute) || !l.UnmaskedUntil().IsZero() {
		t.Error("values are not removed in time")
	}
	expect("after the time")
	deny(1)
	deny(4)
	expect("after later denials")

	if err := l.Unmask(begin, 0, MaxUnmask); err != nil {
		t.Fatal(err)
	}
	deny(4)
	expect("unmasked again", "user=4")
	stored := textsOf(t, d)
	if err := l.Unmask(begin, 0, 0); err != nil {
		t.Fatal(err)
	}
	expect("ended early")
	expectOverwritten(t, stored)
}

// textsOf returns the memory of the values of a domain.
func textsOf(t *testing.T, d *Domain) (stored []*[ways]text) {
	t.Helper()
	for i := range d.sketch.Load().texts.Load() {
		if all := d.sketch.Load().texts.Load()[i].all; all != nil {
			stored = append(stored, all)
		}
	}
	if len(stored) == 0 {
		t.Fatal("no values are stored")
	}
	return stored
}

// expectOverwritten checks that the memory of values contains none.
func expectOverwritten(t *testing.T, stored []*[ways]text) {
	t.Helper()
	for _, all := range stored {
		if *all != ([ways]text{}) {
			t.Errorf("values stay in memory: %q", all)
		}
	}
}

// TestValuesOfARemovedDomain removes a domain while its values are shown.
func TestValuesOfARemovedDomain(t *testing.T) {
	set := compile(t, unmaskRules)
	l := New(Hashed, identity.Key{1}, nil)
	d := l.SetRules(set)[0]
	if err := l.Unmask(begin, 0, time.Minute); err != nil {
		t.Fatal(err)
	}
	d.RecordDenial(&Denial{ID: id(1), Limit: set.Limits[0], Domain: "shop", Entries: entries("user=1")})
	stored := textsOf(t, d)
	l.SetRules(compile(t, "{domain: other}"))
	expectOverwritten(t, stored)
}

// TestUnmaskIsRejected passes durations and modes that are not allowed.
func TestUnmaskIsRejected(t *testing.T) {
	for _, tt := range []struct {
		mode string
		d    time.Duration
		want string
	}{
		{Off, time.Minute, "--top-keys=off"},
		{HashedOnly, time.Minute, "--top-keys=hashed-only"},
		{Clear, time.Minute, "--top-keys=clear"},
		{Hashed, -time.Second, "must be 0 to 1h0m0s"},
		{Hashed, MaxUnmask + 1, "must be 0 to 1h0m0s"},
	} {
		l := New(tt.mode, identity.Key{1}, nil)
		if err := l.Unmask(begin, 0, tt.d); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %v: the error is %v, want one with %q", tt.mode, tt.d, err, tt.want)
		}
		if !l.UnmaskedUntil().IsZero() || l.clear.Load() != (tt.mode == Clear) {
			t.Errorf("%s, %v: values are shown", tt.mode, tt.d)
		}
	}
}

// TestNoValueSurvivesItsTime denies keys concurrently while values are shown and hidden again.
func TestNoValueSurvivesItsTime(t *testing.T) {
	set := compile(t, unmaskRules)
	l := New(Hashed, identity.Key{1}, nil)
	d := l.SetRules(set)[0]
	l.Tick(begin)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for n := client; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				n := n % 1000
				d.RecordDenial(&Denial{ID: id(n), Limit: set.Limits[0], Domain: "shop", Entries: entries(fmt.Sprint("user=", n))})
			}
		})
	}
	for range 200 {
		if err := l.Unmask(begin, 0, time.Minute); err != nil {
			t.Fatal(err)
		}
		if all := l.Denials(math.MaxInt)["shop"]; all != nil {
			for _, k := range all.Keys {
				if k.Descriptor != "" && k.Hash != l.Hash(id(numberOf(t, k.Descriptor))) {
					t.Fatalf("the key %s has the value %s of another key", k.Hash, k.Descriptor)
				}
			}
		}
		l.MaskExpired(time.Minute)
		if all := l.Denials(math.MaxInt)["shop"]; all != nil {
			for _, k := range all.Keys {
				if k.Descriptor != "" {
					t.Fatalf("the value %s is shown after its time", k.Descriptor)
				}
			}
		}
	}
	close(stop)
	clients.Wait()
}

// numberOf returns the number of the key user=N.
func numberOf(t *testing.T, descriptor string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(descriptor, "user=%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}
