package builtin

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

var update = flag.Bool("update", false, "write what clients get of scripts to testdata")

// TestScripts plays scripts, and compares their results with testdata. With -update it writes the
// testdata.
func TestScripts(t *testing.T) {
	path := filepath.Join("testdata", "scripts.txt")
	recorded, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := map[string]string{}
	for part := range strings.SplitSeq(string(recorded), "\n== ") {
		name, lines, _ := strings.Cut(part, "\n")
		want[strings.TrimPrefix(name, "== ")] = lines
	}
	var all bytes.Buffer
	for _, tt := range slices.Concat(callScripts, streamScripts, closingScripts) {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t)
			s.begin()
			tt.plays(s)
			got := s.transcript(t)
			fmt.Fprintf(&all, "== %s\n%s\n", tt.name, got)
			if diff := cmp.Diff(want[tt.name], got); diff != "" && !*update {
				t.Errorf("the result differs: -want +got\n%s", diff)
			}
		})
	}
	if *update {
		must.OK(t, os.WriteFile(path, bytes.TrimSuffix(all.Bytes(), []byte("\n")), 0o644))
	}
}

const scriptRules = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 3}}, " +
	"{key: held, rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 100}}]}"

// transcript plays a script and describes the result. The test fails if it depends on how the input
// is fragmented.
func (s *script) transcript(t *testing.T) string {
	t.Helper()
	pieces := rand.New(rand.NewPCG(1, uint64(len(s.steps))))
	var whole, cut string
	synctest.Test(t, func(t *testing.T) { whole = s.play(t, func(size int) int { return size }) })
	synctest.Test(t, func(t *testing.T) {
		cut = s.play(t, func(size int) int { return 1 + pieces.IntN(min(size, 20+size/20)) })
	})
	if diff := cmp.Diff(whole, cut); diff != "" {
		t.Errorf("the result depends on the fragments: -complete +fragmented\n%s", diff)
	}
	return whole
}

// play plays a script and describes the result. piece is called with the number of bytes left in a
// step, and returns how many to send next.
func (s *script) play(t *testing.T, piece func(left int) int) string {
	t.Helper()
	p := newPlayer(t, s.limit, insecure.NewCredentials())
	defer p.stop()
	for at, step := range s.steps {
		for rest := step.bytes; len(rest) > 0; {
			n := piece(len(rest))
			p.queue <- rest[:n]
			rest = rest[n:]
		}
		// A millisecond is enough for shorter waits, such as that of yield.
		time.Sleep(step.waits + time.Millisecond)
		synctest.Wait()
		p.recordFrames(t, at)
		if p.ended >= 0 || p.goAway != nil {
			return s.describe(p, at)
		}
	}
	return s.describe(p, len(s.steps))
}

// describe describes the result, with a line for each distinct reply and its streams, and one for
// the connection. Frames received in the step in which the connection is closed, over, are omitted,
// because they may or may not arrive.
func (s *script) describe(p *player, over int) string {
	var lines []string
	of := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(p.streams)) {
		o := p.streams[id]
		if o.last >= over {
			continue
		}
		line := o.describe(s.requests[id])
		if of[line] == nil {
			lines = append(lines, line)
		}
		of[line] = append(of[line], strconv.FormatUint(uint64(id), 10))
	}
	var all strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&all, "%s: %s\n", strings.Join(of[line], " "), line)
	}
	for _, e := range p.events {
		if e.at < over {
			fmt.Fprintf(&all, "step %d: %s\n", e.at, e.text)
		}
	}
	switch {
	case p.goAway != nil:
		fmt.Fprintf(&all, "step %d: GOAWAY %v, last stream %d, %q\n", over, p.goAway.ErrCode, p.goAway.LastStreamID, p.reason)
	case p.ended >= 0:
		fmt.Fprintf(&all, "step %d: the connection ends\n", over)
	}
	return all.String()
}
