//go:build torture

package torture

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestOtherClocks runs sluice with a monotonic clock far from this machine's, as after months of
// uptime or just after boot.
func TestOtherClocks(t *testing.T) {
	up, err := os.ReadFile("/proc/uptime")
	must.OK(t, err)
	seconds, err := strconv.ParseFloat(strings.Fields(string(up))[0], 64)
	must.OK(t, err)
	for _, offset := range []int{1_000_000, -min(1_000_000, int(seconds)-5)} {
		t.Run(strconv.Itoa(offset), func(t *testing.T) {
			shifted := []string{"unshare", "--time", "--monotonic", strconv.Itoa(offset), "--boottime", strconv.Itoa(offset)}
			if out, err := exec.CommandContext(t.Context(), shifted[0], append(shifted[1:], "true")...).CombinedOutput(); err != nil {
				suite.SkipWithoutNamespaces(t, fmt.Sprintf("time namespaces, which need root: %v: %s", err, strings.TrimSpace(string(out))))
			}
			rnd := Rand(t)
			ledger := NewLedger(200, 100)
			s := Start(t, Options{Rules: ledger.Rules(), Prepare: RunUnder(shifted...)})
			load := StartLoad(t, LoadOptions{Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd)})
			load.Run(t, Pick(time.Second, 10*time.Second))
			report := load.Stop(t)
			report.AtLeast(t, MinRate, "before")
			report.NoErrors(t, "before")
			ledger.CheckCounters(t, s)
		})
	}
}
