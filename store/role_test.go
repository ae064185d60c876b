package store

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// longRole is the duration of a role that does not end during a test.
const longRole = time.Hour

// acquireOne acquires one role. It returns the previous holder, or "?" if the store has not
// answered.
func acquireOne(tb testing.TB, s *Store, holder, role string, length time.Duration) string {
	tb.Helper()
	all := acquireAll(tb, s, holder, length, role)
	if before, answered := all[role]; answered {
		return before
	}
	return "?"
}

func acquireAll(tb testing.TB, s *Store, holder string, length time.Duration, roles ...string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	s.AcquireLeadership(holder, length, roles, func(i int, before string) { all[roles[i]] = before })
	return all
}

// A role has one holder until it releases the role or the store loses it. The permissions in
// docs/store.md suffice.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, binary := range storetest.Binaries(t) {
		srv := storetest.StartBinary(t, binary)
		srv.Must(acl(t)[0]...)
		srv.Must("ACL", "SETUSER", "sluice", "~mine:s1{*")
		server := serverAt(srv)
		server.Auth = redis.Auth{User: "sluice", Password: "password"}
		s := runStore(t, Options{Server: server, Prefix: "mine:"})
		storetest.Eventually(t, "up", s.Up)
		for i, step := range []struct {
			holder, role string
			length       time.Duration
			want         string
		}{
			{"a", "shop", longRole, ""},
			{"b", "shop", longRole, "a"},
			{"b", "shop", 0, "a"}, // only its holder can release it
			{"a", "shop", longRole, "a"},
			{"b", "other", longRole, ""},
			{"a", "other", longRole, "b"},
			{"a", "shop", 0, "a"},
			{"a", "shop", 0, ""},
			{"b", "shop", longRole, ""},
			{"a", "shop", longRole, "b"},
			{"a", "with { and } and \xff", longRole, ""},
			{"b", "with { and } and \xff", longRole, "a"},
			{strings.Repeat("x", maxHolderName), "long", longRole, ""},
			{"a", "long", longRole, strings.Repeat("x", maxHolderName)},
			{strings.Repeat("x", maxHolderName), "long", longRole, strings.Repeat("x", maxHolderName)},
			{strings.Repeat("x", maxHolderName+1), "longer", longRole, "?"},
			{"", "nobody", longRole, "?"},
		} {
			if got := acquireOne(t, s, step.holder, step.role, step.length); got != step.want {
				t.Errorf("step %d: %q acquires %q, previous holder %q, want %q", i, step.holder, step.role, got, step.want)
			}
		}
		// The duration of a role begins with the last renewal.
		acquireOne(t, s, "a", "short", longRole)
		acquireOne(t, s, "a", "short", time.Minute)
		if ms, err := strconv.Atoi(srv.Must("PTTL", "mine:s1{role:short}")); err != nil || ms <= 0 || ms > 60_000 {
			t.Errorf("a role of a minute ends in %d ms, %v", ms, err)
		}
		acquireOne(t, s, "a", "short", time.Millisecond)
		storetest.Eventually(t, "the role has ended", func() bool { return acquireOne(t, s, "b", "short", time.Millisecond) == "" })
		srv.Must("FLUSHALL")
		if got := acquireOne(t, s, "a", "shop", longRole); got != "" {
			t.Errorf("%q has a role after the store lost all", got)
		}
	}
}

// If another program wrote the key of a role, that role cannot be acquired, and the key does not
// change. Other roles can.
func TestForeignRoles(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Log: Log{Unavailable: func(_ string, _ redis.Kind, err error, _ string) { t.Errorf("unavailable: %v", err) }}})
	storetest.Eventually(t, "up", s.Up)
	srv.Must("RPUSH", "s1{role:list}", "x")
	srv.Must("SET", "s1{role:text}", strings.Repeat("y", 1<<20))
	all := acquireAll(t, s, "a", longRole, "list", "text", "shop")
	if _, answered := all["list"]; answered || len(all) != 2 || all["shop"] != "" || all["text"] != strings.Repeat("y", maxHolderName+1) {
		t.Errorf("the roles were held by %.200q", all)
	}
	if n := srv.Must("LLEN", "s1{role:list}") + srv.Must("STRLEN", "s1{role:text}"); n != "1"+strconv.Itoa(1<<20) {
		t.Errorf("the keys of another program have %s", n)
	}
	if got := acquireOne(t, s, "a", "shop", longRole); got != "a" {
		t.Errorf("%q has the role beside them", got)
	}
}

// On a cluster a role is at the node of its slot. Roles of a failed primary are not reported.
func TestRolesOfCluster(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, false)
	s := runStore(t, Options{Server: nodes(all)})
	storetest.Eventually(t, "up", s.Up)
	var roles []string
	for n := range 30 {
		roles = append(roles, fmt.Sprintf("domain%d", n))
	}
	for _, want := range []string{"", "a"} {
		got := acquireAll(t, s, "a", longRole, roles...)
		for _, role := range roles {
			if before, answered := got[role]; !answered || before != want {
				t.Errorf("%q had the role %s, want %q", before, role, want)
			}
		}
	}
	all[0].Kill()
	storetest.Eventually(t, "the store knows", func() bool { return !s.Up() })
	got := acquireAll(t, s, "a", longRole, roles...)
	for _, role := range roles {
		gone := redis.SlotOf([]byte("s1{role:"+role+"}")) <= 16384/3-1
		if before, answered := got[role]; answered == gone || answered && before != "a" {
			t.Errorf("%q had the role %s, answered: %v; its primary is gone: %v", before, role, answered, gone)
		}
	}
}

// Whatever a server replies, AcquireLeadership returns, nothing panics, and requests are decided in
// time.
func TestHostileRoles(t *testing.T) {
	t.Parallel()
	for _, reply := range append(hostileReplies, struct {
		name  string
		send  func(w io.Writer) bool
		kinds []redis.Kind
		named string
	}{name: "a long name", send: replyWith("$900\r\n" + strings.Repeat("n", 900) + "\r\n")}) {
		t.Run(reply.name, func(t *testing.T) {
			t.Parallel()
			server := redis.Server{Network: "tcp", Address: newHostileServer(t, func(w io.Writer, command []string) bool {
				if strings.Contains(strings.Join(command, " "), "s1{role:") {
					return reply.send(w)
				}
				return replyWith("*3\r\n:1795342320\r\n:1\r\n:0\r\n")(w)
			}).addr}
			s := runStore(t, Options{
				Server: server, Fallback: Deny, Timeout: 300 * time.Millisecond, DialTimeout: 200 * time.Millisecond,
				Panicked: func(thrown any) { t.Errorf("panicked: %v", thrown) },
			})
			for range 3 {
				storetest.Eventually(t, "up", s.Up)
				for role, before := range acquireAll(t, s, "a", longRole, "shop", "other") {
					if before == "a" {
						t.Errorf("the role %s is held without a reply", role)
					}
				}
				var c caller
				if err := c.ask(s, oneHit(1, hugeBucket)); err != nil {
					t.Errorf("a request gets %v", err)
				}
			}
		})
	}
}

// Without a store AcquireLeadership reports nothing and returns at once.
func TestRolesWithoutStore(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	srv.Kill()
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	if got := acquireOne(t, s, "a", "shop", longRole); got != "?" {
		t.Errorf("%q has the role, without a store", got)
	}
}
