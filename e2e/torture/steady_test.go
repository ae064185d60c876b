//go:build torture

package torture

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	serveAsChild()
	os.Exit(Main(m))
}

// TestSteady injects no fault, to show that the findings of other tests are caused by their faults.
func TestSteady(t *testing.T) {
	rnd := Rand(t)
	ledger := NewLedger(100, 50)
	s := Start(t, Options{Rules: ledger.Rules()})
	watch := StartWatch(t, s)
	load := StartLoad(t, LoadOptions{
		Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd),
	})
	load.Run(t, Pick(2*time.Second, 10*time.Second))
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before")
	report.NoErrors(t, "before")
	ledger.CheckCounters(t, s)
	watch.Stop(t)
}
