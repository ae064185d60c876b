package telemetry

import (
	"slices"
	"strings"
	"testing"
)

func TestTimersStandForTheHistogram(t *testing.T) {
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: addr})
	timers := func() []string {
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, l := range lines() {
			if v, ok := strings.CutPrefix(l, "ratelimit_server.ShouldRateLimit.response_time:"); ok {
				values = append(values, strings.TrimSuffix(v, "|ms"))
			}
		}
		return values
	}
	if got := timers(); len(got) != 0 {
		t.Errorf("timers are %v without requests", got)
	}
	for range 990 {
		m.ResponseTime.Observe(3e-6) // in the bucket from 2 us to 5 us
	}
	for range 10 {
		m.ResponseTime.Observe(20) // above all buckets
	}
	got := timers()
	if len(got) != maxTimerValues || got[0] != "0.002015" || got[98] != "0.004985" || got[99] != "1000.000000" {
		t.Errorf("timers are %v, want %d values, 99 of them from 0.002 to 0.005 and the last 1000", got, maxTimerValues)
	}
	m.ResponseTime.Observe(3e-6)
	if got := timers(); !slices.Equal(got, []string{"0.003500"}) {
		t.Errorf("timers are %v, want the one of the last interval", got)
	}
}
