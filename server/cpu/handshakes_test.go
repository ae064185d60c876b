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
}
