package rules

import (
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // independent of the machine's time zones

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestCalendarBitsDiffer checks that all calendars have different counters: calendarBits differs
// for each zone of the IANA database, each unit and each anchor day.
func TestCalendarBitsDiffer(t *testing.T) {
	names, err := os.ReadFile("testdata/zones.txt")
	must.OK(t, err)
	zones := strings.Fields(string(names))
	seen := map[uint64]string{}
	for unit, by := range calendarUnits {
		for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow} {
			p := limiter.Policy{Algorithm: algorithm, Window: time.Duration(unit.Seconds()) * time.Second}
			add := func(text string) {
				for _, candidate := range []bool{false, true} {
					word := CounterKind(&p, candidate)
					if other, ok := seen[word]; ok {
						t.Errorf("%s and %s have the same counters", text, other)
					}
					seen[word] = text
				}
			}
			add("no calendar")
			for _, name := range zones {
				for anchor := 1; anchor <= 31; anchor++ {
					p.Calendar = limiter.NewCalendar(time.FixedZone(name, 0), anchor).WithUnit(by)
					kind, _ := AppendKind(nil, &p)
					add(string(kind))
					if by != limiter.Months {
						break
					}
				}
			}
		}
	}
	if len(seen) < 500*(3+31)*4 {
		t.Errorf("%d words of %d zones", len(seen), len(zones))
	}
}

func TestZoneMistakes(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "UTC": true, "Europe/Berlin": true, "Etc/GMT+5": true, "America/Argentina/Buenos_Aires": true,
		"Local": false, "Europe/Berln": false, "CEST": false, "+01:00": false, "../zoneinfo/UTC": false, "/etc/localtime": false, "Europe": false, "zone.tab": false,
	} {
		if wrong := ZoneMistake(name); (wrong == "") != ok {
			t.Errorf("ZoneMistake(%q) = %q, want a mistake: %t", name, wrong, !ok)
		}
	}
}
