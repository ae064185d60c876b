//go:build more

package usage_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// noticed are the limits of the rules with notices. Fixed windows come first.
var noticed = []limit{
	{"fixed", "fixed", "fixed", 100, 0, eight + "notify_at: [0.25, 0.5, 1], count_refused: false"},
	{"list", "fixed", "first", 150, 0, "unit: year, calendar: true, notify_at: 0.5"},
	{"list", "fixed", "second", 120, 0, eight + "notify_at: [0.1, 1]"},
	{"tabled", "fixed", "tabled", 50, 0, eight + "notify_at: [0.5], table: rows, count_refused: false"},
	{"sliding", "sliding", "sliding", 80, 0, eight + "algorithm: sliding_window, sub_windows: 4, notify_at: [0.5, 1]"},
	{"log", "log", "log", 80, 0, eight + "algorithm: sliding_log, notify_at: 0.9"},
	{"bucket", "bucket", "bucket", 40, 90, eight + "algorithm: token_bucket, burst: 90, notify_at: [0.5]"},
}

// shares are the values of notify_at.
var shares = map[string][]float64{
	"fixed": {0.25, 0.5, 1}, "first": {0.5}, "second": {0.1, 1}, "tabled": {0.5}, "sliding": {0.5, 1}, "log": {0.9}, "bucket": {0.5},
}

// notice is a line of the log.
type notice struct {
	Message, Domain, Rule, Name string
	Share                       float64
	Used                        int
	WindowEnd                   time.Time `json:"window_end"`
}

// notices returns the notices in the logs, and the number of those that were dropped.
func (s *service) notices(t *testing.T) (all []notice, dropped int) {
	t.Helper()
	for _, one := range s.sluices {
		for line := range strings.Lines(one.Log()) {
			var n notice
			if strings.Contains(line, "limit_notice") && json.Unmarshal([]byte(strings.Replace(line, "@message", "message", 1)), &n) == nil {
				all = append(all, n)
			}
		}
		dropped += int(suite.Metrics(t, one).Sum("sluice_limit_notices_dropped_total"))
	}
	return all, dropped
}

// TestNotices compares the notices with the shares that the hits of a client reach.
func TestNotices(t *testing.T) {
	for mode, replicas := range map[string]int{"memory": 1, "store": 2, "blocks": 2} {
		t.Run(mode, func(t *testing.T) {
			args := []string(nil)
			if mode == "blocks" {
				args = []string{"--store-blocks", "auto"}
			}
			s := start(t, replicas, rulesOf(noticed, 4, false), args...)
			want := map[string]int{}
			for d := range 4 {
				r := rand.New(rand.NewPCG(2, uint64(d)))
				g := &ledger{fmt.Sprint("d", d), mode, noticed, map[string]int{}, nil}
				at := map[string]bool{} // replicas that have written a line, by counter and share
				for range 120 {
					one, replica, hits := noticed[r.IntN(len(noticed))].key+"=v1", r.IntN(replicas), 1+r.IntN(12)
					if r.IntN(8) == 0 && mode != "blocks" {
						hits = -hits
					}
					before := maps.Clone(g.used)
					g.send(t, s.clients[replica], one, hits)
					for _, l := range noticed {
						n := max(l.n, l.burst)
						if l.name == "tabled" {
							n = rows["v1"]
						}
						for _, share := range shares[l.name] {
							line := fmt.Sprint(g.domain, " ", l.key, " ", l.name, " ", share)
							written := fmt.Sprint(line, replica)
							limit := share * float64(n)
							if float64(before[one+l.name]) < limit && float64(g.used[one+l.name]) >= limit && (l.kind == "fixed" || !at[written]) {
								want[line]++
								at[written] = true
							}
						}
					}
				}
			}
			total := 0
			for _, n := range want {
				total += n
			}
			suite.Eventually(t, "all notices are written", func() bool {
				all, dropped := s.notices(t)
				return len(all)+dropped >= total
			})
			all, dropped := s.notices(t)
			got := map[string]int{}
			for _, n := range all {
				got[fmt.Sprint(n.Domain, " ", n.Rule, " ", n.Name, " ", n.Share)]++
				if n.WindowEnd.Before(time.Now()) || n.Used == 0 {
					t.Errorf("notice %+v", n)
				}
			}
			if dropped == 0 && mode != "blocks" && !maps.Equal(got, want) {
				t.Errorf("%d notices\ngot  %v\nwant %v", total, got, want)
			}
			for line := range want {
				if dropped == 0 && got[line] == 0 {
					t.Errorf("no notice for %s", line)
				}
			}
			t.Logf("%d notices of %d, %d dropped", len(all), total, dropped)
		})
	}
}

// TestFloodOfNotices has thousands of keys that use up their limit.
func TestFloodOfNotices(t *testing.T) {
	one := limit{"fixed", "fixed", "fixed", 1, 0, eight + "notify_at: 1"}
	s := start(t, 1, rulesOf([]limit{one}, 1, false))
	g := &ledger{"d0", "memory", []limit{one}, map[string]int{}, nil}
	began, total := time.Now(), effort.Times(t, 300)
	for i := range total {
		g.send(t, s.clients[0], fmt.Sprint("fixed=", i), 1)
	}
	suite.Eventually(t, "all notices are written or counted", func() bool {
		all, dropped := s.notices(t)
		return len(all)+dropped == total
	})
	all, dropped := s.notices(t)
	if most := 100 * (2 + int(time.Since(began).Seconds())); len(all) > most {
		t.Errorf("%d lines and %d dropped in %v, want at most %d lines", len(all), dropped, time.Since(began), most)
	}
}
