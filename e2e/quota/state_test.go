package quota_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestStateShowsShares has two Envoys share a limit and then kills one. The state, its page, top,
// explain and the metric show the shares, without the names of clients.
func TestStateShowsShares(t *testing.T) {
	t.Parallel()
	s := start(t, rules100, 2)
	for i := range s.envoys {
		suite.Eventually(t, "each Envoy has a share", func() bool { return s.request(t.Context(), t, i, "al") })
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range s.envoys {
		load.Go(func() { s.load(ctx, t, i, "al", 10*time.Millisecond) })
	}

	var b bucket
	suite.Eventually(t, "two shares", func() bool {
		b = s.largest(t)
		return len(b.Shares) == 2 && b.Shares[0].Confirmed && b.Shares[1].Confirmed && b.Shares[1].Share > 20
	})
	if b.Holders != 2 || b.Limit != 100 || b.Assigned > 100.001 || b.Rule != "user > api=all" || b.Hash == "" || b.Descriptor != "" {
		t.Errorf("the bucket is %+v", b)
	}
	suite.Eventually(t, "the metric", func() bool {
		ratio := s.metric(t, "sluice_quota_assigned_ratio", `domain="d"`, `key1="user"`, `key2="api_all"`, `limit=""`, `rule="user.api_all"`)
		return ratio > 0.5 && ratio <= 1
	})
	explain := s.runCommand(t, "explain", "--addr", s.sluice.Addr("debug"), "-d", "d", "--descriptor", "user=al,api=all")
	if !strings.Contains(explain, "divided: ") || !strings.Contains(explain, "of 100, ") && !strings.Contains(explain, "of 100.0, ") || !strings.Contains(explain, "2 Envoys, stream ") {
		t.Errorf("explain prints\n%s", explain)
	}
	cancel()
	load.Wait()
	s.envoys[1].Kill()
	suite.Eventually(t, "a lost rate", func() bool { b := s.largest(t); return b.Holders == 1 && b.Lost > 0 && b.LostUntil != "" })
}

// bucket is a divided limit in the state of sluice.
type bucket struct {
	Rule       string  `json:"rule"`
	Hash       string  `json:"hash"`
	Descriptor string  `json:"descriptor"`
	Limit      float64 `json:"limit_per_second"`
	Assigned   float64 `json:"assigned_per_second"`
	Lost       float64 `json:"lost_per_second"`
	LostUntil  string  `json:"lost_until"`
	Holders    int     `json:"holders"`
	Shares     []struct {
		Share     float64 `json:"share_per_second"`
		Confirmed bool    `json:"confirmed"`
	} `json:"shares"`
}

// largest returns the bucket with the most demand, or the zero bucket if there is none.
func (s *harness) largest(t *testing.T) bucket {
	t.Helper()
	var state struct {
		Quota struct {
			Largest []bucket `json:"largest"`
		} `json:"quota"`
	}
	must.OK(t, json.Unmarshal([]byte(s.getDebug(t, "/api/v1/state")), &state))
	if len(state.Quota.Largest) == 0 {
		return bucket{}
	}
	return state.Quota.Largest[0]
}

// getDebug gets a page of the debug listener.
func (s *harness) getDebug(t *testing.T, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.sluice.Addr("debug")+path, http.NoBody)
	must.OK(t, err)
	reply, err := s.client.Do(r)
	must.OK(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	must.OK(t, err)
	return string(text)
}

// runCommand runs a sluice command and returns its output.
func (s *harness) runCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sluiceBinary, args...).CombinedOutput()
	if err != nil {
		t.Errorf("sluice %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
