//go:build torture

package torture

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const (
	// victimRate is how many calls a second others make meanwhile.
	victimRate = 500
	// minVictimRate is how many calls a second must be answered before, or the run says
	// nothing. Afterwards the same number must be.
	minVictimRate = 50
	// maxMemory is how many resident bytes an attack may cost.
	maxMemory = 64 << 20
)

// attackerRules are the attackers' rules: one never denies, one soon does, and one is divided among Envoys.
var attackerRules = []string{
	"  - { key: attacker, rate_limit: { unit: year, requests_per_unit: 4294967295 } }",
	"  - { key: few, rate_limit: { unit: year, requests_per_unit: 10 } }",
	"  - { key: divided, rate_limit: { unit: second, requests_per_unit: 1000, algorithm: token_bucket, quota: {} } }",
}

// harm is what an attack did to others.
type harm struct {
	late float64 // share of calls
	more int     // bytes resident at most, above before
}

// checkMemory fails the test if an attack cost too much memory; more is what this one may
// cost beside others. The short tier runs on busy machines, where the collector may be late
// by some 32 MiB. The race detector itself takes up to ten times as much.
func (h harm) checkMemory(t *testing.T, more int) {
	t.Helper()
	most := maxMemory + more + Pick(32<<20, 0)
	if *raced {
		most *= 10
	}
	if h.more > most {
		t.Errorf("%d MiB above before, want at most %d", h.more>>20, most>>20)
	}
}

func (h harm) String() string { return fmt.Sprintf("%.1f %%, %d MiB", 100*h.late, h.more>>20) }

// runUnderAttack runs a sluice that others call, and attacks it. It checks the others' answers,
// and files and goroutines afterwards. settled looks at what is left then; it may be nil.
// The others connect with options.
func runUnderAttack(t *testing.T, o Options, attack, settled func(*sluice.Sluice), options ...grpc.DialOption) harm {
	t.Helper()
	rnd := Rand(t)
	ledger := NewLedger(4096, 50)
	o.Rules = ledger.Rules(attackerRules...)
	s := Start(t, o)
	load := StartLoad(t, LoadOptions{Rate: victimRate, Call: ledger.Caller(t, s.Addr("grpc"), rnd, options...)})
	load.Run(t, Pick(300*time.Millisecond, time.Second))
	CollectGarbage(t, s)
	ResetPeak(t, s)
	before := Measure(t, s)

	load.Phase("attack")
	attack(s)
	load.Phase("after")
	load.AwaitAnswers(t, minVictimRate) // however long what waits takes
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
	ledger.CheckCounters(t, s, options...)
	if settled != nil {
		settled(s)
	}
	s.Kill()
	return harm{late: report.Phase(t, "attack").Late(Deadline), more: now.Peak - before.RSS}
}
