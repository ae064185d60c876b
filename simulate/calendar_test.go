package simulate

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestCalendarWindows checks that demand is counted in calendar windows.
func TestCalendarWindows(t *testing.T) {
	w := &windows{seconds: 30 * 86400, calendar: limiter.NewCalendar(time.UTC, 15).WithUnit(limiter.Months)}
	at := func(month time.Month, day, hour int) uint32 {
		return w.number(time.Date(2026, month, day, hour, 0, 0, 0, time.UTC).Unix())
	}
	if at(3, 15, 0) != at(4, 14, 23) || at(4, 15, 0) == at(4, 14, 23) || at(1, 31, 0) == at(2, 28, 0) {
		t.Error("windows do not start on the 15th")
	}
}
