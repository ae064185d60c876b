package cpu

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// handshaking is a handshake of two messages of the client.
type handshaking struct {
	*Conn
	client net.Conn
	err    error // result, once done
	done   bool
}

// startHandshake starts a handshake, to which the client sends its first message.
func startHandshake(h *Handshakes, address string) *handshaking {
	client, server := net.Pipe()
	c := &handshaking{Conn: h.NewConn(server, netip.MustParseAddr(address)), client: client}
	go func() {
		b := make([]byte, 1)
		for range 2 {
			if _, err := c.Read(b); err != nil {
				c.err = errors.Join(err, c.Close())
				break
			}
		}
		_ = c.SetReadDeadline(time.Time{})
		c.done = true
	}()
	go func() { _, _ = client.Write([]byte{1}) }()
	synctest.Wait()
	return c
}

// TestHandshakesOfAnAddressAreBounded begins more handshakes than an address may have. Those of
// other addresses continue; those that wait begin when others end or have taken a second.
func TestHandshakesOfAnAddressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandshakes(newTokens(2))
		check := func(when string, open, waiting int) {
			t.Helper()
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			a := h.byAddress[netip.MustParseAddr("192.0.2.1")]
			if a == nil {
				a = &slots{}
			}
			if len(a.open) != open || len(a.waiting) != waiting {
				t.Errorf("%s: %d handshakes are open and %d wait, want %d and %d", when, len(a.open), len(a.waiting), open, waiting)
			}
			if calls, tasks := h.tokens.InUse(); calls+tasks != 0 {
				t.Errorf("%s: %d tokens are in use", when, tasks)
			}
		}
		var all []*handshaking
		for range maxHandshakes {
			all = append(all, startHandshake(h, "192.0.2.1"))
		}
		check("at the bound", maxHandshakes, 0)
		time.Sleep(3 * time.Second)
		check("while no other waits", maxHandshakes, 0)
		for range 3 {
			all = append(all, startHandshake(h, "192.0.2.1"))
		}
		check("beyond the bound", maxHandshakes, 3)
		other := startHandshake(h, "192.0.2.2")
		_, _ = other.client.Write([]byte{2})
		_, _ = all[1].client.Write([]byte{2})
		synctest.Wait()
		if !other.done || !all[1].done || all[1].err != nil {
			t.Errorf("handshakes whose clients continue: %v, %v, %v", other.done, all[1].done, all[1].err)
		}
		check("after one has ended", maxHandshakes, 2)
		_ = all[maxHandshakes+1].Close()
		synctest.Wait()
		check("after one that waits was closed", maxHandshakes, 1)
		time.Sleep(maxHandshakeWait)
		synctest.Wait()
		check("a second later", 1, 0)
		if !errors.Is(all[0].err, os.ErrDeadlineExceeded) {
			t.Errorf("a handshake whose client does not continue ends with %v", all[0].err)
		}
		last := all[len(all)-1]
		_, _ = last.client.Write([]byte{2})
		synctest.Wait()
		check("at the end", 0, 0)
		if !last.done || last.err != nil || len(h.byAddress) != 0 {
			t.Errorf("the last one: done %v, %v; %d addresses are known", last.done, last.err, len(h.byAddress))
		}
		for _, c := range append(all, other) {
			_ = c.client.Close()
			_ = c.Close()
		}
	})
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
			h := NewHandshakes(newTokens(2))
			client, server := net.Pipe()
			c := h.NewConn(server, netip.Addr{})
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
			if _, tasks := h.tokens.InUse(); tasks != 1 {
				t.Errorf("%d tokens are in use after a read, want 1", tasks)
			}
			if release(c); name == "write" {
				if _, tasks := h.tokens.InUse(); tasks != 0 {
					t.Errorf("%d tokens are in use after a write, want none", tasks)
				}
				_, _ = c.Read(make([]byte, 1))
				c.EndHandshake()
			}
			if _, tasks := h.tokens.InUse(); tasks != 0 || len(h.byAddress) != 0 {
				t.Errorf("%s: %d tokens are in use and %d slots are taken, want none", name, tasks, len(h.byAddress))
			}
			_ = c.Close()
			_ = client.Close()
		}
	})
}

// TestSlowServerEndsNoHandshake has more handshakes of an address than may be in progress, with clients
// that answer at once and a server that needs longer for all of them than a client may take.
func TestSlowServerEndsNoHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandshakes(newTokens(2))
		const n, work = 100, 20 * time.Millisecond
		var failed atomic.Int32
		for range n {
			client, server := net.Pipe()
			go func() {
				defer client.Close()
				b := []byte{1}
				_, _ = client.Write(b) // errors are those of the server
				_, _ = client.Read(b)
				_, _ = client.Write(b)
			}()
			go func() {
				c := h.NewConn(server, netip.MustParseAddr("192.0.2.1"))
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				b := make([]byte, 1)
				for i := range 2 {
					if _, err := c.Read(b); err != nil {
						failed.Add(1)
						return
					}
					if time.Sleep(work); i == 0 {
						_, _ = c.Write(b)
					}
				}
				c.EndHandshake()
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if failed.Load() != 0 || len(h.byAddress) != 0 {
			t.Errorf("%d of %d handshakes have failed, want none; %d addresses are known", failed.Load(), n, len(h.byAddress))
		}
	})
}

// TestHurriedClientsHaveASecond has a client that sends a byte now and then while others of its
// address wait.
func TestHurriedClientsHaveASecond(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{time.Minute: maxHandshakeWait, maxHandshakeWait / 2: maxHandshakeWait / 2} {
		synctest.Test(t, func(t *testing.T) {
			h := NewHandshakes(newTokens(2))
			client, server := net.Pipe()
			c := h.NewConn(server, netip.MustParseAddr("192.0.2.1"))
			start := time.Now()
			_ = c.SetDeadline(start.Add(deadline))
			var clients []*handshaking
			go func() {
				for {
					if _, err := client.Write([]byte{1}); err != nil {
						return
					}
					time.Sleep(200 * time.Millisecond)
				}
			}()
			b := make([]byte, 1)
			_, err := c.Read(b)
			c.task.Pause()
			for range maxHandshakes {
				clients = append(clients, startHandshake(h, "192.0.2.1"))
			}
			for err == nil {
				_, err = c.Read(b)
			}
			if took := time.Since(start).Round(10 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || took != want {
				t.Errorf("with a deadline of %v, the handshake ends after %v with %v, want %v", deadline, took, err, want)
			}
			_, _ = c.Close(), client.Close()
			for _, c := range clients {
				_, _ = c.Close(), c.client.Close()
			}
			time.Sleep(time.Second) // until all have ended
		})
	}
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
	h := NewHandshakes(newTokens(2))
	c := h.NewConn(server, netip.Addr{})
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
		_, during = h.tokens.InUse()
		return true
	})
	if err != nil || during != 0 {
		t.Errorf("%d tokens are in use during a write, want none; %v", during, err)
	}
}
