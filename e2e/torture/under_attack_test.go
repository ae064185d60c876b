//go:build torture

package torture

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const (
	// victimRate is the load of other clients, in calls per second.
	victimRate = 500
	// minVictimRate is the required number of answers per second before the attack, for a
	// significant run, and after it.
	minVictimRate = 50
	// maxMemory is the maximum increase of resident memory by an attack, in bytes.
	maxMemory = 64 << 20
)

// attackerRule is the rule for attackers, which never denies.
const attackerRule = "  - { key: attacker, rate_limit: { unit: year, requests_per_unit: 4294967295 } }"

// harm is the effect of an attack on other clients.
type harm struct {
	late float64 // share of late calls
	more int     // peak increase of resident memory in bytes
}

// checkMemory fails the test if an attack used too much memory; more is added to the allowed bytes.
// In the short tier, on busy machines, the garbage collector may be late by some 32 MiB. The race
// detector uses up to ten times as much memory.
func (h harm) checkMemory(t *testing.T, more int) {
	t.Helper()
	most := maxMemory + more + Pick(32<<20, 0)
	if *raced {
		most *= 10
	}
	if h.more > most {
		t.Errorf("memory grew by %d MiB, want at most %d", h.more>>20, most>>20)
	}
}

func (h harm) String() string { return fmt.Sprintf("%.1f %%, %d MiB", 100*h.late, h.more>>20) }

// runUnderAttack starts sluice, calls it from other clients and runs the attack. It checks the
// other clients' answers, and afterwards files and goroutines. settled, which may be nil,
// checks more at the end.
func runUnderAttack(t *testing.T, o Options, attack, settled func(*sluice.Sluice)) harm {
	t.Helper()
	rnd := Rand(t)
	ledger := NewLedger(4096, 50)
	o.Rules = ledger.Rules(attackerRule)
	s := Start(t, o)
	load := StartLoad(t, LoadOptions{Rate: victimRate, Call: ledger.Caller(t, s.Addr("grpc"), rnd)})
	load.Run(t, Pick(300*time.Millisecond, time.Second))
	CollectGarbage(t, s)
	ResetPeak(t, s)
	before := Measure(t, s)

	load.Phase("attack")
	attack(s)
	load.Phase("after")
	load.AwaitAnswers(t, minVictimRate) // independent of the duration of queued calls
	var now Usage
	defer func() { t.Logf("now: %v", now) }()
	report := load.Stop(t)
	report.AtLeast(t, minVictimRate, "before")
	report.NoErrors(t, "before", "attack", "after")
	t.Logf("before: %v", before)
	suite.Eventually(t, "goroutines and files are as before", func() bool {
		now = Measure(t, s)
		return now.Goroutines <= before.Goroutines && now.Files <= before.Files
	})
	ledger.CheckCounters(t, s)
	if settled != nil {
		settled(s)
	}
	s.Kill()
	return harm{late: report.Phase(t, "attack").Late(Deadline), more: now.Peak - before.RSS}
}
