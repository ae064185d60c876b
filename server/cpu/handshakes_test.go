package cpu

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// work is the duration of the first step of a handshake in tests.
const work = time.Millisecond

// handshake performs a handshake of two steps. It returns the number of steps that were performed. A
// client that stalls only sends its first message.
func handshake(t *testing.T, tokens *Tokens, address string, timeout time.Duration, stalls bool) (steps int) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	c := tokens.NewConn(server, netip.MustParseAddr(address))
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	go func() {
		b := []byte{1}
		_, _ = client.Write(b) // errors are those of the server
		_, _ = client.Read(b)
		if !stalls {
			_, _ = client.Write(b)
		}
	}()
	for b := []byte{1}; steps < 2; steps++ {
		if _, err := c.Read(b); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a handshake of %s: %v", address, err)
			}
			break
		}
		if time.Sleep(work >> (3 * steps)); steps == 0 {
			_, _ = c.Write(b)
		}
	}
	return steps
}

// TestStalledClientsDelayNoHandshake has clients that stall after their first message. A handshake of
// the same address or another one does not wait for them, not even while a thousand have sent theirs.
func TestStalledClientsDelayNoHandshake(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		synctest.Test(t, func(t *testing.T) {
			tokens := newTokens(2)
			for range 1000 {
				go handshake(t, tokens, "192.0.2.1", time.Minute, true)
			}
			time.Sleep(work / 2)
			for range 20 {
				start := time.Now()
				handshake(t, tokens, address, time.Minute, false)
				if took := time.Since(start); took > 6*work {
					t.Errorf("a handshake of %s takes %v, want at most %v", address, took, 6*work)
				}
			}
			if tokens.Waiting() < 900 {
				t.Errorf("%d handshakes wait, want at least 900", tokens.Waiting())
			}
			time.Sleep(2 * time.Minute)
			if calls, tasks := tokens.InUse(); calls+tasks+tokens.Waiting() != 0 {
				t.Errorf("at the end, %d tokens are in use and %d handshakes wait", tasks, tokens.Waiting())
			}
		})
	}
}

// TestHandshakesThatHaveBegunComeFirst has an address begin four times as many handshakes as can be
// performed. Those that begin also end.
func TestHandshakesThatHaveBegunComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(2)
		const n = 2000
		steps := make(chan int, n)
		for range n {
			time.Sleep(work / 4)
			go func() { steps <- handshake(t, tokens, "192.0.2.1", 100*work, false) }()
		}
		var count [3]int // by the number of steps
		for range n {
			count[<-steps]++
		}
		if count[1] > 5 || count[2] < n/6 {
			t.Errorf("%d handshakes of %d have begun and failed, and %d have ended, want at most 5 and at least %d", count[1], n, count[2], n/6)
		}
	})
}

// TestWaitsOfHandshakesEnd ends handshakes that wait for a token.
func TestWaitsOfHandshakesEnd(t *testing.T) {
	for _, name := range []string{"deadline", "sooner", "close"} {
		for _, begun := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				end := func(c *Conn) {
					switch name {
					case "sooner":
						_ = c.SetDeadline(time.Now().Add(time.Minute))
						_ = c.SetDeadline(time.Now().Add(time.Second))
					case "deadline":
						_ = c.SetReadDeadline(time.Now().Add(time.Second))
					default:
						_ = c.Close()
					}
				}
				tokens := newTokens(1)
				results := make(chan error, 2)
				start := func(address string, begun bool) *Conn {
					client, server := net.Pipe()
					t.Cleanup(func() { _ = client.Close() })
					c := tokens.NewConn(server, netip.MustParseAddr(address))
					go func() { _, _ = client.Write([]byte{1, 2}) }()
					if begun {
						_, _ = c.Read(make([]byte, 1))
						c.task.Pause()
					}
					return c
				}
				ended, other := start("192.0.2.1", begun), start("192.0.2.2", false)
				tokens.AcquireCall()
				for _, c := range []*Conn{ended, other} {
					go func() {
						_, err := c.Read(make([]byte, 2))
						results <- err
					}()
					synctest.Wait()
				}
				now := time.Now()
				end(ended)
				err := <-results
				if took := time.Since(now); !errors.Is(err, os.ErrDeadlineExceeded) || took > time.Second || tokens.Waiting() != 1 {
					t.Errorf("%s: after %v the result is %v, and %d handshakes wait, want 1", name, took, err, tokens.Waiting())
				}
				tokens.ReleaseCall()
				if err := <-results; err != nil {
					t.Errorf("%s: the other handshake: %v", name, err)
				}
				other.EndHandshake()
				if calls, tasks := tokens.InUse(); calls+tasks+tokens.Waiting()+tokens.sources.Len()+len(tokens.bySource) != 0 {
					t.Errorf("%s: at the end, %d tokens are in use", name, calls+tasks)
				}
			})
		}
	}
}

// TestHandshakesHaveTokens checks that a handshake has a token between its reads and writes, and
// that its end and a close release it.
func TestHandshakesHaveTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, release := range map[string]func(*Conn){
			"write":    func(c *Conn) { _, _ = c.Write([]byte{1}) },
			"end":      (*Conn).EndHandshake,
			"deadline": func(c *Conn) { _ = c.SetDeadline(time.Time{}) },
			"close":    func(c *Conn) { _ = c.Close() },
		} {
			tokens := newTokens(2)
			client, server := net.Pipe()
			c := tokens.NewConn(server, netip.Addr{})
			go func() { // until the end
				b := make([]byte, 1)
				for {
					if _, err := client.Write(b); err != nil {
						return
					}
					_, _ = client.Read(b)
				}
			}()
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if _, tasks := tokens.InUse(); tasks != 1 {
				t.Errorf("%d tokens are in use after a read, want 1", tasks)
			}
			if release(c); name == "write" {
				if _, tasks := tokens.InUse(); tasks != 0 {
					t.Errorf("%d tokens are in use after a write, want none", tasks)
				}
				_, _ = c.Read(make([]byte, 1))
				c.EndHandshake()
			}
			if _, tasks := tokens.InUse(); tasks != 0 {
				t.Errorf("%s: %d tokens are in use, want none", name, tasks)
			}
			_ = c.Close()
			_ = client.Close()
		}
	})
}

// TestRawWritesNeedNoToken checks that a write that bypasses [Conn.Write], as those of the built-in
// transport do, releases the token.
func TestRawWritesNeedNoToken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	tokens := newTokens(2)
	c := tokens.NewConn(server, netip.Addr{})
	defer c.Close()
	_, _ = client.Write([]byte{1})
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	during := -1
	err = raw.Write(func(uintptr) bool {
		_, during = tokens.InUse()
		return true
	})
	if err != nil || during != 0 {
		t.Errorf("%d tokens are in use during a write, want none; %v", during, err)
	}
}
