package server

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// fakeServed is the served side of a connection in tests of boundedListener.
type fakeServed struct {
	usage      transport.Usage
	usageCalls *int         // number of calls of Usage
	retired    atomic.Value // how it was closed: "gracefully" or "immediately"
}

func (s *fakeServed) Usage() transport.Usage {
	*s.usageCalls++
	return s.usage
}

func (s *fakeServed) Retire(gracefully bool) {
	how := "immediately"
	if gracefully {
		how = "gracefully"
	}
	s.retired.Store(how)
}

// group describes connections that were opened at intervals of one second and have the same usage.
type group struct {
	name    string
	address string // with a %d for the connection's number, the addresses differ
	n       int
	begun   time.Duration
	usage   transport.Usage
}

// testListener is a listener with groups of connections.
type testListener struct {
	boundedListener
	groups     map[string][]*fakeServed
	usageCalls int
}

func newTestListener(t *testing.T, limit int, groups ...group) *testListener {
	t.Helper()
	c := &testListener{groups: map[string][]*fakeServed{}}
	c.max, c.retireTimeout, c.rejected = limit, time.Hour, prometheus.NewCounter(prometheus.CounterOpts{Name: "rejected_total", Help: "Rejected connections."})
	for _, g := range groups {
		for i := range g.n {
			if !c.join(g, i) {
				t.Fatalf("connection %d of %s is not admitted", i, g.name)
			}
		}
	}
	return c
}

// join reports whether connection i of a group is admitted.
func (c *testListener) join(g group, i int) bool {
	text := g.address
	if g.n > 1 && len(text) > 0 && text[0] == 'x' {
		text = fmt.Sprintf("10.0.%d.%d", i>>8, i&255)
	}
	conn := &boundedConn{listener: &c.boundedListener, address: netip.MustParseAddr(text), openedAt: g.begun}
	if !c.admit(conn) {
		return false
	}
	s := &fakeServed{usage: g.usage, usageCalls: &c.usageCalls}
	s.usage.Since += g.begun + time.Duration(i)
	conn.ServedBy(s)
	c.groups[g.name] = append(c.groups[g.name], s)
	return true
}

// retired returns the connections that were closed for others.
func (c *testListener) retired() string {
	var text strings.Builder
	for _, name := range []string{"attacker", "honest", "other"} {
		for i, s := range c.groups[name] {
			if how := s.retired.Load(); how != nil {
				fmt.Fprintf(&text, "%s %d %s;", name, i, how)
			}
		}
	}
	return text.String()
}

// TestSurplusConnections adds a connection to a full listener.
func TestSurplusConnections(t *testing.T) {
	const limit, each = 10_000, "x"
	used, busy := transport.Usage{Used: true}, transport.Usage{Used: true, Busy: true}
	late := transport.Usage{Used: true, Since: time.Minute} // became idle most recently
	for name, test := range map[string]struct {
		attacker, honest group
		from             string
		want             string
	}{
		"an address with many unused connections and a client with some":     {group{address: "10.9.0.1", n: limit - 8}, group{address: "10.9.0.2", n: 8, usage: used}, "10.9.0.2", "attacker 0 immediately;"},
		"an address with many unused connections and a client without any":   {group{address: "10.9.0.1", n: limit - 8}, group{address: "10.9.0.2", n: 8, usage: used}, "10.9.0.3", "attacker 0 immediately;"},
		"an address with many unused connections opens another":              {group{address: "10.9.0.1", n: limit - 8}, group{address: "10.9.0.2", n: 8, usage: used}, "10.9.0.1", "attacker 0 immediately;"},
		"an address with many idle connections and a client without any":     {group{address: "10.9.0.1", n: limit - 8, usage: late}, group{address: "10.9.0.2", n: 8}, "10.9.0.3", "attacker 0 gracefully;"},
		"an address with many open calls and a client with some":             {group{address: "10.9.0.1", n: limit - 8, usage: busy}, group{address: "10.9.0.2", n: 8, usage: busy}, "10.9.0.2", "attacker 0 gracefully;"},
		"an address with many open calls does not replace idle connections":  {group{address: "10.9.0.1", n: limit - 8, usage: busy}, group{address: "10.9.0.2", n: 8, usage: used}, "10.9.0.1", ""},
		"many addresses with an unused connection and a client without any":  {group{address: each, n: limit - 100}, group{address: "10.9.0.2", n: 100, usage: used}, "10.9.0.3", "attacker 0 immediately;"},
		"many addresses with an unused connection and a client with several": {group{address: each, n: limit - 100}, group{address: "10.9.0.2", n: 100, usage: used}, "10.9.0.2", "attacker 0 immediately;"},
		"many addresses with an idle connection and a client with several":   {group{address: each, n: limit - 100, usage: late}, group{address: "10.9.0.2", n: 100, usage: busy}, "10.9.0.2", "attacker 0 gracefully;"},
		"addresses with one connection replace the second of another":        {group{address: each, n: limit - 100, usage: late}, group{address: "10.9.0.2", n: 100, usage: used}, "10.9.0.3", "honest 0 gracefully;"},
		"many addresses with an open call and a client with several":         {group{address: each, n: limit - 100, usage: busy}, group{address: "10.9.0.2", n: 100, usage: busy}, "10.9.0.2", ""},
		"many addresses with an open call and a client without any":          {group{address: each, n: limit - 100, usage: busy}, group{address: "10.9.0.2", n: 100, usage: busy}, "10.9.0.3", "honest 0 gracefully;"},
		"unused connections of an address are closed first":                  {group{address: "10.9.0.1", n: limit - 100, usage: used}, group{address: "10.9.0.1", n: 100, usage: transport.Usage{Since: time.Minute}}, "10.9.0.1", "honest 0 immediately;"},
		"a new unused connection stays":                                      {group{address: each, n: limit - 1, usage: late}, group{address: "10.9.0.1", n: 1, begun: time.Hour}, "10.9.0.3", "attacker 0 gracefully;"},
	} {
		t.Run(name, func(t *testing.T) {
			test.attacker.name, test.honest.name = "attacker", "honest"
			c := newTestListener(t, limit, test.attacker, test.honest)
			admitted := c.join(group{name: "other", address: test.from, begun: time.Hour, n: 1}, 0)
			if got := c.retired(); got != test.want || admitted != (test.want != "") {
				t.Errorf("admitted: %t, closed connections: %q, want %q", admitted, got, test.want)
			}
		})
	}
}

// TestFloodOfConnectionsSearchesRarely checks that a full listener does not search all connections
// for each connection that it admits or rejects.
func TestFloodOfConnectionsSearchesRarely(t *testing.T) {
	const limit = 10_000
	for name, busy := range map[string]bool{"admitted": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			honest := group{name: "honest", address: "10.9.0.2", n: 8, usage: transport.Usage{Used: true}}
			c := newTestListener(t, limit, group{name: "attacker", address: "10.9.0.1", n: limit - 8, usage: transport.Usage{Busy: busy}}, honest)
			c.usageCalls = 0
			for i := range limit {
				if c.join(group{name: "attacker", address: "10.9.0.1", begun: time.Hour, n: 1}, i) == busy {
					t.Fatalf("connection %d is admitted: %t", i, !busy)
				}
			}
			if c.usageCalls > 64*limit {
				t.Errorf("Usage was called %d times for %d new connections", c.usageCalls, limit)
			}
			for i, s := range c.groups["honest"] {
				if how := s.retired.Load(); how != nil {
					t.Errorf("connection %d of the honest client was closed %s", i, how)
				}
			}
			if !c.join(honest, 8) {
				t.Error("the honest client gets no further connection")
			}
		})
	}
}

// TestGracefulClosesAreBounded checks that a graceful close becomes immediate if it takes too long
// or too many others follow.
func TestGracefulClosesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := group{name: "honest", address: "10.9.0.2", n: 32, usage: transport.Usage{Used: true}}
		c := newTestListener(t, 32, used)
		c.retireTimeout = time.Second
		for i, want := range []string{
			"honest 0 gracefully;",
			"honest 0 gracefully;honest 1 gracefully;",
			"honest 0 immediately;honest 1 gracefully;honest 2 gracefully;", // with a bound of 32, two may close gracefully at a time
		} {
			if !c.join(group{name: "other", address: "10.9.0.3", begun: time.Hour, n: 1}, i) {
				t.Errorf("client %d is not admitted", i)
			}
			if got := c.retired(); got != want {
				t.Errorf("after client %d: %s, want %s", i, got, want)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := c.retired(), "honest 0 immediately;honest 1 immediately;honest 2 immediately;"; got != want {
			t.Errorf("finally: %s, want %s", got, want)
		}
	})
}

// TestAddressesOfClients checks that an IPv6 client is identified by its /64 prefix, because it can
// choose the remaining bits.
func TestAddressesOfClients(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3:4": "10.1.2.3", "[::ffff:10.1.2.3]:4": "10.1.2.3", "[2001:db8::1]:4": "2001:db8::", "[2001:db8::ffff:2]:5": "2001:db8::", "[fe80::1%lo]:4": "fe80::",
	} {
		if got := access.AddressOfPeer(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))); got.String() != want {
			t.Errorf("access.AddressOfPeer(%s) = %v, want %s", text, got, want)
		}
	}
	if got := access.AddressOfPeer(&net.UnixAddr{Name: "/s"}); got.IsValid() {
		t.Errorf("a unix socket has the address %v", got)
	}
}
