//go:build more

package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// acl returns the commands in docs/store.md that set the permissions of the store's user: the first
// one for every server, the second also for clusters, the third for Sentinels.
func acl(tb testing.TB) (all [][]string) {
	tb.Helper()
	page, err := os.ReadFile("../docs/store.md")
	must.OK(tb, err)
	for _, text := range strings.Split(string(page), "\n    ACL SETUSER ")[1:] {
		text, _, _ = strings.Cut(text, "\n\n")
		text, _, _ = strings.Cut(text, "#")
		all = append(all, append([]string{"ACL", "SETUSER"}, strings.Fields(text)...))
	}
	if len(all) != 3 || !slices.Contains(all[0], ">password") {
		tb.Fatalf("docs/store.md has the commands %q, want one for a user with the password password, one for a cluster, and one for Sentinels", all)
	}
	return all
}

// With the permissions in docs/store.md the script can run all of its commands, on every server.
func TestACL(t *testing.T) {
	t.Parallel()
	for _, binary := range storetest.Binaries(t) {
		srv := storetest.StartBinary(t, binary)
		srv.Must(acl(t)[0]...)
		c, err := redis.Dial(context.Background(), &redis.Server{Network: "tcp", Address: srv.Addr, Auth: redis.Auth{User: "sluice", Password: "password"}}, longTimeout)
		must.OK(t, err)
		r := tapePlayer{c: c, prefix: "s1"}
		for n := range 20 {
			data := make([]byte, 1500)
			for i := range data {
				data[i] = byte(i*i*(n+3) + i>>3)
			}
			r.play(t, data)
			srv.Must("FLUSHALL")
		}
		c.Close()
		srv.Must("ACL", "SETUSER", "sluice", "+select")
		c, err = redis.Dial(context.Background(), &redis.Server{Network: "tcp", Address: srv.Addr, Database: 1, Auth: redis.Auth{User: "sluice", Password: "password"}}, longTimeout)
		if err != nil {
			t.Errorf("connect to another database: %v", err)
		} else {
			c.Close()
		}
		if _, err := redis.Dial(context.Background(), &redis.Server{Network: "tcp", Address: srv.Addr, Auth: redis.Auth{User: "sluice", Password: "another"}}, longTimeout); redis.KindOf(err) != redis.Refused {
			t.Errorf("connect with a wrong password: %v, of kind %q, want %q", err, redis.KindOf(err), redis.Refused)
		}
	}
}

// After a password was replaced, in the file and in the server, the next connection uses it.
func TestPasswordIsReread(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	srv.Must(acl(t)[0]...)
	srv.Must("ACL", "SETUSER", "sluice", "resetpass", ">secret")
	write("sluice:secret\n")
	to := serverAt(srv)
	to.Auth.File = file
	var mu sync.Mutex
	line := ""
	s := runStore(t, Options{Server: to, Log: Log{Unavailable: func(_ string, kind redis.Kind, err error, remedy string) {
		mu.Lock()
		defer mu.Unlock()
		if kind == redis.Refused {
			line = err.Error() + "; " + remedy
		}
	}}})
	storetest.Eventually(t, "up", s.Up)
	srv.Must("ACL", "SETUSER", "sluice", "resetpass", ">fresh")
	srv.Must("CLIENT", "KILL", "USER", "sluice")
	storetest.Eventually(t, "refused", func() bool {
		var c caller
		_ = c.decide(s, oneHit(1, hugeBucket))
		mu.Lock()
		defer mu.Unlock()
		return line != ""
	})
	mu.Lock()
	if !strings.Contains(line, "docs/store.md") || strings.Contains(line, "secret") {
		t.Errorf("logged %q, want a remedy and no password", line)
	}
	mu.Unlock()
	write("sluice:fresh")
	storetest.Eventually(t, "up again", s.Up)
}

// Certificates of both sides are verified. After files were replaced, the next connection uses
// them.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, err := testcert.New("store")
	must.OK(t, err)
	issue := func(l testcert.Leaf) testcert.Pair {
		p, err := authority.Issue(l)
		must.OK(t, err)
		return p
	}
	named := issue(testcert.Leaf{Names: []string{"127.0.0.1"}})
	pair, err := tls.X509KeyPair(named.Cert, named.Key)
	must.OK(t, err)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority.PEM)
	srv := storetest.Start(t)
	address := newFaultyProxy(t, srv.Addr, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}).Addr().String()
	dir := t.TempDir()
	files := testcert.PathsIn(dir)
	write := func(path string, text []byte) {
		must.OK(t, os.WriteFile(path, text, 0o600))
	}
	write(files.CA, authority.PEM)
	mine := issue(testcert.Leaf{})
	write(files.Cert, mine.Cert)
	write(files.Key, mine.Key)
	to := redis.Server{Network: "tcp", Address: address, TLS: &redis.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key}}
	reach := func(to redis.Server) error {
		c, err := redis.Dial(context.Background(), &to, longTimeout)
		if err != nil {
			return err
		}
		defer c.Close()
		return loadScript(c)
	}
	if err := reach(to); err != nil {
		t.Errorf("connect with all files: %v", err)
	}
	without := to
	without.TLS = &redis.TLS{CA: files.CA}
	if err := reach(without); err == nil {
		t.Error("connected without a client certificate")
	}
	strange := to
	strange.TLS = &redis.TLS{Cert: files.Cert, Key: files.Key}
	if err := reach(strange); err == nil {
		t.Error("connected with the authorities of the system")
	}
	_, port, _ := net.SplitHostPort(address)
	other := to
	other.Address = net.JoinHostPort("localhost", port)
	if err := reach(other); err == nil {
		t.Error("connected by a name that is not in the certificate")
	}
	other.TLS = &redis.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key, SkipName: true}
	if err := reach(other); err != nil {
		t.Errorf("connect by a name that need not match: %v", err)
	}
	foreign, err := testcert.New("foreign")
	must.OK(t, err)
	write(files.CA, foreign.PEM)
	if err := reach(other); err == nil {
		t.Error("connected with an unknown authority when names need not match")
	}
	write(files.CA, []byte("no certificate"))
	if err := reach(to); err == nil || !strings.Contains(err.Error(), files.CA) {
		t.Errorf("connect with a broken file: %v, want an error that names it", err)
	}
}
