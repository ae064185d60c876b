package leases

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// player runs scripts. A script is a list of steps, separated by commas:
//
//	connect X Y [of CLIENT]   opens connections of the client, by default of a
//	call X [LEASE] ...        makes calls that acquire leases, which a later return names
//	return LEASE [X]          makes the end call of a lease, on no known connection by default
//	work X                    makes a call and its end call
//	busy X                    makes calls and their end calls for five seconds without a pause
//	close X REASON [CALLS]    closes a connection that served the given number of calls, by default 5
//	wait DURATION             lets time pass
//	leases N                  checks the number of leases
type player struct {
	*clients

	connections map[string]*Connection
	leases      map[string]uint64
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	return &player{newClients(t, tenPermits, nil), map[string]*Connection{}, map[string]uint64{}}
}

var closeReasons = map[string]CloseReason{"gracefully": Graceful, "after-reply": AfterReply, "abruptly": Abrupt, "unresponsive": Unresponsive}

func (p *player) play(script string) {
	p.t.Helper()
	for step := range strings.SplitSeq(script, ",") {
		if err := p.step(strings.Fields(step)); err != nil {
			p.t.Fatalf("step %q: %v", step, err)
		}
	}
}

func (p *player) step(words []string) error {
	p.t.Helper()
	x := p.connections[words[1]]
	more := words[2:]
	switch words[0] {
	case "connect":
		names, client, _ := strings.Cut(strings.Join(words[1:], " "), " of ")
		if client == "" {
			client = "a"
		}
		for name := range strings.FieldsSeq(names) {
			p.connections[name] = p.Connect(client)
		}
	case "call":
		lease := p.call(x, 0)
		for _, name := range more {
			p.leases[name] = lease
		}
	case "return":
		if len(more) > 0 {
			x = p.connections[more[0]]
		}
		p.call(x, p.leases[words[1]])
	case "work":
		p.call(x, p.call(x, 0))
	case "busy":
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			p.call(x, p.call(x, 0))
		}
	case "close":
		calls := 5
		if len(more) > 1 {
			calls, _ = strconv.Atoi(more[1])
		}
		x.Close(closeReasons[more[0]], uint32(calls))
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		time.Sleep(d)
		synctest.Wait()
	case "leases":
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return err
		}
		p.wantLeases(n)
	default:
		return fmt.Errorf("unknown step %s", words[0])
	}
	return nil
}

// TestDeadClientLosesItsLeases runs scripts in which connections are closed. After each script and
// the grace period, the lessor has the wanted number of leases.
func TestDeadClientLosesItsLeases(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   uint64
	}{
		"abruptly":            {"connect x, call x, close x abruptly, wait 999ms, leases 1", 0},
		"unresponsive":        {"connect x, call x, close x unresponsive", 0},
		"two connections":     {"connect x y, call x, call y, call y, close x abruptly, wait 10s, leases 3, close y abruptly", 0},
		"one of two":          {"connect x y, call x, call y, close x abruptly", 2},
		"another client's":    {"connect x, connect y of b, call x, call y, close x abruptly", 1},
		"gracefully":          {"connect x, call x, close x gracefully", 1},
		"after a reply":       {"connect x, call x, close x after-reply", 1},
		"after a burst":       {"connect x, " + strings.Repeat("call x, ", 20) + "close x after-reply", 10},
		"after a reply, busy": {"connect x, call x, busy x, close x after-reply", 0},

		"two after replies, after the same number of calls":         {"connect x y, call x, call y, close x after-reply 7, close y after-reply 7", 2},
		"two after replies, the first after fewer calls":            {"connect x y, call x, call y, close x after-reply 7, close y after-reply 8", 0},
		"two after replies, the last after fewer calls":             {"connect x y, call x, call y, close x after-reply 8, wait 10s, close y after-reply 7", 0},
		"two after replies, the last after more calls and later":    {"connect x y, call x, call y, close x after-reply 7, wait 10s, close y after-reply 8", 2},
		"abruptly, then after a reply":                              {"connect x y, call x, call y, close x abruptly, close y after-reply", 0},
		"abruptly long ago, then after a reply":                     {"connect x y, call x, call y, close x abruptly, wait 10s, close y after-reply", 2},
		"abruptly, then gracefully":                                 {"connect x y, call x, call y, close x abruptly, close y gracefully", 2},
		"abruptly, then a new connection":                           {"connect x, call x, close x abruptly, wait 999ms, connect y", 1},
		"abruptly, then new connections that close gracefully":      {"connect x, call x, close x abruptly, wait 500ms, connect y, close y gracefully, connect z, work z, close z gracefully", 1},
		"abruptly, then a new connection that closes after a reply": {"connect x, call x, close x abruptly, wait 500ms, connect y, work y, close y after-reply", 1},
		"abruptly, then a new connection abruptly":                  {"connect x, call x, close x abruptly, wait 500ms, connect y, call y, wait 10s, close y abruptly", 0},
		"abruptly, then a new connection without leases":            {"connect x, call x, close x abruptly, wait 500ms, connect y, wait 250ms, close y abruptly", 0},
		"gracefully, then abruptly":                                 {"connect x, call x, close x gracefully, wait 10s, connect y, work y, close y abruptly", 0},
		"gracefully, then abruptly without leases":                  {"connect x, call x, close x gracefully, connect y, close y abruptly", 1},
		"gracefully with a lease that is returned, then abruptly": {
			"connect x y, call x L, call y, close x gracefully, close y gracefully, return L, connect z, work z, close z abruptly", 0,
		},
		"abruptly, of a client that replaces connections":      {"connect x, call x, close x after-reply, connect y, work y, wait 10s, close y abruptly", 1},
		"after a reply, of a client that replaces connections": {"connect x, call x, close x after-reply, connect y, call y, busy y, close y after-reply", 2},
		"abruptly, of a client that drops connections": {
			"connect x, call x L, close x abruptly, connect y, return L y, call y, wait 10s, close y abruptly", 1,
		},
		"abruptly, of a client that was considered dead": {
			"connect x, call x L, close x abruptly, wait 2s, leases 0, connect y, return L y, call y, close y abruptly", 1,
		},
		"unresponsive, of a client that drops connections": {"connect x, call x L, close x abruptly, connect y, return L y, call y, close y unresponsive", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlayer(t)
				p.play(test.script)
				p.play(fmt.Sprintf("wait %v, leases %d", grace, test.want))
				if test.want > 0 {
					return
				}
				for _, c := range p.clients.clients {
					if c.open > 0 || len(c.closed) > 0 {
						t.Errorf("client %+v is still tracked", c)
					}
				}
			})
		})
	}
}

// TestNoGrace checks that leases outlive their client if the grace period is 0.
func TestNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClients(t, tenPermits, func(o *Options) { o.Grace = 0 })
		b := c.Connect("a")
		c.call(b, 0)
		b.Close(Abrupt, 5)
		time.Sleep(time.Minute)
		c.wantLeases(1)
	})
}

// TestLateDecisionKeepsClient closes a connection while a store decides a call on it. The lease is
// granted after the client has reconnected. The client keeps its leases when it later loses one of
// two connections, because it is alive.
func TestLateDecisionKeepsClient(t *testing.T) {
	for _, resets := range []bool{true, false} { // whether the transport resets the call
		synctest.Test(t, func(t *testing.T) {
			c := newClients(t, tenPermits, nil)
			first := c.Connect("a")
			first.Close(Abrupt, 1)
			second := c.Connect("a")
			lease := c.call(first, 0)
			if resets {
				first.ResetCall(c.stream)
			} else {
				c.call(second, lease)
			}
			third := c.Connect("a")
			if second.client != third.client || c.clients["a"] != third.client {
				t.Error("the connections of one client belong to different clients")
			}
			c.call(second, 0) // acquires a lease that is not returned
			c.call(third, c.call(third, 0))
			second.Close(Abrupt, 5)
			for range 5 {
				time.Sleep(time.Second)
				c.call(third, c.call(third, 0))
			}
			c.wantLeases(1)
			third.Close(Abrupt, 5)
			time.Sleep(2 * time.Second)
			c.wantLeases(0)
		})
	}
}

// TestStaleLeasesOfALivingClient revokes one lease of a client because it seemed dead, and ends
// another by a reset or a reload. If the client returns the first lease, its requests outlive its
// connections. If it returns the second, that is no evidence about its connections.
func TestStaleLeasesOfALivingClient(t *testing.T) {
	for name, end := range map[string]func(*clients){
		"reset": func(c *clients) { c.Forget(c.last.ID) },
		"reload": func(c *clients) {
			c.serve(noLimit)
			c.Review(true)
			c.serve(tenPermits)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClients(t, tenPermits, nil)
				b := c.Connect("a")
				first := c.call(b, 0)
				b.Close(Abrupt, 1)
				time.Sleep(grace)
				synctest.Wait()
				b = c.Connect("a")
				second := c.call(b, 0)
				if end(c); len(c.leases) > 0 {
					t.Fatal("the lease is still granted")
				}
				if c.call(b, second); b.client.dropsConnections {
					t.Error("the return of a lease that was reset or reloaded counts as evidence")
				}
				if c.call(b, first); !b.client.dropsConnections {
					t.Error("the return of a lease of a closed connection does not count as evidence")
				}
			})
		})
	}
}

// TestTransitionsOfClients checks the transitions that the package page draws: of a client's
// presence and of the trust in it. Each script starts with an open connection x whose call acquired
// the lease L. want is the state right after the script, and later that after the grace period.
func TestTransitionsOfClients(t *testing.T) {
	const (
		connectedTrusted    = "connected, trusted, 1 lease"
		connectedSuspected  = "connected, suspected, 1 lease"
		disconnectedTrusted = "disconnected, trusted, 1 lease"
		condemnedSuspected  = "condemned, suspected, 1 lease"
		revoked             = "disconnected, suspected, 0 leases"
	)
	for name, test := range map[string]struct{ script, want, later string }{
		"connect":                                         {"leases 1", connectedTrusted, connectedTrusted},
		"close one of two":                                {"connect y, close x after-reply", connectedTrusted, connectedTrusted},
		"close the last without a lease":                  {"return L x, close x abruptly", "disconnected, suspected, forgotten, 0 leases", "disconnected, suspected, forgotten, 0 leases"},
		"close the last, trusted":                         {"close x after-reply", disconnectedTrusted, disconnectedTrusted},
		"close the last, suspected":                       {"close x abruptly", condemnedSuspected, revoked},
		"close the last, suspected just within the grace": {"connect y, close x abruptly, wait 1s, close y abruptly 0", condemnedSuspected, revoked},
		"close the last, suspected too long ago": {
			"connect y, close x abruptly, wait 1000000001ns, close y abruptly 0", "disconnected, suspected, 1 lease", "disconnected, suspected, 1 lease",
		},
		"disconnected, connect":    {"close x after-reply, connect y", connectedTrusted, connectedTrusted},
		"disconnected, last lease": {"close x after-reply, return L", "disconnected, trusted, forgotten, 0 leases", "disconnected, trusted, forgotten, 0 leases"},
		"condemned, connect":       {"close x abruptly, connect y", connectedSuspected, connectedSuspected},
		"condemned, connect, condemned again": { // the first grace period has passed
			"close x abruptly, wait 500ms, connect y, work y, close y abruptly, wait 999999999ns", condemnedSuspected, revoked,
		},
		"condemned, last lease":               {"close x abruptly, return L", "condemned, suspected, forgotten, 0 leases", "disconnected, suspected, forgotten, 0 leases"},
		"trusted, close unresponsive":         {"connect y, close x unresponsive", connectedSuspected, connectedSuspected},
		"trusted, close abruptly":             {"connect y, close x abruptly", connectedSuspected, connectedSuspected},
		"trusted, close gracefully":           {"connect y, close x gracefully", connectedTrusted, connectedTrusted},
		"trusted, close an unused connection": {"connect y, close y unresponsive", connectedTrusted, connectedTrusted},

		"suspected, call on a later connection":    {"close x abruptly, connect y, work y", connectedTrusted, connectedTrusted},
		"suspected, call on an earlier connection": {"connect y, work y, close y abruptly, work x", connectedSuspected, connectedSuspected},
		"suspected, call on the closed connection": { // a store decides the call after the close
			"close x abruptly, call x", "condemned, suspected, 2 leases", revoked,
		},
		"suspected, call on the closed connection that had no lease": {
			"connect y, return L x, close x abruptly, call x, close y abruptly 0", condemnedSuspected, revoked,
		},
		"suspected, close gracefully":           {"connect y, work y, close y abruptly, close x gracefully", disconnectedTrusted, disconnectedTrusted},
		"suspected, close an unused connection": {"connect y, close x abruptly, close y gracefully 0", condemnedSuspected, revoked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlayer(t)
				p.play("connect x, call x L")
				p.play(test.script)
				if got := p.state("x"); got != test.want {
					t.Errorf("the client is %s, want %s", got, test.want)
				}
				time.Sleep(grace)
				synctest.Wait()
				if got := p.state("x"); got != test.later {
					t.Errorf("after the grace the client is %s, want %s", got, test.later)
				}
			})
		})
	}
}

// state describes the client of a connection.
func (p *player) state(connection string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.connections[connection].client
	state := map[presence]string{connected: "connected", disconnected: "disconnected", condemned: "condemned"}[c.presence]
	if c.suspicion.since > 0 {
		state += ", suspected"
	} else {
		state += ", trusted"
	}
	if p.clients.clients["a"] != c {
		state += ", forgotten"
	}
	n := len(p.Lessor.leases)
	if n == 1 {
		return state + ", 1 lease"
	}
	return fmt.Sprintf("%s, %d leases", state, n)
}
