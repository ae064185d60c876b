package luahost_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// do fails unless a command has the given reply.
func do(tb testing.TB, s *luahost.Server, want string, command string) {
	tb.Helper()
	if got := s.Do(strings.Fields(command)...); got != want {
		tb.Errorf("%s = %q, want %q", command, got, want)
	}
}

func TestKeysExpireByTheServersClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := luahost.NewServer()
		do(t, s, "+OK\r\n", "SET a 1 PX 1500")
		do(t, s, "+OK\r\n", "SET b 1 EXAT 946684802") // a bubble begins at 946684800
		do(t, s, ":1500\r\n", "PTTL a")
		do(t, s, ":2\r\n", "TTL a")
		time.Sleep(1500 * time.Millisecond)
		do(t, s, "$1\r\n1\r\n", "GET a")
		time.Sleep(time.Millisecond)
		do(t, s, "$-1\r\n", "GET a")
		do(t, s, "$1\r\n1\r\n", "GET b")
		s.SetOffset(time.Second)
		do(t, s, "$-1\r\n", "GET b")
		if keys := s.Keys(); len(keys) != 0 {
			t.Errorf("keys %q remain", keys)
		}
	})
}

func TestRestoreReturnsToASnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := luahost.NewServer()
		do(t, s, "+OK\r\n", "SET a 1 PX 2000")
		do(t, s, ":2\r\n", "RPUSH l 1 2")
		do(t, s, ":1\r\n", "HSET h f 1")
		do(t, s, ":1\r\n", "ZADD z 1 m")
		before := s.Snapshot()
		for range 2 {
			do(t, s, ":2\r\n", "INCRBY a 1")
			do(t, s, ":3\r\n", "RPUSH l 3")
			do(t, s, "+OK\r\n", "LTRIM l 1 -1")
			do(t, s, ":0\r\n", "HSET h f 2")
			do(t, s, ":1\r\n", "ZREM z m")
			do(t, s, "+OK\r\n", "SET new 1")
			s.Restore(before)
			do(t, s, "$1\r\n1\r\n", "GET a")
			do(t, s, "*2\r\n$1\r\n1\r\n$1\r\n2\r\n", "LRANGE l 0 -1")
			do(t, s, "$1\r\n1\r\n", "HGET h f")
			do(t, s, "$1\r\n1\r\n", "ZSCORE z m")
			do(t, s, ":4\r\n", "DBSIZE")
		}
		replica := luahost.NewServer()
		replica.Restore(before)
		time.Sleep(2001 * time.Millisecond)
		do(t, replica, ":0\r\n", "EXISTS a")
		do(t, replica, ":1\r\n", "EXISTS l")
	})
}

func TestErrorsThatATestSets(t *testing.T) {
	t.Parallel()
	s := luahost.NewServer()
	s.SetError("LOADING server is loading")
	do(t, s, "-LOADING server is loading\r\n", "PING")
	s.SetError("")
	do(t, s, "+OK\r\n", "SET a 1")
	s.SetWriteError("OOM command not allowed")
	do(t, s, "-OOM command not allowed\r\n", "SET a 2")
	do(t, s, "$1\r\n1\r\n", "GET a")
	do(t, s, ":1\r\n", "DEL a")
	do(t, s, "+OK\r\n", "EVAL redis.call('DEL',KEYS[1])return(redis.call('SET',KEYS[1],1)) 1 a") // as a real server
	s.SetWriteError("")
	s.SetRole(luahost.Replica)
	do(t, s, "-READONLY You can't write against a read only replica.\r\n", "DEL a")
	if got := s.Commands()["SET"]; got != 2 {
		t.Errorf("SET was counted %d times, want 2", got)
	}
}

// Pipelined commands are answered in order, also if they arrive in pieces. Goroutines end with the
// connections and the listener.
func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := luahost.NewServer()
		client, server := net.Pipe()
		go s.ServeConn(server)
		var writing sync.WaitGroup
		writing.Go(func() {
			for _, piece := range []string{"PING\r\n*2\r\n$4\r\nPI", "NG\r\n$1\r\na\r", "\n*1\r\n$4\r\nTIME\r\n*", "1\r\n$x\r\n"} {
				_, _ = client.Write([]byte(piece))
				time.Sleep(time.Second)
			}
		})
		var got strings.Builder
		buf := make([]byte, 100)
		for {
			n, err := client.Read(buf)
			got.Write(buf[:n])
			if err != nil {
				break
			}
		}
		const want = "+PONG\r\n$1\r\na\r\n*2\r\n$9\r\n946684802\r\n$1\r\n0\r\n-ERR Protocol error: invalid bulk length\r\n"
		if got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
		must.OK(t, client.Close())
		writing.Wait()
	})
}
