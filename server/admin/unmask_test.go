package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestUnmask shows the values of denied keys for a time. The state, the metric and the log say until
// when, and who has asked for it.
func TestUnmask(t *testing.T) {
	s := servertest.Service(t, answer.Settings{}, shownRules)
	addr, logs := debugServer(t, s)
	deny := func() {
		for range 3 {
			servertest.Hit(t, s, "user", "al", 1, nil)
		}
	}
	shown := func() (string, *time.Time) {
		state := askState(t, addr, "")
		return state.Domains[0].DeniedKeys[0].Descriptor, state.UnmaskedUntil
	}
	deny()
	if text, until := shown(); text != "" || until != nil {
		t.Errorf("before, the key is %q, until %v", text, until)
	}
	before := time.Now()
	if code, _, body := askHTTP(t, http.MethodPost, "http://"+addr+admin.UnmaskPath+"?for=10m"); code != 200 || !strings.Contains(body, `"until": "2`) {
		t.Fatalf("the response is %d %s", code, body)
	}
	after := time.Now()
	deny()
	text, until := shown()
	const second = time.Second // until is rounded
	if text != "user=al" || until.Sub(before) < 10*time.Minute-second || until.Sub(after) > 10*time.Minute+second {
		t.Errorf("the key is %q until %v, want user=al for ten minutes from %v", text, until, before)
	}
	if got := testutil.ToFloat64(s.Metrics().UnmaskedUntil); got != float64(until.Unix()) {
		t.Errorf("the metric is %v, want %d", got, until.Unix())
	}
	if lines := logs.FilterMessage("values of denied keys are shown").All(); len(lines) != 1 || !strings.HasPrefix(lines[0].ContextMap()["by"].(string), "127.0.0.1:") {
		t.Errorf("the log is %+v, want a line with the caller", lines)
	}
	if code, _, body := askHTTP(t, http.MethodPost, "http://"+addr+admin.UnmaskPath+"?for=0s"); code != 200 || !strings.Contains(body, `"until": null`) {
		t.Fatalf("the response is %d %s", code, body)
	}
	if text, until := shown(); text != "" || until != nil || testutil.ToFloat64(s.Metrics().UnmaskedUntil) != 0 {
		t.Errorf("after the end, the key is %q, until %v", text, until)
	}
}

// TestUnmaskEndsByItself has the time of a request pass, while the clock of the host is set back.
func TestUnmaskEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Service(t, answer.Settings{}, shownRules)
		core, logs := observer.New(zap.InfoLevel)
		a := newAPI(t, s, zap.New(core))
		if err := s.Recorder().Unmask(time.Now(), 0, time.Hour); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			servertest.Hit(t, s, "user", "al", 1, nil)
		}
		time.Sleep(time.Hour - time.Second)
		if k := a.State(time.Now(), admin.AllRules).Domains[0].DeniedKeys; len(k) != 1 || k[0].Descriptor != "user=al" {
			t.Errorf("before the end the keys are %+v, want user=al", k)
		}
		time.Sleep(time.Second)
		state := a.State(time.Now().Add(-30*time.Minute), admin.AllRules)
		if k := state.Domains[0].DeniedKeys; state.UnmaskedUntil != nil || len(k) != 1 || k[0].Descriptor != "" {
			t.Errorf("after an hour the keys are %+v until %v, want no value", k, state.UnmaskedUntil)
		}
		if logs.FilterMessageSnippet("no longer shown").Len() != 1 {
			t.Errorf("the log is %+v, want a line about the end", logs.All())
		}
	})
}

// TestUnmaskRejectsBadRequests checks the status and the message.
func TestUnmaskRejectsBadRequests(t *testing.T) {
	for _, tt := range []struct {
		mode, method, query string
		code                int
		want                string
	}{
		{live.Hashed, http.MethodGet, "?for=1m", 405, "method GET is not allowed, only POST"},
		{live.Hashed, http.MethodPost, "", 400, "must be a duration such as 10m"},
		{live.Hashed, http.MethodPost, "?for=10", 400, "must be a duration such as 10m"},
		{live.Hashed, http.MethodPost, "?for=2h", 400, "must be 0 to 1h0m0s"},
		{live.Hashed, http.MethodPost, "?for=-1s", 400, "must be 0 to 1h0m0s"},
		{live.Hashed, http.MethodPost, "?for=1m&for=2m", 400, "only one"},
		{live.Hashed, http.MethodPost, "?until=1m", 400, "unknown parameter"},
		{live.HashedOnly, http.MethodPost, "?for=1m", 409, "--top-keys=hashed-only"},
		{live.Off, http.MethodPost, "?for=1m", 409, "--top-keys=off"},
		{live.Clear, http.MethodPost, "?for=1m", 409, "--top-keys=clear"},
	} {
		addr, _ := debugServer(t, servertest.Service(t, answer.Settings{TopKeys: tt.mode}, shownRules))
		code, _, body := askHTTP(t, tt.method, "http://"+addr+admin.UnmaskPath+tt.query)
		if code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s%s: %d %s, want %d with %q", tt.mode, tt.method, tt.query, code, body, tt.code, tt.want)
		}
	}
}
