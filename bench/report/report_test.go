package report

import (
	"strings"
	"testing"
)

func TestOver(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{4, 1}, Spread{2.5, 1, 4}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5}},
	} {
		if got := Over(len(test.values), func(i int) float64 { return test.values[i] }); got != test.want {
			t.Errorf("over %v = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestCommand(t *testing.T) {
	var b strings.Builder
	p := &Page{W: &b}
	p.Command("suite", []string{"-rounds", "3", "-cases", "", "-peer", "it's=$A"})
	if got, want := b.String(), "    cd bench && go run ./suite -rounds 3 -cases '' -peer 'it'\\''s=$A'\n\n"; got != want {
		t.Errorf("Command writes %q, want %q", got, want)
	}
}
