//go:build torture

package torture

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestSIGTERMAtAnyMoment sends SIGTERM at a random time after the start, while clients connect.
// Sluice exits with 0, or is ended by the signal if that arrived before the handler was installed.
// It leaves nothing that prevents the next start.
func TestSIGTERMAtAnyMoment(t *testing.T) {
	Parallel(t)
	rnd := Rand(t)
	ledger := NewLedger(100, 1000)
	rules := suite.WriteRules(t, ledger.Rules())
	socket := filepath.Join(t.TempDir(), "sluice")
	tcp := []string{storetest.FreeAddress(t), storetest.FreeAddress(t), storetest.FreeAddress(t), storetest.FreeAddress(t)}
	flags := func(grpc string) []string {
		return []string{
			"serve", "--log-format=json", "--config=" + rules, "--grpc-addr=" + grpc,
			"--http-addr=" + tcp[1], "--debug-addr=" + tcp[2], "--metrics-addr=" + tcp[3],
		}
	}
	client := rls.NewRateLimitServiceClient(Dial(t, tcp[0]))
	load := StartLoad(t, LoadOptions{Rate: 200, Call: func(ctx context.Context) (string, error) {
		got, err := client.ShouldRateLimit(ctx, Request(Key{Rule: "fixed_window", Value: "any"}))
		if err != nil {
			return "", errors.New(status.Code(err).String())
		}
		return got.GetOverallCode().String(), nil
	}})

	starts := Pick(100, 1000)
	early, before, served := 0, 0, 0
	// Starts take longer on a busy machine. The bound of the random time is adapted, so that some
	// processes end before they serve and some after.
	within := 50 * time.Millisecond
	for n := range starts {
		grpc := tcp[0]
		if n%4 == 3 {
			grpc = "unix://" + socket
		}
		p, err := process.Start(exec.Command(binary, flags(grpc)...))
		must.OK(t, err)
		t.Cleanup(p.Kill)
		time.Sleep(time.Duration(rnd.Int64N(int64(within)))) // part of the test, not a wait
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		code, err := p.Stop(ctx)
		cancel()
		if err != nil {
			t.Fatalf("start %d: %v", n, err)
		}
		log := p.Log()
		switch {
		case code == -1 && log == "":
			early++
		case code != 0:
			t.Errorf("start %d: exit code %d, want 0; its log:\n%s", n, code, log)
		case strings.Contains(log, `"draining"`):
			served++
			within -= within / 8 // decreases more slowly than the other case increases
		default:
			before++
		}
		within += within / 16
		if strings.Contains(log, "panic") {
			t.Errorf("start %d: its log:\n%s", n, log)
		}
		for _, addr := range tcp {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatalf("start %d: its address is still in use after its exit: %v", n, err)
			}
			l.Close()
		}
		if _, err := os.Stat(socket); code == 0 && err == nil {
			t.Errorf("start %d: did not remove %s", n, socket)
		}
	}
	report := load.Stop(t)
	report.Errors(t, "before", "Unavailable")
	t.Logf("%d starts: %d ended by the signal, %d before serving, %d after a drain", starts, early, before, served)
	if served == 0 || early+before == 0 {
		t.Error("want some exits before serving and some after")
	}

	// A socket left by kill -9 does not prevent a start.
	stale, err := process.Start(exec.Command(binary, flags("unix://"+socket)...))
	must.OK(t, err)
	t.Cleanup(stale.Kill)
	suite.Eventually(t, "sluice listens", func() bool { return strings.Count(stale.Log(), `"listening"`) == 4 })
	must.OK(t, stale.Signal(syscall.SIGKILL))
	if _, err := stale.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := Start(t, Options{
		Args:  []string{"--config", rules},
		Addrs: map[string]string{"grpc": "unix://" + socket, "http": tcp[1], "debug": tcp[2], "metrics": tcp[3]},
	})
	steady := StartLoad(t, LoadOptions{
		Rate: Rate, Call: ledger.Caller(t, last.Addr("grpc"), rnd),
	})
	steady.Run(t, time.Second)
	again := steady.Stop(t)
	again.AtLeast(t, MinRate, "before")
	again.NoErrors(t, "before")
	ledger.CheckCounters(t, last)
}
