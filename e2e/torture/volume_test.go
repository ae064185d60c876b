//go:build torture

package torture

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// maxReloadTime is the time limit for a new version to become active. The documented time is 2 s,
// but the tests share the machine.
const maxReloadTime = 10 * time.Second

// TestVolume updates two files of a mounted ConfigMap under load, as the kubelet does. The kubelet
// pauses after a different step in each update. In every second update it is killed there and
// starts again. Either the old or the new version of both files is active at any time.
func TestVolume(t *testing.T) {
	Parallel(t)
	rnd := Rand(t)
	ledger := NewLedger(200, 100)
	dir := t.TempDir()
	files := func(version int) map[string]string {
		changes := fmt.Sprintf("  - { key: changes, rate_limit: { unit: hour, requests_per_unit: %d } }", version)
		return map[string]string{"rules.yaml": ledger.Rules(changes), "other.yaml": "domain: other\ndescriptors:\n" + changes + "\n"}
	}
	must.OK(t, volumetest.Update(dir, files(1)))
	s := Start(t, Options{Args: []string{"--config", dir}})
	// activeVersion returns the active version.
	activeVersion := func() int {
		page := suite.Metrics(t, s)
		var of []int
		for _, domain := range []string{"torture", "other"} {
			of = append(of, int(page.Sum("sluice_rule_limit_requests", fmt.Sprintf("domain=%q", domain), `key1="changes"`)))
		}
		if of[0] != of[1] {
			t.Fatalf("versions %v of the two files are active together", of)
		}
		return of[0]
	}
	load := StartLoad(t, LoadOptions{Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd)})
	var latest, sum time.Duration
	updates := Pick(20, 100)
	for version := 2; version < 2+updates; version++ {
		var swapped time.Time
		delay := time.Duration(0)
		isActive := func() bool {
			switch got := activeVersion(); {
			case got != version && got != version-1, got == version && swapped.IsZero():
				t.Fatalf("version %d is active, want %d, or %d after the swap", got, version-1, version)
			case got == version && delay == 0:
				delay = time.Since(swapped)
			}
			return delay > 0
		}
		play := func(steps []volumetest.Step, pause int) {
			for i, step := range steps {
				if err := step.Do(); err != nil {
					t.Fatalf("%s: %v", step.Name, err)
				}
				if step.Name == volumetest.Swap {
					swapped = time.Now()
				}
				if i == pause { // sluice has time to read twice
					for until := time.Now().Add(250 * time.Millisecond); time.Now().Before(until); {
						isActive()
						load.AwaitAnswers(t, 5)
					}
				}
			}
		}
		steps := volumetest.Steps(dir, files(version), version%4 < 2)
		pause := version % len(steps)
		if version%2 == 0 {
			play(steps[:pause+1], pause)
			steps, pause = volumetest.Steps(dir, files(version), version%4 < 2), -1
		}
		play(steps, pause)
		suite.Eventually(t, fmt.Sprintf("version %d is active", version), isActive)
		latest, sum = max(latest, delay), sum+delay
	}
	load.AwaitAnswers(t, MinRate)
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before")
	report.NoErrors(t, "before")
	ledger.CheckCounters(t, s)
	t.Logf("%d updates became active on average %v after the swap, at most %v", updates, sum/time.Duration(updates), latest)
	if Long() && latest > maxReloadTime {
		t.Errorf("an update became active after %v, want at most %v", latest, maxReloadTime)
	}
	page := suite.Metrics(t, s)
	if got := page.Sum("ratelimit_service_config_load_error"); got > 0 {
		t.Errorf("%v updates were rejected, want none; log of sluice:\n%s", got, s.Log())
	}
}
