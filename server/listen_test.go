package server

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestPortInUse checks that a port in use fails the start, unless the listener is optional.
func TestPortInUse(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()

	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{HTTPAddr: addr, MetricsAddr: addr, Optional: map[string]string{"http": "--a", "metrics": "--b"}})
	checkOK(t, r.dial(t))
	if r.addr["http"] != "" || r.addr["metrics"] != "" || r.addr["debug"] == "" {
		t.Errorf("listeners %v, want grpc and debug", r.addr)
	}
	disabled := map[any]any{} // the flag of each disabled listener
	for _, e := range r.logs.FilterMessage("port already in use; listener disabled").All() {
		disabled[e.ContextMap()["listener"]] = e.ContextMap()["address_set_by"]
	}
	if len(disabled) != 2 || disabled["http"] != "--a" || disabled["metrics"] != "--b" {
		t.Errorf("the log reports the disabled listeners %v, want http and metrics", disabled)
	}

	for name, options := range map[string]Options{
		"http": {HTTPAddr: addr, Optional: map[string]string{"metrics": "--b"}},
		"grpc": {GRPCAddr: addr, Optional: map[string]string{"grpc": "--c"}},
		// Only a port in use is tolerated, not an address that the machine does not have.
		"metrics": {MetricsAddr: "192.0.2.1:0", Optional: map[string]string{"metrics": "--b"}},
	} {
		s := service(t, answer.Settings{}, oneRule)
		err := New(options, s, r.logger).Listen(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), name+" listener: ") {
			t.Errorf("Listen() = %v, want an error of the %s listener", err, name)
		}
	}
}

// TestReusePort checks that two servers can listen on the same ports if both set ReusePort.
func TestReusePort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SO_REUSEPORT")
	}
	old := serve(t, service(t, answer.Settings{}, oneRule), Options{ReusePort: true})
	same := Options{GRPCAddr: old.addr["grpc"], HTTPAddr: old.addr["http"], DebugAddr: old.addr["debug"], MetricsAddr: old.addr["metrics"]}

	s := service(t, answer.Settings{}, oneRule)
	if err := New(same, s, old.logger).Listen(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen() = %v without ReusePort, want an error that the address is in use", err)
	}
	same.ReusePort = true
	successor := serve(t, service(t, answer.Settings{}, oneRule), same)
	old.stop()
	if err := <-old.done; err != nil {
		t.Fatal(err)
	}
	old.done <- nil // received again by the cleanup
	checkOK(t, successor.dial(t))
	if _, body := get(t, "http://"+old.addr["http"]+"/healthcheck"); body != "OK" {
		t.Errorf("/healthcheck = %q, want OK", body)
	}
}

func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, addr := range []string{"unix://" + path, abstractSocket(t)} {
		t.Run(addr[:6], func(t *testing.T) {
			r := serve(t, service(t, answer.Settings{}, oneRule), Options{GRPCAddr: addr})
			checkOK(t, r.dial(t))
			if strings.Contains(addr, "@") {
				return
			}
			if _, err := listen(t.Context(), addr, false, defaultSocketMode); err == nil || !strings.Contains(err.Error(), "another process listens") {
				t.Errorf("listen on a socket in use: %v", err)
			}
		})
	}

	// A killed process leaves its socket file.
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	_ = l.Close()
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{GRPCAddr: "unix://" + path})
	checkOK(t, r.dial(t))
}

// TestSocketMode checks that the configured mode applies to the gRPC socket only.
func TestSocketMode(t *testing.T) {
	for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o660, 0o600: 0o600, 0o666: 0o666} {
		grpc, http := filepath.Join(t.TempDir(), "grpc"), filepath.Join(t.TempDir(), "http")
		serve(t, service(t, answer.Settings{}, oneRule), Options{GRPCAddr: "unix://" + grpc, GRPCSocketMode: mode, HTTPAddr: "unix://" + http})
		for path, want := range map[string]fs.FileMode{grpc: want, http: 0o660} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("GRPCSocketMode %v: %s is %v, %v, want %v", mode, filepath.Base(path), info.Mode().Perm(), err, want)
			}
		}
	}
}

func TestListenKeepsOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "unix://"+path, false, defaultSocketMode); err == nil {
		t.Error("listen on a regular file succeeded")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
		t.Errorf("the file is now %q, %v, want it unchanged", b, err)
	}
	for _, addr := range []string{"unix://", "unix:", "unix://tmp/s", "unix:s"} {
		if _, err := listen(t.Context(), addr, false, defaultSocketMode); err == nil || !strings.Contains(err.Error(), "must be unix:///path") {
			t.Errorf("listen(%q) = %v, want an error with the allowed forms", addr, err)
		}
	}
}

func TestListenOpensAllOrNone(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := service(t, answer.Settings{}, oneRule)
	path := filepath.Join(t.TempDir(), "s")
	r := New(Options{GRPCAddr: "unix://" + path, HTTPAddr: taken.Addr().String()}, s, zap.NewNop())
	if err := r.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "http listener") {
		t.Errorf("Listen() = %v, want an error of the http listener", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the gRPC socket still exists: %v", err)
	}
}

// TestBoundedConnImplementsSyscallConn checks that the built-in transport can read from a
// boundedConn without a buffer per connection.
func TestBoundedConnImplementsSyscallConn(t *testing.T) {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = errors.Join(client.Close(), server.Close()) })
	if _, err := (&boundedConn{Conn: server}).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SyscallConn of a connection without a file: %v, want ErrUnsupported", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dialed, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	conn, err := (&boundedListener{Listener: l, max: 1, elapsed: stoppedClock}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	file, ok := conn.(syscall.Conn)
	if !ok {
		t.Fatal("a bounded connection does not implement syscall.Conn")
	}
	if _, err := file.SyscallConn(); err != nil {
		t.Error(err)
	}
}
