package main

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/load"
	"github.com/sluice-ratelimit/sluice/bench/report"
)

func TestParseSample(t *testing.T) {
	for _, test := range []struct {
		line string
		want sample
	}{
		{"BenchmarkA/k=1-8  \t 100\t 12.5 ns/op\t 48 B/op\t 2 allocs/op\n", sample{"BenchmarkA/k=1", 12.5, 48, 2}},
		{"BenchmarkA/k=x-y 100 12.5 ns/op", sample{"BenchmarkA/k=x-y", 12.5, 0, 0}},
		{"BenchmarkA 100 12.5 ns/op 9.25 cpu-ns/op 0 B/op 0 allocs/op", sample{"BenchmarkA", 9.25, 0, 0}},
	} {
		if got, ok := parseSample(test.line); !ok || got != test.want {
			t.Errorf("parseSample(%q) = %v, %v, want %v", test.line, got, ok, test.want)
		}
	}
	for _, line := range []string{"", "PASS", "ok pkg 1.2s", "BenchmarkA", "BenchmarkA-8 100 x ns/op", "BenchmarkA-8 100 12 MB/s", "goos: linux"} {
		if got, ok := parseSample(line); ok {
			t.Errorf("parseSample(%q) = %v, want none", line, got)
		}
	}
}

func TestParsePercents(t *testing.T) {
	if got, err := parsePercents("100,400"); err != nil || !slices.Equal(got, []int{100, 400}) {
		t.Errorf("parsePercents(100,400) = %v, %v", got, err)
	}
	for _, bad := range []string{"", "100,", "0", "-1", "off"} {
		if got, err := parsePercents(bad); err == nil {
			t.Errorf("parsePercents(%q) = %v, want an error", bad, got)
		}
	}
}

func TestCaseTable(t *testing.T) {
	round := func(cpu, rate float64) *load.Result {
		return &load.Result{PerSecond: rate, Servers: []load.Server{{CPU: cpu, RSS: 3 << 20, PeakRSS: 4 << 20}}}
	}
	var out strings.Builder
	p := &page{Page: report.Page{W: &out}}
	p.caseTable(&benchCase{title: "a case", entries: "k=%d"}, []*service{{name: "base"}, {name: "other"}}, [][]*load.Result{
		{round(10, 100), round(20, 300), round(40, 200)},
		{round(5, 1000), round(5, 1000), round(30, 1000)},
	})
	for _, want := range []string{
		"| base | 200 | 20.0 (10.0) | 1.00 (1.00 to 1.00) | 0 / 0 | 3.0 (4.0) |\n",
		"| other | 1000 | 5.0 (5.0) | 0.50 (0.25 to 0.75) | 0 / 0 | 3.0 (4.0) |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table:\n%s\nwant in it %q", &out, want)
		}
	}
}

func TestAllCasesAreKnownByName(t *testing.T) {
	for _, c := range allCases {
		o, err := parse([]string{"-cases", c.name}, io.Discard)
		if err != nil || len(o.cases) != 1 || o.cases[0].title != c.title {
			t.Errorf("-cases %s = %+v, %v", c.name, o, err)
		}
	}
	if _, err := parse([]string{"-cases", "closed,nothing"}, io.Discard); err == nil {
		t.Error("an unknown case has no error")
	}
}

// TestLimiters measures all limiters for as short as possible and reads the table.
func TestLimiters(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	b := &builder{dir: t.TempDir(), progress: io.Discard}
	if err := b.findRoot(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := &options{rounds: 1, counters: 2000, benchtime: time.Millisecond}
	found, err := inRounds(t.Context(), b, o, limiters)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	p := &page{Page: report.Page{W: &out}}
	p.limiters(o, found)
	for _, want := range []string{"sluice/fixed_window", reference, "sluice/leaky_bucket", "sluice/sliding_window", "sluice/sliding_log", "golang.org/x/time/rate", "ulule/limiter"} {
		if !strings.Contains(out.String(), "\n| "+want+" | ") {
			t.Errorf("no row of %s", want)
		}
	}
	if n := strings.Count(out.String(), "–"); n != 1 { // uber-go/ratelimit never denies
		t.Errorf("%d times were not measured, want 1", n)
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("%q in the table", bad)
		}
	}
	if t.Failed() {
		t.Log(&out)
	}
}

func TestTimeCell(t *testing.T) {
	slow, fast := []sample{{nanos: 30}, {nanos: 60}, {nanos: 60}}, []sample{{nanos: 10}, {nanos: 20}, {nanos: 15}}
	if got := timeCell(slow, fast); got != "60 (3.0)" {
		t.Errorf("cell %q, want the median and the ratio within rounds", got)
	}
	if got := timeCell(nil, fast); got != "–" {
		t.Errorf("cell of nothing %q, want a dash", got)
	}
}

// TestServices starts the services for a case and loads them for as short as possible.
func TestServices(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	var out strings.Builder
	args := []string{"-cases", "denied", "-benchmarks=false", "-limiters=false", "-rounds", "1", "-duration", "500ms", "-warmup", "1ms"}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n| no-op, grpc-go as it comes | ", "\n| " + whole + " | "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, &out)
		}
	}
}
