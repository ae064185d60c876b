package answer

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
)

// TestSpellsOfAClockThatIsSetBack holds that what was wrong ends a minute later, by whatever clock, and that nothing is made
// wrong by a clock.
func TestSpellsOfAClockThatIsSetBack(t *testing.T) {
	n := uint64(0)
	s := &spell{read: func() uint64 { return n }}
	now := time.Unix(1_700_000_000, 0)
	tick := func(grows uint64) bool {
		now = now.Add(time.Second)
		n += grows
		s.tick(now)
		return s.wrong(now) != nil
	}
	if tick(0) {
		t.Error("it is wrong before anything was")
	}
	if !tick(1) {
		t.Error("it is not wrong")
	}
	now = now.Add(-time.Hour)
	if !tick(0) || s.since.After(now) {
		t.Errorf("it is wrong since %v, want %v at most", s.since, now)
	}
	for i := range 100 {
		if got, want := tick(0), i < 60; got != want {
			t.Errorf("%d s after the clock was set back it is wrong: %t, want %t", i+1, got, want)
		}
	}
	now = now.Add(-time.Hour)
	if tick(0) {
		t.Error("the clock made it wrong")
	}
}

// TestWrongHasTheNewestFirst holds the order of what is wrong, from the log and from counts.
func TestWrongHasTheNewestFirst(t *testing.T) {
	s := service(t, Settings{}, "{domain: d, descriptors: [{key: k, unlimited: true}]}")
	s.metrics.Events.Watch(zap.NewNop()).Warn("draining")
	now := time.Now().Add(time.Hour)
	s.Tick(now)
	s.metrics.RejectedConnections.Inc()
	var kinds []string
	for _, w := range s.State(now.Add(time.Second), AllRules).Wrong {
		kinds = append(kinds, w.Kind)
	}
	if want := []string{"connections_rejected", "draining"}; !slices.Equal(kinds, want) {
		t.Errorf("wrong are %v, want %v", kinds, want)
	}
}
