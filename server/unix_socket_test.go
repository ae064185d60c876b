//go:build unix

package server

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSocketsInUseAreKept checks that only a socket file without a process is replaced. A socket
// whose queue is full, as of a stopped process, and a datagram socket are in use.
func TestSocketsInUseAreKept(t *testing.T) {
	full := func(path string) {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(fd) })
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Listen(fd, 0); err != nil {
			t.Fatal(err)
		}
		for range 10_000 { // until the queue is full
			c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		t.Fatal("the queue of the socket is not full after 10,000 connections")
	}
	datagrams := func(path string) {
		l, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "unixgram", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	for name, use := range map[string]func(path string){"full queue": full, "datagrams": datagrams} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			use(path)
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := listen(t.Context(), "unix://"+path, false, defaultSocketMode); err == nil || !strings.Contains(err.Error(), "in use by another process") {
				t.Errorf("listen = %v, want an error that the socket may be in use", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("the socket file was replaced: %v", err)
			}
		})
	}
}
