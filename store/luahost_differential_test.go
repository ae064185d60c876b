//go:build more

package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
	"github.com/sluice-ratelimit/sluice/store/storetest"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// A mirror sends each command that a luahost has run to a real server, and compares the replies.
type mirror struct {
	host     *luahost.Server
	server   redis.Server // its address
	exact    bool         // whether the real server is the version whose texts the host has
	tb       testing.TB
	conn     net.Conn // to the real server
	in       *bufio.Reader
	commands int
	differ   int
}

// outage is an error that only the host returns.
const outage = "LOADING simulated"

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{tb: t, host: luahost.NewServer()}
	m.server = redis.Server{Network: "tcp", Address: serveHost(t, listen(t), m.host.Serve)}
	srv := storetest.Start(t)
	m.exact = strings.Contains(srv.Must("INFO", "server"), "valkey_version:9.")
	var err error
	m.conn, err = net.Dial("tcp", srv.Addr)
	must.OK(t, err)
	m.in = bufio.NewReader(m.conn)
	m.host.OnCommand(m.compare)
	t.Cleanup(func() {
		m.host.OnCommand(nil) // a command of a closed connection may still be running
		_ = m.conn.Close()
	})
	return m
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	return l
}

// serveHost serves a listener until the test ends and returns its address.
func serveHost(t *testing.T, l net.Listener, serve func(net.Listener) error) string {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(l)
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// compare is called for each command of the host.
func (m *mirror) compare(name string, args [][]byte, got []byte) {
	if bytes.HasPrefix(got, []byte("-"+outage)) {
		return
	}
	atServerTime := len(args) == 4 && string(args[1]) == "0" && string(args[2])+string(args[3]) == ""
	m.commands++
	b := resp.AppendArgument(resp.AppendCommand(nil, 1+len(args)), name)
	for _, arg := range args {
		b = resp.AppendArgument(b, string(arg))
	}
	_, err := m.conn.Write(b)
	must.OK(m.tb, err)
	want := readRaw(m.tb, m.in)
	if len(args) > 96 && len(want) > 0 && want[0] == '*' { // the duration of a long run
		got, want = got[bytes.IndexByte(got, '\n'):], want[bytes.IndexByte(want, '\n'):]
		want = want[:min(len(want), len(got))]
	}
	if bytes.Equal(got, want) || atServerTime && bytes.HasPrefix(want, []byte("*3")) && bytes.HasPrefix(got, []byte("*3")) {
		return
	}
	if !m.exact && bytes.HasPrefix(want, []byte("-")) && bytes.Equal(bytes.Fields(got)[0], bytes.Fields(want)[0]) {
		return
	}
	if name == "HGETALL" && slices.Equal(sortedLines(got), sortedLines(want)) {
		return
	}
	if m.differ++; m.differ < 30 {
		m.tb.Errorf("%s %.200q\n = %q,\nwant %q", name, args, got, want)
	}
}

func sortedLines(reply []byte) []string {
	return slices.Sorted(strings.SplitSeq(string(reply), "\r\n"))
}

// readRaw reads a reply.
func readRaw(tb testing.TB, in *bufio.Reader) []byte {
	tb.Helper()
	line, err := in.ReadBytes('\n')
	must.OK(tb, err)
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		must.OK(tb, err)
		return append(line, text...)
	case line[0] == '*':
		for range n {
			line = append(line, readRaw(tb, in)...)
		}
	}
	return line
}

// compareKeys compares the values and expiries of all keys.
func (m *mirror) compareKeys() {
	m.tb.Helper()
	names := m.host.Keys()
	m.host.Do("DBSIZE")
	for _, name := range names {
		if m.exact && !strings.Contains(name, "{role:") { // Redis 6.2 lacks PEXPIRETIME; a leadership expires by the server's clock
			m.host.Do("PEXPIRETIME", name)
		}
		switch kind := m.host.Do("TYPE", name); kind {
		case "+string\r\n":
			m.host.Do("GET", name)
		case "+list\r\n":
			m.host.Do("LRANGE", name, "0", "-1")
		case "+hash\r\n":
			m.host.Do("HGETALL", name)
		case "+zset\r\n":
			m.host.Do("ZRANGE", name, "0", "-1", "WITHSCORES")
		default:
			m.tb.Errorf("%s has type %q", name, kind)
		}
	}
	m.tb.Logf("%d commands, %d keys", m.commands, len(names))
}

// Scripts and native commands of random requests have the same replies from a luahost as from a
// real server, and leave the same keys.
func TestLuahostRepliesAsAServer(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	c, err := redis.Dial(context.Background(), &m.server, longTimeout)
	must.OK(t, err)
	defer c.Close()
	must.OK(t, loadScript(c))
	r := tapePlayer{c: c}
	random := rand.NewChaCha8([32]byte{18})
	for n := range 60 {
		data := make([]byte, 1500)
		_, _ = random.Read(data)
		r.prefix = fmt.Sprintf("t%d", n)
		r.play(t, data)
	}
	m.compareKeys()
}

// The same for two stores, whose requests are decided during outages of the host, too: unsynced
// hits, leases, leaderships and resets.
func TestLuahostServesAStore(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	w := &comparison{leases: grantedLeases{}, seed: fromEnvironment(t, "STORE_SEED", 27)}
	w.random = rand.NewChaCha8([32]byte{byte(w.seed)})
	w.now.Store(1_900_000_000_999_999_999)
	w.c.decided = make(chan error, 1)
	options := func() Options {
		return Options{
			Server: m.server, Timeout: time.Minute, DialTimeout: time.Minute,
			Clock: func() time.Time { return time.Unix(0, w.now.Load()) }, at: func() limiter.Time { return limiter.Time(w.now.Load()) },
		}
	}
	stores := []*Store{runStore(t, options()), runStore(t, options())}
	up := func() bool { return stores[0].Up() && stores[1].Up() }
	storetest.Eventually(t, "up", up)
	all, synced := func(*limiter.Charge) bool { return false }, 0
	for n := range 800 {
		at := w.nextRequest(all)
		s := stores[w.in.pick(2)]
		done, err := s.Decide(at, &w.c.b, w.c.names, &w.c)
		if !done {
			err = <-w.c.decided
		}
		must.OK(t, err)
		w.plain.Reset()
		switch n % 200 {
		case 10:
			acquireAll(t, s, fmt.Sprint("replica", n%3), time.Hour, "a", "b")
		case 15:
			i := w.in.pick(len(w.c.b.Charges))
			_, err := s.Reset(context.Background(), at, &w.c.b, w.c.names, i)
			must.OK(t, err)
		case 20: // until 80
			m.host.SetError(outage)
			storetest.Eventually(t, "unavailable", func() bool { return !stores[0].Up() && !stores[1].Up() })
		case 80:
			synced += stores[0].unsyncedCounters() + stores[1].unsyncedCounters()
			m.host.SetError("")
			storetest.Eventually(t, "up", up)
		}
	}
	if synced == 0 {
		t.Error("no counter was synced")
	}
	t.Logf("%d counters synced", synced)
	m.compareKeys()
}
