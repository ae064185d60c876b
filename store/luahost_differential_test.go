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

	"github.com/sluice-ratelimit/sluice/internal/effort"
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
	for _, prefix := range []string{"-ERR Error compiling script", "-ERR user_script:"} { // then texts of Lua follow
		if bytes.HasPrefix(got, []byte(prefix)) && bytes.HasPrefix(want, []byte(prefix)) {
			return
		}
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

// oddArguments are arguments of random commands.
var oddArguments = strings.Split("0 1 -1 2 3 5 -5 17 -0 +1 01 1.5 -2.25 1e3 3.0 0x10 1_0 inf -inf +inf (1 (-3 (inf ( nan 1e400 1e-400 1e17 "+
	"4294967296 9007199254740993 9223372036854775807 -9223372036854775808 9223372036854775808 -1900000000 1900000000 1900000000000 "+
	"NX xx EXAT PXAT keepttl GET WITHSCORES m n o field \x00\xff 12345678901234567890123", " ")

// Random commands, many with invalid arguments or keys of another type, have the same replies.
func TestLuahostCommands(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	if !m.exact {
		storetest.NotRun(t, t.Name()+": it compares texts of Valkey 9")
	}
	seed := fromEnvironment(t, "STORE_SEED", 27)
	random := rand.New(rand.NewPCG(seed, seed))
	arg := func() string { return append(oddArguments, "", " 1")[random.IntN(len(oddArguments)+2)] }
	names := strings.Fields("GET GET GETRANGE GETRANGE SET SET SET INCR INCRBY INCRBY DEL EXISTS TYPE EXPIREAT PEXPIREAT EXPIRETIME PEXPIRETIME PERSIST " +
		"LLEN LINDEX LINDEX LRANGE LRANGE LTRIM RPUSH RPUSH HGET HGETALL HLEN HEXISTS HSET HSET HDEL " +
		"ZADD ZADD ZADD ZCARD ZSCORE ZCOUNT ZCOUNT ZRANGE ZRANGE ZREM ZREMRANGEBYSCORE ZREMRANGEBYRANK PING ECHO AUTH CLUSTER EVAL EVALSHA UNKNOWN")
	counts := map[string]int{ // of arguments after the key
		"GETRANGE": 2, "SET": 1, "INCRBY": 1, "EXPIREAT": 1, "PEXPIREAT": 1, "LINDEX": 1, "LRANGE": 2, "LTRIM": 2, "RPUSH": 2, "HGET": 1, "HEXISTS": 1, "HSET": 2, "HDEL": 1,
		"ZADD": 2, "ZSCORE": 1, "ZCOUNT": 2, "ZRANGE": 2, "ZREM": 1, "ZREMRANGEBYSCORE": 2, "ZREMRANGEBYRANK": 2,
	}
	for range effort.Times(t, 2000) {
		name := names[random.IntN(len(names))]
		args := []string{name, "SLHZ"[max(0, strings.IndexByte("SLHZ", name[0])):][:1]} // most keys have the right type
		if strings.Contains(name, "PUSH") {
			args[1] = "L"
		}
		if random.IntN(20) == 0 {
			args[1] = "SLHZ"[random.IntN(4):][:1]
		}
		args[1] += []string{"1", "2"}[random.IntN(2)]
		extra := counts[name]
		if random.IntN(5) == 0 {
			extra = random.IntN(6)
		}
		for range extra {
			args = append(args, arg())
		}
		if random.IntN(30) == 0 {
			args = args[:1]
		}
		if name[0] == 'P' && random.IntN(2) == 0 {
			args[0] = strings.ToLower(name)
		}
		if strings.HasSuffix(name, "EXPIREAT") {
			args = args[:min(len(args), 3)] // the command has no options
		}
		if name == "ZADD" {
			args = slices.DeleteFunc(args, func(arg string) bool { return strings.EqualFold(arg, "NX") || strings.EqualFold(arg, "XX") })
		}
		m.host.Do(args...)
	}
	m.compareKeys()
}

// Scripts with odd operations have the same replies.
func TestLuahostScripts(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	if !m.exact {
		storetest.NotRun(t, t.Name()+": it compares texts of Valkey 9")
	}
	for _, text := range []string{
		"return", "return nil", "return false", "return true", "return 1.9", "return -1.9", "return '1.9'", "return 1e300", "return -1e300", "return 0/0",
		"return {1, 2, nil, 4}", "return {1, {2, {3, 'x'}}, false, true}", "return {err = 'MY error'}", "return {err = '-MY error'}", "return {ok = 'fine'}", "return {}",
		"return redis.error_reply('MY error')", "return redis.error_reply('-MY error')", "return redis.error_reply('error')", "return redis.status_reply('fine')",
		"return redis.call('GET', 'none')", "return {redis.call('GET', 'none') == false}", "return redis.call('SET', 'a', 1).ok", "return redis.call('set', 'b', 1.5)",
		"redis.call('SET', 'a', 2^53) return redis.call('GET', 'a')", "redis.call('SET', 'a', 1e17) return redis.call('GET', 'a')", "redis.call('SET', 'a', -1e20) return redis.call('GET', 'a')",
		"redis.call('SET', 'a', 0.1) return redis.call('GET', 'a')", "redis.call('SET', 'a', 1e-7) return redis.call('GET', 'a')", "redis.call('SET', 'a', 1/0) return redis.call('GET', 'a')",
		"redis.call('SET', 'a', 2^62) return redis.call('GET', 'a')", "redis.call('SET', 'a', 2^63) return redis.call('GET', 'a')",
		"redis.call('RPUSH', 'l', 1, 2, 3) return redis.call('LRANGE', 'l', 0, -1)", "return redis.call('INCRBY', 'l', 1)", "\n\nreturn redis.call('GET', 'l')",
		"return redis.pcall('GET', 'l')", "return redis.pcall('GET', 'l').err", "local ok, e = pcall(redis.call, 'GET', 'l') return {ok, e.err}",
		"local ok, e = pcall(function() return redis.call('GET', 'l') end) return {ok, type(e), e.err}", "return redis.call('NONE', 'x')", "return redis.pcall('NONE', 'x').err", "return redis.call('GET')",
		"return redis.call()", "return redis.call({})", "return redis.call('SET', 'a', {})", "return redis.call('SET', 'a', true)", "return redis.call('EVAL', 'return 1', 0)", "return redis.call('AUTH', 'x')",
		"return redis.sha1hex('x')", "return redis.replicate_commands()", "return #KEYS + #ARGV", "return {tostring(0.5), tostring(-3), 1 .. ''}",
		"x = 1", "return x", "return os.time and 1 or 0", "return type(os.clock())", "error('mine')", "return nil + 1", "syntax error",
		"local t = {} for _, x in ipairs({'1', '-1', '1.5', '1e3', '0x10', ' 7 ', '', 'abc', '1 2', '.5', '5.', 'inf', '1e400', '9007199254740993', '12345678901234567890', '0x', '1_0', '+1', '--1'}) do " +
			"t[#t + 1] = tonumber(x) == 1/0 and 'inf' or string.format('%.17g', tonumber(x) or -99) end return t",
		"return {tonumber('ff', 16), tonumber('z', 36), tonumber('12', 3) or 'nil', tonumber('9', 8) or 'nil', tonumber(nil or 'x') or 'nil'}",
		"return {string.format('%.0f', 2.5), string.format('%.0f', 0.5), string.format('%.0f%09d', 3, 42), string.format('%014.4f', 5.0625), string.format('%d', -7), string.format('%5s|%-5s|%05d', 'a', 'b', 3)}",
		"return {struct.pack('<dI4I4', 1.5, 7, 4294967295), struct.pack('>I2i8', 258, -2), struct.unpack('<dI4', struct.pack('<dI4', 3, 9))}",
		"return {(pcall(struct.unpack, '<d', 'abc'))}", "return {struct.unpack('<i2', '\\255\\255')}", "return {struct.unpack('I', 'abcdefgh', 3)}", "return struct.pack('<I4', -1)",
		"return {('abc 12'):find('%d+'), ('abc'):find('b', 1, true), ('x'):rep(3), ('12 34'):match('^(%d%d?) (%d+)$')}",
		"return {('12345'):sub(1, -3), ('12345'):sub(-2), ('12345'):sub(0), ('12'):sub(5), #'ab'}",
		"return {7 % 3, -7 % 3, math.floor(-1.5), math.ceil(1.2), math.max(1, 2), math.abs(-4), math.huge}",
		"return {'10' * 2, '3' + 1, 10 .. 20}", "local t = {} for w in ('a b  c'):gmatch('%S+') do t[#t + 1] = w end return t", "return {unpack({1, 2, 3})}",
		"return redis.call('ZADD', 'z', 1.5, 'a', -2, 'b')", "return redis.call('ZSCORE', 'z', 'a')", "return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')", "return redis.call('HGETALL', 'none')",
		"return redis.call('TTL', 'a')", "return redis.call('PING')", "return redis.call('TYPE', 'z')", "return redis.call('TYPE', 'z').ok", "return redis.pcall('SELECT', 'x')", "return ('x'):rep(3, ',')",
		"local t = setmetatable({}, {__index = function() return 1 end}) return t", "redis.call('SELECT', 1) redis.call('SET', 'other', 1) redis.call('DEL', 'other') return redis.call('GET', 'l')",
		"return _G.x", "_G.x = 1", "KEYS[1] = 'x' return KEYS[1]",
	} {
		m.host.Do("EVAL", text, "0")
	}
	for _, args := range [][]string{
		{"EVAL", "return {KEYS[1], ARGV[1]}", "1", "a", "b"},
		{"EVAL", "return 1", "2", "a"},
		{"EVAL", "return 1", "-1", "a"},
		{"EVAL", "return 1", "x"},
		{"EVALSHA", "abc", "0"},
		{"EVALSHA", strings.ToUpper("e0e1f9fabfc9d4800c877a703b823ac0578ff8db"), "0"},
		{"EVAL", "return 1", "0"},
		{"SCRIPT", "LOAD", "return 2"},
		{"SCRIPT", "EXISTS", "7f923f79fe76194c868d7e1d0820de36700eb649", "x"},
		{"SCRIPT", "LOAD", "syntax error"},
		{"SCRIPT", "NONE"},
		{"SCRIPT", "LOAD"},
		{"SCRIPT", "EXISTS"},
		{"SCRIPT"},
		{"PING", "a"},
		{"PING", "a", "b"},
		{"AUTH", "a"},
		{"AUTH", "a", "b"},
		{"AUTH", "default", "b"},
		{"AUTH", "a", "b", "c"},
		{"SELECT", "16"},
		{"SELECT", "x"},
		{"SELECT", "-1"},
		{"SELECT", "1900000000000"},
		{"ROLE"},
		{"CLUSTER", "SLOTS"},
		{"READONLY"},
		{"ASKING"},
		{"KEYS", "z*"},
		{"KEYS", "?"},
		{"NONE", strings.Repeat("x", 200), "a"},
		{"NONE"},
		{strings.Repeat("N", 200)},
	} {
		m.host.Do(args...)
	}
	m.compareKeys()
}
