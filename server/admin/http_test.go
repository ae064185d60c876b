package admin

import (
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

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
