//go:build more

package store

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/sentinel"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A fakeSentinel answers queries for the primary and its replica.
type fakeSentinel struct {
	primary, replica atomic.Value // addresses
	message          string       // published after the last SUBSCRIBE
	forever          bool
}

func (s *fakeSentinel) answers(w io.Writer, command []string) bool {
	address := func(v *atomic.Value) (host, port string) {
		text, _ := v.Load().(string)
		host, port, _ = net.SplitHostPort(text)
		return host, port
	}
	switch {
	case len(command) == 1: // PING of a subscriber that has received nothing for a while
		return replyWith("*2\r\n" + bulk("pong") + bulk(""))(w)
	case strings.EqualFold(command[0], "SUBSCRIBE"):
		if !replyWith("*3\r\n" + bulk("subscribe") + bulk(command[1]) + ":1\r\n")(w) {
			return false
		}
		if s.message == "" || command[1] != sentinel.Promoting {
			return true
		}
		message := "*3\r\n" + bulk("message") + bulk(command[1]) + bulk(s.message)
		if s.forever {
			return sendForever(message)(w)
		}
		return replyWith(message)(w)
	case command[1] == "REPLICAS":
		host, port := address(&s.replica)
		return replyWith("*1\r\n*6\r\n" + bulk("name") + bulk("any") + bulk("ip") + bulk(host) + bulk("port") + bulk(port))(w)
	default:
		host, port := address(&s.primary)
		return replyWith("*2\r\n" + bulk(host) + bulk(port))(w)
	}
}

// replicaMessage returns Sentinel's message about a replica at an address.
func replicaMessage(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("slave %s %s %s @ main 127.0.0.1 1", address, host, port)
}

// threeSentinels starts three Sentinels that give the same answers. The third also publishes a
// message, once or endlessly.
func threeSentinels(tb testing.TB, primary, replica, third string, endless bool) (redis.Server, []*fakeSentinel) {
	tb.Helper()
	to, all := redis.Server{Master: "main"}, []*fakeSentinel{}
	for n := range 3 {
		s := &fakeSentinel{}
		s.primary.Store(primary)
		s.replica.Store(replica)
		if n == 2 {
			s.message, s.forever = third, endless
		}
		all = append(all, s)
		to.Sentinels = append(to.Sentinels, newHostileServer(tb, s.answers).addr)
	}
	return to, all
}

// A replica that one Sentinel announces is used as soon as it reports that it is the primary,
// although most Sentinels still name the old one.
func TestPromotionIsFollowed(t *testing.T) {
	t.Parallel()
	primary := storetest.Start(t)
	replica := storetest.StartReplica(t, primary)
	replica.Must("REPLICAOF", "NO", "ONE")
	for _, one := range []*storetest.Server{primary, replica} { // the permissions in docs/store.md suffice
		one.Must(append(acl(t)[0], "+role")...)
		noScripts(one)
	}
	to, _ := threeSentinels(t, primary.Addr, replica.Addr, replicaMessage(replica.Addr), false)
	to.Auth = redis.Auth{User: "sluice", Password: "password"}
	s := runStore(t, Options{Server: to, Fallback: Deny})
	storetest.Eventually(t, "the store uses the replica", func() bool { return s.Up() && s.main.shardOf(0).address() == replica.Addr })
}

// A single malicious Sentinel cannot move the primary.
func TestOneSentinelCannotMoveThePrimary(t *testing.T) {
	t.Parallel()
	primary := storetest.Start(t)
	replica := storetest.StartReplica(t, primary)
	foreign := newHostileServer(t, func(w io.Writer, _ []string) bool { return replyWith("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")(w) })
	to, all := threeSentinels(t, primary.Addr, replica.Addr, replicaMessage(foreign.addr), true)
	all[2].primary.Store(foreign.addr)
	all[2].replica.Store(foreign.addr)
	o := &recorder{}
	s := runStore(t, Options{Server: to, Observer: o, Fallback: Deny})
	storetest.Eventually(t, "up", s.Up)
	storetest.Eventually(t, "the Sentinel has been disconnected twice", func() bool {
		if at := s.main.shardOf(0).address(); at != primary.Addr && at != "" {
			t.Fatalf("the store uses %s, want the primary at %s", at, primary.Addr)
		}
		return o.failuresOf(redis.Reply) >= 2
	})
	foreign.mu.Lock()
	defer foreign.mu.Unlock()
	if foreign.connections > 0 {
		t.Errorf("%d connections to a server that only one Sentinel names as a replica", foreign.connections)
	}
}

// A promoted replica is used while it reports that it is the primary, until most Sentinels name a
// new one.
func TestPromotionEnds(t *testing.T) {
	t.Parallel()
	primary, third := storetest.Start(t), storetest.Start(t)
	replica := storetest.StartReplica(t, primary)
	to, all := threeSentinels(t, primary.Addr, replica.Addr, "", false)
	s, err := New(Options{Server: to, Timeout: longTimeout, DialTimeout: time.Minute, Fallback: Deny})
	must.OK(t, err)
	w, ctx := s.main.watch, context.Background()
	t.Cleanup(w.Close)
	step := func(want string, heard bool) {
		t.Helper()
		if heard {
			w.Candidate, w.CandidateUntil = replica.Addr, clock().Add(time.Hour)
		}
		if err := w.CheckPromotion(ctx, primary.Addr); err != nil {
			t.Error(err)
		}
		if got, err := w.Primary(ctx); err != nil || got != want {
			t.Errorf("the address is %s, %v, want %s", got, err, want)
		}
	}
	step(primary.Addr, true) // it is still a replica
	if w.Candidate == "" {
		t.Error("the replica is no longer checked")
	}
	replica.Must("REPLICAOF", "NO", "ONE")
	step(replica.Addr, false)
	replica.Must("REPLICAOF", "127.0.0.1", primary.Port())
	step(primary.Addr, false)
	replica.Must("REPLICAOF", "NO", "ONE")
	step(replica.Addr, true)
	for _, one := range all {
		one.primary.Store(third.Addr)
	}
	step(third.Addr, false)
	w.CandidateUntil = time.Time{}
	replica.Must("REPLICAOF", "127.0.0.1", primary.Port())
	for _, one := range all {
		one.primary.Store(primary.Addr)
	}
	w.Candidate = replica.Addr
	step(primary.Addr, false)
	if w.Candidate != "" {
		t.Error("a server that is still a replica is checked again")
	}
}
