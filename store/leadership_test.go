//go:build more

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

// longTTL is longer than a test runs.
const longTTL = time.Hour

// TestLeadership checks that a domain has one leader until the leader releases the leadership or
// the store loses it. The permissions of the user in docs/store.md suffice.
func TestLeadership(t *testing.T) {
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
			candidate, domain string
			ttl               time.Duration
			want              string
		}{
			{"a", "shop", longTTL, ""},
			{"b", "shop", longTTL, "a"},
			{"b", "shop", 0, "a"}, // b is not the leader, so this releases nothing
			{"a", "shop", longTTL, "a"},
			{"b", "other", longTTL, ""},
			{"a", "other", longTTL, "b"},
			{"a", "shop", 0, "a"},
			{"a", "shop", 0, ""},
			{"b", "shop", longTTL, ""},
			{"a", "shop", longTTL, "b"},
			{"a", "with { and } and \xff", longTTL, ""},
			{"b", "with { and } and \xff", longTTL, "a"},
			{strings.Repeat("x", maxCandidateName), "long", longTTL, ""},
			{"a", "long", longTTL, strings.Repeat("x", maxCandidateName)},
			{strings.Repeat("x", maxCandidateName), "long", longTTL, strings.Repeat("x", maxCandidateName)},
			{strings.Repeat("x", maxCandidateName+1), "longer", longTTL, "?"},
			{"", "nobody", longTTL, "?"},
		} {
			if got := acquireOne(t, s, step.candidate, step.domain, step.ttl); got != step.want {
				t.Errorf("step %d: candidate %q, domain %q: the previous leader is %q, want %q", i, step.candidate, step.domain, got, step.want)
			}
		}
		// The last renewal determines when a leadership expires.
		acquireOne(t, s, "a", "short", longTTL)
		acquireOne(t, s, "a", "short", time.Minute)
		if ms, err := strconv.Atoi(srv.Must("PTTL", "mine:s1{role:short}")); err != nil || ms <= 0 || ms > 60_000 {
			t.Errorf("a leadership of a minute expires in %d ms, %v", ms, err)
		}
		acquireOne(t, s, "a", "short", time.Millisecond)
		storetest.Eventually(t, "the leadership has expired", func() bool { return acquireOne(t, s, "b", "short", time.Millisecond) == "" })
		srv.Must("FLUSHALL")
		if got := acquireOne(t, s, "a", "shop", longTTL); got != "" {
			t.Errorf("%q is the leader after the store lost its data", got)
		}
	}
}

// TestForeignLeadershipKeys writes keys of leaderships as another program would. These keys stay
// unchanged, and other leaderships are not affected.
func TestForeignLeadershipKeys(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv), Log: Log{Unavailable: func(_ string, _ redis.Kind, err error, _ string) { t.Errorf("unavailable: %v", err) }}})
	storetest.Eventually(t, "up", s.Up)
	srv.Must("RPUSH", "s1{role:list}", "x")
	srv.Must("SET", "s1{role:text}", strings.Repeat("y", 1<<20))
	all := acquireAll(t, s, "a", longTTL, "list", "text", "shop")
	if _, answered := all["list"]; answered || len(all) != 2 || all["shop"] != "" || all["text"] != strings.Repeat("y", maxCandidateName+1) {
		t.Errorf("the previous leaders are %.200q", all)
	}
	if n := srv.Must("LLEN", "s1{role:list}") + srv.Must("STRLEN", "s1{role:text}"); n != "1"+strconv.Itoa(1<<20) {
		t.Errorf("the lengths of the other program's keys are %s", n)
	}
	if got := acquireOne(t, s, "a", "shop", longTTL); got != "a" {
		t.Errorf("the leader of another domain is %q", got)
	}
}

// TestLeadershipOnCluster acquires leaderships in many slots. Those of a failed primary are not
// reported.
func TestLeadershipOnCluster(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, false)
	s := runStore(t, Options{Server: nodes(all)})
	storetest.Eventually(t, "up", s.Up)
	var domains []string
	for n := range 30 {
		domains = append(domains, fmt.Sprintf("domain%d", n))
	}
	for _, want := range []string{"", "a"} {
		got := acquireAll(t, s, "a", longTTL, domains...)
		for _, domain := range domains {
			if previous, known := got[domain]; !known || previous != want {
				t.Errorf("the previous leader of %s is %q, want %q", domain, previous, want)
			}
		}
	}
	all[0].Kill()
	storetest.Eventually(t, "the store is unavailable", func() bool { return !s.Up() })
	got := acquireAll(t, s, "a", longTTL, domains...)
	for _, domain := range domains {
		lost := redis.SlotOf([]byte("s1{role:"+domain+"}")) <= 16384/3-1
		if previous, known := got[domain]; known == lost || known && previous != "a" {
			t.Errorf("the previous leader of %s is %q, known: %v; its primary is down: %v", domain, previous, known, lost)
		}
	}
}

// TestHostileLeadershipReplies has a server reply to leadership requests with errors, nonsense or
// not at all. AcquireLeadership returns, nothing panics, and requests are decided in time.
func TestHostileLeadershipReplies(t *testing.T) {
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
				for domain, previous := range acquireAll(t, s, "a", longTTL, "shop", "other") {
					if previous == "a" {
						t.Errorf("AcquireLeadership reports that a was the leader of %s", domain)
					}
				}
				var c caller
				if err := c.decide(s, oneHit(1, hugeBucket)); err != nil {
					t.Errorf("decide = %v", err)
				}
			}
		})
	}
}

// TestLeadershipWithoutStore checks that AcquireLeadership returns immediately if the store is
// unavailable.
func TestLeadershipWithoutStore(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	s := runStore(t, Options{Server: serverAt(srv)})
	storetest.Eventually(t, "up", s.Up)
	srv.Kill()
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	if got := acquireOne(t, s, "a", "shop", longTTL); got != "?" {
		t.Errorf("without a store the previous leader is %q", got)
	}
}
