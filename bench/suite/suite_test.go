package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

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

func TestAddresses(t *testing.T) {
	for _, test := range []struct {
		find       func(string) (string, bool)
		line, want string
	}{
		{noopAddress, "listening on 127.0.0.1:5\n", "127.0.0.1:5"},
		{noopAddress, "what", ""},
		{sluiceAddress, `{"@message":"listening","listener":"grpc","addr":"127.0.0.1:5"}` + "\n", "127.0.0.1:5"},
		{sluiceAddress, `{"@message":"listening","listener":"http","addr":"127.0.0.1:6"}`, ""},
		{sluiceAddress, `{"@message":"starting"}`, ""},
		{sluiceAddress, "panic: no JSON", ""},
	} {
		got, ok := test.find(test.line)
		if ok != (test.want != "") || ok && got != test.want {
			t.Errorf("address in %q = %q, %v, want %q", test.line, got, ok, test.want)
		}
	}
}

func TestAddressWriterJoinsPieces(t *testing.T) {
	w := &addressWriter{find: noopAddress, found: make(chan string, 1)}
	for _, piece := range []string{"hello\nlisten", "ing on 127.0.", "0.1:80", "81\nlistening on other\n"} {
		if _, err := io.WriteString(w, piece); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-w.found; got != "127.0.0.1:8081" {
		t.Errorf("address = %q, want 127.0.0.1:8081", got)
	}
}

func TestParsePeer(t *testing.T) {
	p, err := parsePeer("limitador=127.0.0.1:1=12,34")
	if err != nil || p.name != "limitador" || p.addr != "127.0.0.1:1" || len(p.pids) != 2 || p.pids[1] != 34 {
		t.Errorf("parsePeer = %+v, %v", p, err)
	}
	for _, bad := range []string{"", "a", "a=b", "=b=1", "a=b=", "a=b=x", "a==1"} {
		if p, err := parsePeer(bad); err == nil {
			t.Errorf("parsePeer(%q) = %+v, want an error", bad, p)
		}
	}
}

func TestCaseTable(t *testing.T) {
	round := func(cpu, rate float64) load.Result {
		return load.Result{PerSecond: rate, Servers: []load.Server{{CPU: cpu / 2, RSS: 1 << 20}, {CPU: cpu / 2, RSS: 2 << 20}}}
	}
	var out strings.Builder
	p := &page{Page: report.Page{W: &out}}
	p.caseTable(&benchCase{title: "a case", entries: "k=%d"}, []*service{{name: "base"}, {name: "other"}}, [][]load.Result{
		{round(10, 100), round(20, 300), round(40, 200)},
		{round(5, 1000), round(5, 1000), round(30, 1000)},
	})
	for _, want := range []string{
		"| base | 200 | 20.0 (10.0) | 0 / 0 | 3.0 | 1.00 (1.00 to 1.00) |\n",
		"| other | 1000 | 5.0 (5.0) | 0 / 0 | 3.0 | 0.50 (0.25 to 0.75) |\n",
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

// TestStopEndsTheProcess starts this test itself as a service.
func TestStopEndsTheProcess(t *testing.T) {
	if os.Getenv("SUITE_TEST_SERVE") != "" {
		_, _ = io.WriteString(os.Stdout, "listening on 127.0.0.1:1\n")
		select {}
	}
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM")
	}
	t.Setenv("SUITE_TEST_SERVE", "1")
	s := &service{name: "test", path: os.Args[0], args: []string{"-test.run=^TestStopEndsTheProcess$"}, address: noopAddress}
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if s.addr != "127.0.0.1:1" || s.cmd.ProcessState == nil {
		t.Errorf("addr %q, state %v, want an address and an ended process", s.addr, s.cmd.ProcessState)
	}
}
