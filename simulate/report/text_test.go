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

// TestWorst has two bins with the most hits over the limit.
func TestWorst(t *testing.T) {
	o := &Outcome{BinSeconds: 60}
	got := o.worst(&Limit{Timeline: []Bin{{Hits: 9}, {Hits: 2, Over: 2}, {Hits: 9, Over: 3}, {Hits: 4, Over: 3}}})
	if want := (worstBin{o.BinStart.Add(2 * time.Minute), Bin{9, 3}}); got == nil || *got != want {
		t.Errorf("the worst bin is %+v, want %+v", got, want)
	}
	if got := o.worst(&Limit{Timeline: []Bin{{Hits: 9}}}); got != nil {
		t.Errorf("without hits over the limit, the worst bin is %+v", got)
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
