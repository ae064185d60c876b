package main

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/report"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	e2e "github.com/sluice-ratelimit/sluice/e2e/suite"
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
			t.Errorf("parseSample(%q) = %v, want no sample", line, got)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	p := &page{Page: report.Page{W: &out}}
	q := &comparison{metrics: []metric{cpu, storeCPU}, cases: []benchCase{{title: "some load", goals: goals{"cpu": "3.5"}}}}
	p.printComparison(q, []*service{{name: "ours"}, {name: "theirs", store: true}}, measurements{{
		{{cpu: 10}, {cpu: 20}, {cpu: 40}},
		{{cpu: 5, storeCPU: 1}, {cpu: 5, storeCPU: 3}, {cpu: 30, storeCPU: 2}},
	}})
	for _, want := range []string{
		"| load | goal | ours | theirs |\n",
		"| some load | 3.5 | 20.0 (10.0 to 40.0) | 5.0 (0.50, 0.25 to 0.75) |\n",
		"| load | ours | theirs |\n",
		"| some load | – | 2.0 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables are\n%s\nwant them to contain %q", &out, want)
		}
	}
}

func TestChoose(t *testing.T) {
	for _, name := range caseNames() {
		var o options
		err := o.choose(name)
		chosen := len(o.logs)
		for _, q := range o.comparisons {
			chosen += len(q.cases)
		}
		if err != nil || chosen != 1 {
			t.Errorf("choose(%s) leaves %d cases, %v, want one", name, chosen, err)
		}
	}
	var all, none options
	if err := all.choose(strings.Join(caseNames(), ",")); err != nil || len(all.comparisons) != len(comparisons) || len(all.logs) != len(accessLogs) {
		t.Errorf("choose of all names leaves %d comparisons and %d logs, %v", len(all.comparisons), len(all.logs), err)
	}
	if err := none.choose(""); err != nil || len(none.comparisons) != 0 || len(none.logs) != 0 {
		t.Errorf("choose of no name leaves %+v, %v", none, err)
	}
	if err := none.choose("closed,nothing"); err == nil {
		t.Error("choose of an unknown case returns no error")
	}
}

// TestLimiters measures all limiters for the shortest time and checks the table.
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
	p.printLimiters(o, found)
	for _, want := range []string{"sluice/fixed_window", reference, "sluice/leaky_bucket", "sluice/sliding_window", "sluice/sliding_log", "golang.org/x/time/rate", "ulule/limiter"} {
		if !strings.Contains(out.String(), "\n| "+want+" | ") {
			t.Errorf("the table has no row %s", want)
		}
	}
	if n := strings.Count(out.String(), "–"); n != 1 { // uber-go/ratelimit never denies
		t.Errorf("%d times were not measured, want 1", n)
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("the table contains %q", bad)
		}
	}
	if t.Failed() {
		t.Log(&out)
	}
}

func TestTimeCell(t *testing.T) {
	slow, fast := []sample{{nanos: 30}, {nanos: 60}, {nanos: 60}}, []sample{{nanos: 10}, {nanos: 20}, {nanos: 15}}
	if got := timeCell(slow, fast); got != "60 (3.0)" {
		t.Errorf("cell %q, want the median, and the ratio by rounds", got)
	}
	if got := timeCell(nil, fast); got != "–" {
		t.Errorf("cell without samples %q, want a dash", got)
	}
}

// TestServices measures the services under each kind of load for the shortest time.
func TestServices(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	if _, err := envoy.Find("../.."); err != nil || os.Getenv("VALKEY_BIN") == "" {
		e2e.Skip(t, "the suite's services: run `make envoy valkey`, or set ENVOY_BIN and VALKEY_BIN")
	}
	var out strings.Builder
	args := []string{
		"-cases", "core,denied,two,envoy,limits,skewed,storedenied,blocksopen,json", "-lines", "2000", "-benchmarks=false", "-limiters=false",
		"-rounds", "1", "-duration", "300ms", "-warmup", "1ms",
	}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| load | goal | **sluice** | sluice over grpc-go | no-op, grpc-go |", "floor |\n",
		"\n| one core for the service | ", "\n| through Envoy, 32 connections to it | 6 | ",
		"| load | goal | **sluice, store** | ", "\n| the same, one with ten times the calls of another | ",
		"| load | goal | no limit | RLQS, one bucket | RLQS, 1,000 users | Envoy's local limit | a call per request (RLS) |\n",
		"\n| Envoy Gateway's JSON, 10,000 addresses | 8",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page does not contain %q:\n%s", want, &out)
		}
	}
}
