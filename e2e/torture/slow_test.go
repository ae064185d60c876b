//go:build torture

package torture

import (
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// slowCalls is the number of pending calls of a slow client.
const slowCalls = 50

// TestSlowClients has clients that read or write a byte at a time or not at all, and clients with
// exhausted windows, while others call. The long tier uses the default timeouts.
func TestSlowClients(t *testing.T) {
	Parallel(t)
	var args []string
	if !Long() {
		args = []string{"--keepalive-time=2s", "--keepalive-timeout=20s"} // a busy machine may answer late
	}
	each := Pick(50, 500)
	every := Pick(200*time.Millisecond, time.Second)
	request := hostile.Request("torture", "attacker", "slow")
	noWindow := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}
	h := runUnderAttack(t, Options{Args: args}, func(s *sluice.Sluice) {
		before := Measure(t, s)
		start := time.Now()
		var group sync.WaitGroup
		defer group.Wait()
		var all, withoutWindow []*hostile.Conn
		for name, m := range map[string]hostile.ConnOptions{
			"reads single bytes":    {ReadEvery: every},
			"never reads":           {NeverRead: true},
			"no window and no PONG": {Settings: noWindow, IgnorePings: true},
			"no window":             {Settings: noWindow},
		} {
			for range each {
				c := dialHostile(t, s, m)
				for i := range uint32(slowCalls) {
					must.OK(t, c.Call(1+2*i, request))
				}
				if name == "no window" {
					withoutWindow = append(withoutWindow, c)
				}
				all = append(all, c)
			}
		}
		for range each {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr("grpc"))
			must.OK(t, err)
			group.Go(func() { writeSlowly(t, c, request, every) })
		}
		// Not every client notices the end of its connection, so the open files of sluice are
		// counted.
		var now Usage
		for deadline := start.Add(2 * Patience); ; time.Sleep(100 * time.Millisecond) {
			if now = Measure(t, s); now.Files <= before.Files+len(withoutWindow) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d slow clients stay connected", now.Files-before.Files-len(withoutWindow), 4*each)
			}
		}
		t.Logf("%d slow clients were disconnected within %v; sluice uses %v", 4*each, time.Since(start).Round(time.Second), now)
		// The other clients answer PINGs, like any waiting client. Stream limits bound their
		// memory.
		for _, c := range withoutWindow {
			if isEnded(c) {
				t.Error("a client without window that answers PINGs was disconnected")
			}
		}
		for _, c := range all {
			_ = c.Close()
		}
	}, nil)
	t.Log("effect on other clients: ", h)
	if most := 5 * each << 20; h.more > most {
		t.Errorf("%d MiB more than before, want at most 1 per client, %d clients", h.more>>20, 5*each)
	}
}

// writeSlowly opens a connection and writes its calls one byte at a time, until sluice closes it.
func writeSlowly(t *testing.T, c net.Conn, request []byte, every time.Duration) {
	t.Helper()
	defer c.Close()
	if _, err := c.Write(hostile.Preface()); err != nil {
		t.Error(err)
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var text []byte
	for i := range uint32(slowCalls) {
		text = append(text, hostile.CompleteCall(1+2*i, request)...)
	}
	for i := range text {
		<-tick.C
		if _, err := c.Write(text[i : i+1]); err != nil {
			return
		}
	}
	t.Errorf("a slow client wrote all %d bytes without being disconnected", len(text))
}

// dialHostile connects, and closes the connection when the test ends.
func dialHostile(t *testing.T, s *sluice.Sluice, m hostile.ConnOptions) *hostile.Conn {
	t.Helper()
	c, err := hostile.Dial(t.Context(), s.Addr("grpc"), m)
	must.OK(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		if !m.NeverRead {
			<-c.Ended()
		}
	})
	return c
}

func isEnded(c *hostile.Conn) bool {
	select {
	case <-c.Ended():
		return true
	default:
		return false
	}
}
