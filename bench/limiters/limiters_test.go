package main

import (
	"context"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/report"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// all are the contenders of a run.
func all(t *testing.T) *run {
	t.Helper()
	m := newRun(&options{rounds: 1, slice: time.Millisecond, counters: 2000, fresh: 2000, many: 2000}, io.Discard)
	for _, n := range m.notes {
		t.Log(n)
	}
	return m
}

// TestContendersLimit holds that what is measured is what the case is about.
func TestContendersLimit(t *testing.T) {
	for _, c := range all(t).contenders {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range []purpose{admitting, denying} {
				if c.baseline || kind == denying && c.neverDenies {
					continue
				}
				s, err := c.open(setting{100, kind})
				if err != nil {
					t.Fatal(err)
				}
				if s.close != nil {
					defer func() { _ = s.close() }()
				}
				if got := fresh(s.worker(), true)(100); got != 100 {
					t.Errorf("purpose %d: %d of 100 first hits admitted, want all", kind, got)
				}
				want := map[purpose]int{admitting: 100, denying: 0}[kind]
				if got := fresh(s.worker(), true)(100); got != want {
					t.Errorf("purpose %d: %d of 100 second hits admitted, want %d", kind, got, want)
				}
				if s.evicted != nil && s.evicted() != 0 {
					t.Errorf("purpose %d: %d counters evicted, want none", kind, s.evicted())
				}
			}
		})
	}
}

func TestGivenLimiters(t *testing.T) {
	m := all(t)
	batches := map[string][2]batch{xrate: {xrateGiven(false), xrateGiven(true)}}
	for i := range m.policies {
		var b [2]batch
		for j, deny := range []bool{false, true} {
			var err error
			if b[j], err = sluiceGiven(&m.policies[i], deny); err != nil {
				t.Fatal(err)
			}
		}
		batches[m.policies[i].title()] = b
	}
	for name, b := range batches {
		const n = 100_000
		// A fixed window begins half used, so denies some in its first second.
		if got := b[0](n); got < n*99/100 {
			t.Errorf("%s: %d of %d admitted, want nearly all", name, got, n)
		}
		if got := b[1](n); got != 0 {
			t.Errorf("%s: %d of %d admitted, want none", name, got, n)
		}
	}
}

func TestPairs(t *testing.T) {
	m := all(t)
	for i := range m.policies {
		for _, k := range []struct{ two, deny bool }{{false, false}, {true, false}, {true, true}} {
			b, err := pairs(&m.policies[i], k.two, k.deny)
			if err != nil {
				t.Fatal(err)
			}
			want := 10_000
			if k.deny {
				want = 0
			}
			if got := b(10_000); got != want {
				t.Errorf("%s, %+v: %d of 10000 admitted, want %d", m.policies[i].title(), k, got, want)
			}
		}
	}
}

func TestAPolicyThatIsAnotherDoesNotWork(t *testing.T) {
	p := policy{name: "test", oneWord: true, with: func(limit uint32, window time.Duration) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 2 * limit, Window: window}
	}}
	if err := p.works(); err != nil {
		t.Errorf("a fixed window: %v, want none", err)
	}
	good := p.with
	p.with = func(limit uint32, window time.Duration) limiter.Policy {
		bad := good(limit, window)
		bad.Algorithm = 99
		return bad
	}
	if err := p.works(); err == nil {
		t.Error("an unknown algorithm works")
	}
	p.with = func(limit uint32, window time.Duration) limiter.Policy {
		return limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit - 1, Window: window}
	}
	if err := p.works(); err == nil {
		t.Error("a policy that denies its limit works")
	}
}

func TestSequence(t *testing.T) {
	if got := slices.Max(sequence(1, true)); got != 0 {
		t.Errorf("numbers up to %d of one counter, want 0", got)
	}
	for _, zipf := range []bool{false, true} {
		numbers, first := sequence(1000, zipf), 0
		for _, n := range numbers {
			if n >= 1000 {
				t.Fatalf("zipf %v: number %d, want below 1000", zipf, n)
			}
			if n == 0 {
				first++
			}
		}
		// By Zipf's law number 0 has a share of 1/H(1000), about 0.13.
		want := map[bool]float64{false: 0.001, true: 0.136}[zipf]
		if got := float64(first) / float64(len(numbers)); math.Abs(got-want) > want/5 {
			t.Errorf("zipf %v: share of number 0 is %.4f, want about %.4f", zipf, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	if got, want := string(newKey(0x12ab)), "tenant=acme,user=000012ab,path=/api/v1/orders"; got != want {
		t.Errorf("key = %q, want %q", got, want)
	}
	// Threads begin in different places and come round.
	var seen []string
	w := func(key []byte) bool { seen = append(seen, string(key)); return false }
	if got := keyed(w, []uint32{1, 2, 3, 4}, 1)(3); got != 0 {
		t.Errorf("%d admitted, want 0", got)
	}
	if want := []string{string(newKey(3)), string(newKey(4)), string(newKey(1))}; !slices.Equal(seen, want) {
		t.Errorf("keys %q, want %q", seen, want)
	}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	var r results
	for _, ns := range []time.Duration{10, 20, 40} {
		r.add("x", "slow", use{decisions: 1, cpu: ns * 3, wall: ns})
		r.add("x", "fast", use{decisions: 1, cpu: ns, wall: ns})
	}
	if got, ok := r.ratio("x", "slow", "x", "fast"); !ok || got != (report.Spread{Median: 3, Least: 3, Greatest: 3}) {
		t.Errorf("ratio = %v, %v, want 3 in every round", got, ok)
	}
	if got, ok := r.ratio("x", "slow", "y", "fast"); ok {
		t.Errorf("ratio to what was not measured = %v", got)
	}
}

func TestGoalIsMissedByOne(t *testing.T) {
	g := goal{open: true}
	if got := g.verdict(); got != "not measured" {
		t.Errorf("verdict = %q, want not measured", got)
	}
	g.check("sluice, a", 3, "%.1f", true)
	if got := g.verdict(); got != "met" {
		t.Errorf("verdict = %q, want met", got)
	}
	g.check("sluice, b", 1, "%.1f", false)
	g.check("sluice, c", 4, "%.1f", true)
	if got := g.verdict(); got != "**missed**" || strings.Join(g.found, ", ") != "a 3.0, b 1.0, c 4.0" {
		t.Errorf("verdict = %q of %q, want missed", got, g.found)
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		args string
		want options
	}{
		{"", options{rounds: 15, slice: 50 * time.Millisecond, counters: 1_000_000, fresh: 250_000, many: 10_000_000}},
		{"-quick", options{rounds: 3, slice: 15 * time.Millisecond, counters: 300_000, fresh: 50_000, many: 300_000}},
		{"-quick -counters 5 -rounds 9", options{rounds: 9, slice: 15 * time.Millisecond, counters: 5, fresh: 50_000, many: 5}},
		{"-counters 5 -many 7 -new 6 -slice 1s", options{rounds: 15, slice: time.Second, counters: 5, fresh: 6, many: 7}},
	} {
		if got, err := parse(strings.Fields(test.args), io.Discard); err != nil || *got != test.want {
			t.Errorf("parse(%q) = %+v, %v, want %+v", test.args, got, err, test.want)
		}
	}
	for _, bad := range []string{"x", "-rounds -1", "-rounds 0", "-counters -2", "-new 1000000000", "-slice -1s"} {
		if got, err := parse(strings.Fields(bad), io.Discard); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", bad, got)
		}
	}
}

// TestRun measures everything for as short as possible and reads the tables.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the CPU time of threads")
	}
	m := all(t)
	ctx := context.Background()
	for _, step := range []func(context.Context) error{m.measureGiven, m.measurePairs, m.measureKeyed, m.measureNew} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	m.memory, m.collector = map[string]*footprint{}, map[string]*footprint{}
	for _, c := range m.contenders {
		if c.baseline {
			continue
		}
		found, err := occupy(c, m.o.counters)
		if err != nil {
			t.Fatal(err)
		}
		m.memory[c.name], m.collector[c.name] = found, found
	}
	var out strings.Builder
	p := &report.Page{W: &out}
	m.print(p, nil, 0.5)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	for _, c := range m.contenders {
		if !strings.Contains(out.String(), "\n| "+c.name+" | "+c.keys+" | ") {
			t.Errorf("no row of %s in the tables:\n%s", c.name, &out)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "not measured", "%!"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("%q in the tables:\n%s", bad, &out)
		}
	}
}

func TestOccupyUnknown(t *testing.T) {
	if err := writeMemory(io.Discard, nil, "nobody", 1); err == nil {
		t.Error("an unknown contender has no error")
	}
}
