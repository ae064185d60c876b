package admin

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestTokensExpire checks how long a preview may be confirmed.
func TestTokensExpire(t *testing.T) {
	h := newResetHandler(nil)
	which := live.Selection{Domain: "d"}
	now := time.Unix(1_700_000_000, 0)
	token := h.newToken(which, now.Add(tokenLife))
	if err := h.checkToken(token, which, now.Add(tokenLife)); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	if err := h.checkToken(token, which, now.Add(tokenLife+time.Second)); err == nil {
		t.Error("after more than a minute the token still confirms")
	}
	for _, bad := range []string{"", ".", "99999999999.", token + "0", "x" + token, strings.Replace(token, "17", "18", 1)} {
		if err := h.checkToken(bad, which, now); err == nil {
			t.Errorf("%q confirms", bad)
		}
	}
}

func FuzzCounterQuery(f *testing.F) {
	f.Add("domain=d&descriptor=k=v,k2=v2&limit=5/hour")
	f.Add("domain=&descriptor=%")
	f.Fuzz(func(t *testing.T, query string) {
		domain, text, d, err := parseCounterQuery(query)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 1000+4*len(query) {
				t.Errorf("parseCounterQuery(%q) = %q", query, err)
			}
			return
		}
		values, _ := url.ParseQuery(query)
		if domain == "" || domain != values.Get("domain") || text != values.Get("descriptor") || d.HasHits || d.Refund {
			t.Errorf("parseCounterQuery(%q) = %q, %q, %+v", query, domain, text, d)
		}
	})
}

// TestPanicOfTheWatchIsCaught makes Tick panic. The panic is counted.
func TestPanicOfTheWatchIsCaught(t *testing.T) {
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &API{metrics: m, panics: telemetry.NewPanics(m.Panics, zap.NewNop())} // without a service
	a.Tick(time.Unix(1, 0))
	if got := testutil.ToFloat64(m.Panics); got != 1 {
		t.Errorf("%v panics counted, want 1", got)
	}
}
