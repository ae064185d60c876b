package server

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestOpenDebugListenerIsLogged checks the log line of a debug listener that is not on
// loopback, and that clients of another address cannot use /counters.
func TestOpenDebugListenerIsLogged(t *testing.T) {
	const warning = "the debug listener has no authentication and is reachable from other machines; counters and state are only available from this machine"
	for addr, want := range map[string]int{"0.0.0.0:0": 1, "[::]:0": 1, "127.0.0.1:0": 0, "[::1]:0": 0, abstractSocket(t): 0} {
		core, logs := observer.New(zap.WarnLevel)
		s := service(t, answer.Settings{}, oneRule)
		srv := New(Options{DebugAddr: addr}, s, zap.New(core))
		if err := srv.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.closeListeners()
		if n := logs.FilterMessage(warning).Len(); n != want {
			t.Errorf("on %s it warns %d times, want %d", addr, n, want)
		}
	}
}

// abstractSocket returns an abstract socket address that no other process uses. Such names are
// shared by all processes of the machine.
func abstractSocket(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("unix:@%s-%d", t.Name(), os.Getpid())
}

func TestCountersOverAUnixSocket(t *testing.T) {
	s := service(t, answer.Settings{}, shownRules)
	addr := abstractSocket(t)
	serve(t, s, Options{DebugAddr: addr})
	servertest.Hit(t, s, "user", "a&b=c", 2, nil)
	c := &client.Debug{Addr: addr}
	expectUsed := func(descriptor string, want uint64) {
		t.Helper()
		report, err := c.Counters(t.Context(), client.CounterQuery{Domain: "d", Descriptor: descriptor})
		if err != nil || report.Counters[0].Used != want {
			t.Errorf("the counter is %+v, error %v, want %d used", report, err, want)
		}
	}
	expectUsed(`user=a&b\=c`, 2)
	long := strings.Repeat("ü", 30_000) // fits a request of 64 KiB, and needs six bytes per character in a query
	servertest.Hit(t, s, "user", long, 3, nil)
	expectUsed("user="+long, 3)
	_, err := c.Counters(t.Context(), client.CounterQuery{Domain: "d", Descriptor: "user=" + strings.Repeat(long, 10)})
	if err == nil || !strings.Contains(err.Error(), "the descriptor is too long for a query") {
		t.Errorf("the error for a descriptor that is too long is %v", err)
	}
	if _, err := (&client.Debug{Addr: "unix:@nobody"}).Counters(t.Context(), client.CounterQuery{}); err == nil {
		t.Error("a request to an address without a listener succeeds, want an error")
	}
}
