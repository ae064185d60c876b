package simulated_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/simulate"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// countedLimit is the limit per address and minute.
const countedLimit = 20

// TestCounts compares simulate with an independent program, count.py, for each kind of log.
func TestCounts(t *testing.T) {
	zone := time.FixedZone("", 3600)
	agents := []string{"curl/8", `a \\\"quoted\\\" agent`, "Mozilla/5.0 (X11; Linux x86_64)", "-"}
	for name, kind := range counted {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(29, uint64(len(name))))
			var log strings.Builder
			for i := range 5000 {
				r := request{
					at:      time.Date(2026, 11, 21, 10, 0, 0, 0, zone).Add(time.Duration(i) * 120 * time.Millisecond),
					address: fmt.Sprintf("192.0.2.%d", int(60*random.Float64()*random.Float64())), path: fmt.Sprintf("/a%d?b=c", i%7),
					status: 200 + i%5, agent: agents[random.IntN(len(agents))],
				}
				if name != "nginx-json" { // this log is already JSON
					r.agent = strings.ReplaceAll(r.agent, `\\\"`, `\"`)
				}
				log.WriteString(kind.line(&r) + "\n")
			}
			found := compareCounts(t, name, []byte(log.String()))
			if found.Bad > 0 || found.Requests != 5000 || found.Rules.Denied == 0 {
				t.Errorf("%d requests, %d denied, %d bad lines: %v", found.Requests, found.Rules.Denied, found.Bad, found.FirstBad)
			}
		})
	}
}

// TestCountsOfForeignLogs does the same for foreign logs in the folder SLUICE_LOGS, which
// testdata/others.sh extracts from public repositories.
func TestCountsOfForeignLogs(t *testing.T) {
	dir := os.Getenv("SLUICE_LOGS")
	if dir == "" {
		suite.Skip(t, "set SLUICE_LOGS to a folder with logs, which testdata/others.sh creates")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no logs: %v", dir, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			log, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(filepath.Base(file), ".")
			found := compareCounts(t, kind, log)
			t.Logf("%d requests, %d denied, %d keys, %d bad lines: %v", found.Requests, found.Rules.Denied, found.Rules.Keys, found.Bad, found.FirstBad)
		})
	}
}

// compareCounts simulates a log without specifying its format and compares the result with
// count.py.
func compareCounts(t *testing.T, kind string, log []byte) *report.Report {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		suite.Skip(t, "python3, which runs count.py, is not installed")
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/count.py", kind, strconv.Itoa(countedLimit))
	cmd.Stdin = bytes.NewReader(log)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("count.py: %v\n%s", err, stderr.String())
	}
	var want struct {
		Requests, Denied uint64
		Hits, Over       map[string]uint64
	}
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	found := simulateCounted(t, kind, log)
	if found.Requests != want.Requests || found.Rules.Denied != want.Denied || found.Rules.Keys != len(want.Hits) || found.Late > 0 {
		t.Errorf("%d requests, %d denied, %d keys, %d late, want %d, %d, %d, 0; %d bad lines: %v",
			found.Requests, found.Rules.Denied, found.Rules.Keys, found.Late, want.Requests, want.Denied, len(want.Hits), found.Bad, found.FirstBad)
	}
	for _, l := range found.Rules.Limits {
		if l.KeysOver != len(want.Over) {
			t.Errorf("%d keys over the limit, want %d", l.KeysOver, len(want.Over))
		}
		for _, k := range append(l.Largest, l.MostOver...) {
			address := strings.TrimPrefix(k.Name, "address=")
			if k.Hits != want.Hits[address] || k.Over != want.Over[address] {
				t.Errorf("%s has %d hits, %d over, want %d, %d", address, k.Hits, k.Over, want.Hits[address], want.Over[address])
			}
		}
	}
	return found
}

func simulateCounted(t *testing.T, kind string, log []byte) *report.Report {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := fmt.Sprintf("domain: shop\ndescriptors: [{ key: address, rate_limit: { unit: minute, requests_per_unit: %d } }]\n", countedLimit)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, diagnostics, err := source.Load([]string{rules}, "", descriptors.Options{})
	if err != nil || set == nil {
		t.Fatal(err, diagnostics)
	}
	address := "address={downstream_remote_address}"
	if counted[kind].hasPort {
		address = "address={downstream_remote_address|ip}"
	}
	template, err := simulate.ParseTemplate(address)
	if err != nil {
		t.Fatal(err)
	}
	found, err := simulate.Run(t.Context(), simulate.Options{
		Logs:  []accesslog.Log{{Name: kind, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(log)), nil }}},
		Rules: set, Templates: []*simulate.Template{template}, ShowValues: true,
		Now: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Reorder: 1 << 60, // accept any order of lines
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
