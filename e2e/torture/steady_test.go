//go:build torture

package torture_test

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/torture"
)

func TestMain(m *testing.M) {
	serveAsChild()
	os.Exit(torture.Main(m))
}

// TestSteady does nothing to sluice: what the others find is then their doing.
func TestSteady(t *testing.T) {
	rnd := torture.Rand(t)
	ledger := torture.NewLedger(100, 50)
	s := torture.Start(t, torture.Options{Rules: ledger.Rules()})
	watch := torture.StartWatch(t, s)
	load := torture.StartLoad(t, torture.LoadOptions{
		Rate: torture.Rate, Ask: ledger.Caller(t, s.Addr("grpc"), rnd),
	})
	load.Run(t, torture.Pick(2*time.Second, 10*time.Second))
	report := load.Stop(t)
	report.AtLeast(t, torture.Least, "before")
	report.NoErrors(t, "before")
	ledger.Settle(t, s)
	watch.Stop(t)
}
