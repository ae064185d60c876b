package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestSlowScrapesDoNotExcludeOthers checks that clients that do not read their metrics exclude only
// themselves.
func TestSlowScrapesDoNotExcludeOthers(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	s := &scrapeHandler{byAddress: map[netip.Addr]int{}, metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	})}
	scrape := func(from string) int {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	var running sync.WaitGroup
	begin := func(from string) {
		running.Go(func() {
			if code := scrape(from); code != http.StatusOK {
				t.Errorf("a scrape from %s gets %d, want 200", from, code)
			}
		})
		<-began
	}
	begin("192.0.2.1:1000")
	begin("192.0.2.1:1001")
	if code := scrape("192.0.2.1:1002"); code != http.StatusServiceUnavailable {
		t.Errorf("the third scrape of an address gets %d, want 503", code)
	}
	begin("[2001:db8:1::1]:1")
	begin("[2001:db8:1::2]:1") // the same /64 prefix, so the same client
	for _, from := range []string{"192.0.2.2:1", "192.0.2.3:1", "[2001:db8::1]:1", "@"} {
		begin(from)
		if code := scrape(from); code != http.StatusServiceUnavailable {
			t.Errorf("with half of the scrapes in flight, the second scrape of %s gets %d, want 503", from, code)
		}
	}
	if code := scrape("192.0.2.7:1"); code != http.StatusServiceUnavailable {
		t.Errorf("the ninth scrape gets %d, want 503", code)
	}
	close(release)
	running.Wait()
	if s.total != 0 || len(s.byAddress) != 0 {
		t.Errorf("%d scrapes are counted after their end, by address %v; want none", s.total, s.byAddress)
	}
}

// TestResponsesHaveADeadline checks that each response must be read in time, and that the duration
// of a profile is added.
func TestResponsesHaveADeadline(t *testing.T) {
	h := newHTTPServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), maxHTTPHead, zap.NewNop()).Handler
	for target, want := range map[string]time.Duration{
		"/metrics": 10 * time.Second, "/metrics?seconds=50": 10 * time.Second, "/debug/pprof/trace?seconds=1.5": 11500 * time.Millisecond,
		"/debug/pprof/profile": 40 * time.Second, "/debug/pprof/profile?seconds=1e300": time.Hour + 10*time.Second, "/debug/pprof/profile?seconds=x": 40 * time.Second,
	} {
		w := &servertest.DeadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		after := time.Now()
		if len(w.Set) != 1 || w.Set[0].Before(before.Add(want)) || w.Set[0].After(after.Add(want)) {
			t.Errorf("%s: deadlines %v, requested between %v and %v, want one %v later", target, w.Set, before, after, want)
		}
	}
}
