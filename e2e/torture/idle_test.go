//go:build torture

package torture

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// maxConnectionMemory is the maximum resident memory of an idle connection, in bytes.
const maxConnectionMemory = 24 << 10

// maxConnectionStack is the maximum average stack of a connection of the built-in transport after
// its first calls, in bytes. A stack has 4 or 8 KiB.
const maxConnectionStack = 5 << 10

// TestIdleConnections opens many idle connections. Then each makes a call per second, and sends
// nothing until it receives a PING. Other clients call throughout.
func TestIdleConnections(t *testing.T) {
	// A process may have 20,000 open files, one per connection.
	const many = 10_000
	request := hostile.Request("torture", "attacker", "idle")
	h := runUnderAttack(t, Options{Args: []string{
		"--max-connections=20000", "--connection-timeout=10m", "--keepalive-time=2s", "--keepalive-timeout=10m",
	}}, func(s *sluice.Sluice) {
		before := Measure(t, s)
		open, frames := make([]net.Conn, many), make([]*http2.Framer, many)
		for i := range open {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr("grpc"))
			must.OK(t, err)
			defer c.Close()
			if _, err := c.Write(hostile.Preface()); err != nil {
				t.Fatal(err)
			}
			open[i], frames[i] = c, http2.NewFramer(nil, c)
		}
		suite.Eventually(t, "all connections are accepted", func() bool {
			return Measure(t, s).Files >= before.Files+many-8 // some of sluice's own files vary
		})
		for _, f := range frames { // wait until sluice has sent its SETTINGS
			await(t, f, http2.FrameSettings)
		}
		idle := Measure(t, s)
		each := (idle.RSS - before.RSS) / many
		t.Logf("%d idle connections use %d bytes each; %d MiB were resident before", many, each, before.RSS>>20)
		if each > maxConnectionMemory {
			t.Errorf("an idle connection uses %d bytes, want at most %d", each, maxConnectionMemory)
		}
		calls := suite.Metrics(t, s).Sum("ratelimit_service_total_requests")
		seconds := Pick(1, 5)
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for n := range uint32(seconds) {
			<-second.C
			for _, c := range open {
				if _, err := c.Write(hostile.CompleteCall(1+2*n, request)); err != nil {
					t.Fatal(err)
				}
			}
		}
		suite.Eventually(t, "all calls are counted", func() bool {
			return suite.Metrics(t, s).Sum("ratelimit_service_total_requests") >= calls+float64(many*seconds)
		})
		busy := Measure(t, s)
		t.Logf("with one call per second each, sluice uses %v", busy)
		for _, f := range frames { // sluice sends a PING to all, with few goroutines
			await(t, f, http2.FramePing)
		}
		stack := int(suite.Metrics(t, s).Sum("go_memstats_stack_inuse_bytes")) / many
		t.Logf("each connection uses %d bytes of stack", stack)
		if stack > maxConnectionStack && !*raced {
			t.Errorf("a connection uses %d bytes of stack, want at most %d", stack, maxConnectionStack)
		}
	}, nil)
	t.Log("effect on other clients: ", h)
}

// await reads frames up to one of the given type.
func await(t *testing.T, f *http2.Framer, want http2.FrameType) {
	t.Helper()
	for {
		got, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("no %v: %v", want, err)
		}
		if got.Header().Type == want {
			return
		}
	}
}
