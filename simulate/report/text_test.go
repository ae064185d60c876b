package report

import (
	"strings"
	"testing"
	"time"
)

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Millisecond: "5ms", 61 * time.Second: "1m1s", 10 * time.Minute: "10m", 34*time.Minute + 10*time.Second: "34m10s", 26 * time.Hour: "1d2h00m",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestUnused(t *testing.T) {
	for _, tt := range []struct {
		limits, unused int
		want           string
	}{
		{1, 1, "1 other limit"},
		{2, 1200, "1,200 other limits"},
		{0, 3, "any limit: sluice explain shows the rule of a descriptor"},
		{0, 0, "a limit, because the rules have none"},
	} {
		if got := (&Outcome{Limits: make([]Limit, tt.limits), Unused: tt.unused}).unused(); got != tt.want {
			t.Errorf("%d limits with hits and %d without: no requests for %s, want %s", tt.limits, tt.unused, got, tt.want)
		}
	}
}

// TestMoreKeys formats negative numbers as fewer.
func TestMoreKeys(t *testing.T) {
	for n, want := range map[int]string{0: "0 more keys", 1: "1 more key", 1200: "1,200 more keys", -1: "1 fewer key", -2: "2 fewer keys"} {
		if got := moreKeys(n); got != want {
			t.Errorf("moreKeys(%d) = %s, want %s", n, got, want)
		}
	}
}

// TestShortenedKeysDiffer has keys of a long rule, as Envoy Gateway names them, which end in the
// client.
func TestShortenedKeysDiffer(t *testing.T) {
	route := strings.Repeat("httproute/default/shop/rule/0/", 8)
	a, b := &Key{Name: route + "#aaaa"}, &Key{Name: route + "#bbbb"}
	if a.shown() == b.shown() || !strings.HasSuffix(a.shown(), "#aaaa") || len(a.shown()) > 130 {
		t.Errorf("shown = %q and %q, want different names of bounded length", a.shown(), b.shown())
	}
}
