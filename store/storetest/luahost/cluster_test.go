package luahost_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// The slots of a, b and c are 15495, 3300 and 7365.
func TestClusterRedirects(t *testing.T) {
	t.Parallel()
	c := luahost.NewCluster("10.0.0.1:1", "10.0.0.2:2")
	first, second := c.Servers()[0], c.Servers()[1]
	do(t, first, "+OK\r\n", "SET b 1")
	do(t, first, "-MOVED 15495 10.0.0.2:2\r\n", "GET a")
	do(t, first, "-CROSSSLOT Keys in request don't hash to the same slot\r\n", "EXISTS a b")
	do(t, first, "-MOVED 15495 10.0.0.2:2\r\n", "EVAL return 1 a")
	do(t, second, "*0\r\n", "EVAL return{} 1 a")
	do(t, first, "+PONG\r\n", "PING")
	slots := first.Do("CLUSTER", "SLOTS")
	if !strings.HasPrefix(slots, "*2\r\n*3\r\n:0\r\n:8191\r\n*4\r\n$8\r\n10.0.0.1\r\n:1\r\n") || slots != second.Do("CLUSTER", "SLOTS") {
		t.Errorf("slots %q", slots)
	}
	c.BeginMove(3300, 1)
	do(t, first, ":2\r\n", "INCRBY b 1")
	do(t, second, "-MOVED 3300 10.0.0.1:1\r\n", "GET b")
	do(t, first, "-ASK 3300 10.0.0.2:2\r\n", "GET x{b}")
	do(t, first, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "EXISTS b x{b}")
	c.MoveSlot(3300, 1)
	do(t, first, "-MOVED 3300 10.0.0.2:2\r\n", "GET b")
	do(t, second, "$1\r\n2\r\n", "GET b")
	third := c.Replace(1, "10.0.0.3:3")
	third.Restore(second.Snapshot())
	do(t, first, "-MOVED 3300 10.0.0.3:3\r\n", "GET b")
	do(t, third, "$1\r\n2\r\n", "GET b")
	do(t, second, ":3\r\n", "INCRBY b 1")
}

// A node that imports a slot accepts commands for it after ASKING.
func TestAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := luahost.NewCluster("10.0.0.1:1", "10.0.0.2:2")
		c.BeginMove(3300, 1)
		client, server := net.Pipe()
		go c.Servers()[1].ServeConn(server)
		expect(t, client, "SET b 1\r\nASKING\r\nSET b 1\r\nGET b\r\n", "-MOVED 3300 10.0.0.1:1\r\n+OK\r\n+OK\r\n-MOVED 3300 10.0.0.1:1\r\n")
		_ = client.Close()
	})
}

// expect sends commands and fails unless the replies follow.
func expect(tb testing.TB, conn net.Conn, commands, want string) {
	tb.Helper()
	if _, err := conn.Write([]byte(commands)); err != nil {
		tb.Fatal(err)
	}
	got := make([]byte, 0, len(want))
	for len(got) < len(want) {
		n, err := conn.Read(got[len(got):cap(got)])
		if err != nil {
			tb.Fatal(err)
		}
		got = got[:len(got)+n]
	}
	if string(got) != want {
		tb.Errorf("%q: replies %q, want %q", commands, got, want)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		address := "10.0.0.1:1"
		s := luahost.NewSentinel("main", func() string { return address })
		s.SetReplicas("10.0.0.2:2")
		client, server := net.Pipe()
		go s.ServeConn(server)
		expect(t, client, "SENTINEL get-master-addr-by-name main\r\n", "*2\r\n$8\r\n10.0.0.1\r\n$1\r\n1\r\n")
		address = "10.0.0.2:2"
		expect(t, client, "SENTINEL get-master-addr-by-name main\r\n", "*2\r\n$8\r\n10.0.0.2\r\n$1\r\n2\r\n")
		expect(t, client, "SENTINEL get-master-addr-by-name other\r\n", "*-1\r\n")
		expect(t, client, "SENTINEL REPLICAS main\r\n", "*1\r\n*8\r\n$4\r\nname\r\n$10\r\n10.0.0.2:2\r\n$2\r\nip\r\n$8\r\n10.0.0.2\r\n$4\r\nport\r\n$1\r\n2\r\n$5\r\nflags\r\n$5\r\nslave\r\n")
		expect(t, client, "SUBSCRIBE +switch-master\r\n", "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n")
		expect(t, client, "PING\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		s.Publish("other", "x")
		s.Switch("10.0.0.1:1", address)
		expect(t, client, "\r\n", "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$26\r\nmain 10.0.0.1 1 10.0.0.2 2\r\n")
		for range 1000 { // it reads nothing
			s.Publish("+switch-master", "x")
		}
		time.Sleep(time.Second)
		if _, err := client.Write([]byte("PING\r\n")); err == nil {
			t.Error("a subscriber that reads nothing is still connected")
		}
	})
}
