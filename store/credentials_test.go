//go:build more

package store

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A refusalLog collects the errors that are logged when a store refuses access.
type refusalLog struct {
	mu    sync.Mutex
	lines []string
}

func (r *refusalLog) log() Log {
	return Log{Unavailable: func(_ string, kind redis.Kind, err error, remedy string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if kind == redis.Refused {
			r.lines = append(r.lines, err.Error()+"; "+remedy)
		}
	}}
}

// await waits for an error, and checks that it refers to the documentation and contains no
// password.
func (r *refusalLog) await(tb testing.TB, passwords ...string) {
	tb.Helper()
	storetest.Eventually(tb, "refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.lines) > 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if !strings.Contains(line, "docs/store.md") {
			tb.Errorf("logged %q, want a remedy", line)
		}
		for _, password := range passwords {
			if strings.Contains(line, password) {
				tb.Errorf("logged %q, which has a password", line)
			}
		}
	}
	r.lines = nil
}

// If only one side has a password, the error says so, and sluice recovers by itself once both
// agree.
func TestPasswordMismatch(t *testing.T) {
	t.Parallel()
	for name, password := range map[string]string{"only sluice has a password": "hush", "only the server has a password": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := storetest.Start(t)
			to := serverAt(srv)
			to.Auth.Password = password
			if password == "" {
				srv.Must("ACL", "SETUSER", "other", "on", ">x", "+@all", "~*")
				srv.Must("CONFIG", "SET", "requirepass", "theirs")
			}
			var r refusalLog
			s := runStore(t, Options{Server: to, Log: r.log()})
			r.await(t, "hush", "theirs")
			if s.Up() {
				t.Error("Up = true, want refused access")
			}
			if password != "" {
				srv.Must("CONFIG", "SET", "requirepass", password)
				storetest.Eventually(t, "up", s.Up)
			}
		})
	}
}

// newCertificates returns the configuration of a server, and the files with which sluice verifies
// it.
func newCertificates(tb testing.TB) (*tls.Config, *redis.TLS) {
	tb.Helper()
	authority, err := testcert.New("store")
	must.OK(tb, err)
	leaf, err := authority.Issue(testcert.Leaf{Names: []string{"127.0.0.1"}})
	must.OK(tb, err)
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	must.OK(tb, err)
	files := testcert.PathsIn(tb.TempDir())
	must.OK(tb, os.WriteFile(files.CA, authority.PEM, 0o600))
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, &redis.TLS{CA: files.CA}
}

// noScripts denies scripts to the default user.
func noScripts(s *storetest.Server) { s.Must("ACL", "SETUSER", "default", "-eval", "-evalsha") }

// The permissions in docs/store.md suffice on a cluster, also while slots move.
func TestACLOnACluster(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, false)
	for _, n := range all {
		for _, command := range acl(t)[:2] {
			n.Must(command...)
		}
		noScripts(n)
	}
	to := nodes(all)
	to.Auth = redis.Auth{User: "sluice", Password: "password"}
	o := &recorder{}
	s := runStore(t, Options{Server: to, Observer: o, Fallback: Deny})
	storetest.Eventually(t, "up", s.Up)
	l := newTraffic(t, s)
	l.waitForHits(t)
	first := oneHit(1, hugeFixedWindow)
	slot := redis.SlotOf(nameOf("s1", &first))
	from := int(slot) * 3 / redis.Slots
	storetest.MoveSlot(all[from], all[(from+1)%3], slot, func() {
		before := l.admitted[0].Load()
		storetest.Eventually(t, "hits on the counter while its slot moves", func() bool { return l.admitted[0].Load() > before+2 })
	})
	l.waitForHits(t)
	l.stopAndWait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed[redis.Refused] > 0 || o.failed[redis.Cluster] == 0 {
		t.Errorf("failed %v, want redirections and no refused command", o.failed)
	}
}

// Nodes of a cluster that announce TLS ports and require a password are queried with both.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	storetest.Before7(t, "a running node of Redis 6.2 cannot change its port")
	config, files := newCertificates(t)
	all := storetest.StartCluster(t, 3, false)
	var relays []*relay
	for _, n := range all {
		for _, command := range acl(t)[:2] {
			n.Must(command...)
		}
		noScripts(n)
		r := newRelay(t, n.Addr, config, true)
		relays = append(relays, r)
		_, port, _ := net.SplitHostPort(r.addr)
		n.Must("CONFIG", "SET", "cluster-announce-port", port)
	}
	for _, n := range all {
		storetest.Eventually(t, "all nodes announce TLS ports", func() bool {
			slots := n.Must("CLUSTER", "SLOTS")
			for _, r := range relays {
				if _, port, _ := net.SplitHostPort(r.addr); !strings.Contains(slots, port) {
					return false
				}
			}
			return true
		})
	}
	to := redis.Server{Nodes: []string{relays[0].addr}, TLS: files, Auth: redis.Auth{User: "sluice", Password: "password"}}
	s := runStore(t, Options{Server: to, Fallback: Deny})
	storetest.Eventually(t, "up", s.Up)
	l := newTraffic(t, s)
	l.waitForHits(t)
	l.stopAndWait()
	l.compareCounts(t, s, 0)
	for i, r := range relays {
		if secure, plain := r.connections(); secure == 0 || plain > 0 {
			t.Errorf("node %d: %d connections with TLS, %d without", i, secure, plain)
		}
	}
	to.Auth.Password = "wrong"
	var r refusalLog
	runStore(t, Options{Server: to, Fallback: Deny, Log: r.log()})
	r.await(t, "wrong")
}

// Sentinels and the primary use TLS, each with a password of its own.
func TestSentinelOverTLS(t *testing.T) {
	t.Parallel()
	config, files := newCertificates(t)
	primary := storetest.Start(t)
	primary.Must(acl(t)[0]...)
	noScripts(primary)
	front := newRelay(t, primary.Addr, config, false) // accepts plain connections of Sentinel, which announces this address
	shown := *primary
	shown.Addr = front.addr
	watcher := storetest.StartSentinels(t, &shown, 0, 1)[0]
	watcher.Must(acl(t)[2]...)
	watcher.Must("ACL", "SETUSER", "default", "nopass", "-@all", "+ping", "+shutdown")
	side := newRelay(t, watcher.Addr, config, true)
	to := redis.Server{
		Sentinels: []string{side.addr}, Master: "main", TLS: files,
		Auth: redis.Auth{User: "sluice", Password: "password"}, SentinelAuth: redis.Auth{User: "watcher", Password: "password"},
	}
	o := &recorder{}
	s := runStore(t, Options{Server: to, Observer: o, Fallback: Deny})
	storetest.Eventually(t, "up", s.Up)
	var c caller
	if err := c.decide(s, oneHit(1, hugeBucket)); err != nil || c.b.Denied {
		t.Errorf("decided %+v, %v, want the store's decision", c.b.Decisions, err)
	}
	storetest.Eventually(t, "a connection to Sentinel", func() bool {
		secure, _ := side.connections()
		return secure > 0
	})
	if n := o.failuresOf(redis.Refused); n > 0 {
		t.Errorf("access was refused %d times", n)
	}
	if secure, _ := front.connections(); secure == 0 {
		t.Error("the primary was not queried over TLS")
	}
	if secure, plain := side.connections(); secure == 0 || plain > 0 {
		t.Errorf("Sentinel: %d connections with TLS, %d without", secure, plain)
	}
	to.SentinelAuth.Password = "wrong"
	var r refusalLog
	runStore(t, Options{Server: to, Fallback: Deny, Log: r.log()})
	r.await(t, "wrong")
}
