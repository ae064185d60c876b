// Package storetest runs real servers of Redis and Valkey for tests.
package storetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// version is the one that `make valkey` installs.
const version = "9.1.2.post2"

// Binaries returns the servers to test with: VALKEY_BIN, which must exist if set, or the server
// that `make valkey` installed; and those of STORE_BINS, separated by colons. Without any the test
// is skipped, and make test-more reports that.
func Binaries(tb testing.TB) []string {
	tb.Helper()
	path := os.Getenv("VALKEY_BIN")
	if path == "" {
		_, file, _, _ := runtime.Caller(0)
		path = filepath.Join(filepath.Dir(file), "..", "..", ".build", "valkey-"+version)
	}
	var all []string
	if _, err := exec.LookPath(path); err == nil {
		all = append(all, path)
	} else if os.Getenv("VALKEY_BIN") != "" && !errors.Is(err, os.ErrNotExist) {
		tb.Fatalf("VALKEY_BIN: %v", err)
	}
	for _, path := range filepath.SplitList(os.Getenv("STORE_BINS")) {
		if _, err := exec.LookPath(path); err != nil {
			tb.Fatalf("STORE_BINS: %v", err)
		}
		all = append(all, path)
	}
	if len(all) == 0 {
		NotRun(tb, "the shared store on a real server: run `make valkey`, or set VALKEY_BIN")
	}
	return all
}

// Before7 skips the test if the first of [Binaries] is a Redis before 7.0, which lacks the named
// feature.
func Before7(tb testing.TB, lacks string) {
	tb.Helper()
	binary := Binaries(tb)[0]
	out, err := exec.CommandContext(tb.Context(), binary, "--version").Output() //nolint:gosec // a server that the developer chose
	if err != nil {
		tb.Fatalf("%s --version: %v", binary, err)
	}
	if strings.Contains(string(out), "server v=6.") {
		NotRun(tb, tb.Name()+": "+lacks)
	}
}

// NotRun skips the test. make test-more reports that at its end.
func NotRun(tb testing.TB, why string) {
	tb.Helper()
	if path := os.Getenv("SLUICE_NOT_RUN"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600) //nolint:gosec // make names it
		if err != nil {
			tb.Fatal(err)
		}
		_, err = fmt.Fprintln(f, why)
		if err := errors.Join(err, f.Close()); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Skip(why)
}

// A Server is a server that runs until the test ends.
type Server struct {
	// Addr is its address on 127.0.0.1.
	Addr string
	// Dir is its directory.
	Dir string

	tb     testing.TB
	binary string
	args   []string
	conf   string // configuration file of a Sentinel
	cmd    *exec.Cmd
}

// Start starts the first of [Binaries] with additional arguments, such as "--maxmemory", "1mb".
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return StartBinary(tb, Binaries(tb)[0], args...)
}

// StartBinary is Start for one of [Binaries].
func StartBinary(tb testing.TB, binary string, args ...string) *Server {
	tb.Helper()
	s := newServer(tb, binary, args)
	s.Run()
	return s
}

// newServer returns a server that is not started yet.
func newServer(tb testing.TB, binary string, args []string) *Server {
	tb.Helper()
	s := &Server{Addr: FreeAddress(tb), Dir: tb.TempDir(), tb: tb, binary: binary, args: args}
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			tb.Logf("the server's log:\n%s", log)
		}
	})
	return s
}

// Servers of a process use consecutive ports, from a number that depends on the process.
const firstPort, ports, toBus = 10_000, 10_000, 10_000

var port atomic.Uint32

// FreeAddress returns an address on 127.0.0.1 whose port is free, as is the port of the cluster bus,
// 10,000 above. Both are below the ephemeral ports. Until the test ends, a socket on the UDP port of
// the same number reserves the address among test processes, because the TCP port is free until the
// server runs, and during restarts.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	for range ports {
		n := firstPort + (os.Getpid()*101+int(port.Add(1)))%ports
		address := func(n int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n)) }
		reserved, err := net.ListenPacket("udp", address(n)) //nolint:noctx // returns immediately
		if err != nil {
			continue
		}
		if isFree(address(n)) && isFree(address(n+toBus)) {
			tb.Cleanup(func() { _ = reserved.Close() })
			return address(n)
		}
		_ = reserved.Close()
	}
	tb.Fatalf("no port from %d to %d is free", firstPort, firstPort+ports-1)
	return ""
}

// isFree reports whether no listener uses a TCP address.
func isFree(address string) bool {
	l, err := net.Listen("tcp", address) //nolint:noctx // returns immediately
	return err == nil && l.Close() == nil
}

// Run starts the server without data, if it is not running, and waits until it replies.
func (s *Server) Run() {
	s.tb.Helper()
	if s.cmd != nil {
		return
	}
	args := append([]string{
		"--port", s.Port(), "--bind", "127.0.0.1", "--dir", s.Dir, "--save", "", "--appendonly", "no",
		"--logfile", filepath.Join(s.Dir, "log"), "--repl-diskless-sync-delay", "0",
	}, s.args...)
	if s.conf != "" {
		args = []string{s.conf, "--sentinel"}
	}
	s.cmd = exec.Command(s.binary, args...) //nolint:gosec,noctx // a server that the developer chose; Kill ends it
	s.cmd.SysProcAttr = deathSignal()
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("start %s: %v", s.binary, err)
	}
	Eventually(s.tb, s.binary+" answers", func() bool {
		_, err := s.Command("PING")
		return err == nil || strings.HasPrefix(err.Error(), "NOAUTH")
	})
}

// Port returns the port of the address.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// CPU returns the server's CPU time, on Linux, in steps of 10 ms.
func (s *Server) CPU() time.Duration {
	s.tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		s.tb.Skip("reads CPU times of Linux")
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * (time.Second / 100)
}

// Kill kills the server. Run starts it again.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Stop stops the process until Continue: it neither answers nor closes connections.
func (s *Server) Stop() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue resumes a stopped server.
func (s *Server) Continue() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// Command sends one command on a new connection and returns the answer, with the elements of an
// array as lines. The server's errors are returned as errors.
func (s *Server) Command(args ...string) (string, error) {
	conn, err := net.Dial("tcp", s.Addr) //nolint:noctx // if the server hangs, so does the test, until go test ends it
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the reply has been read
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		return "", err
	}
	return answer(bufio.NewReader(conn))
}

// answer reads an answer, with the elements of an array as lines.
func answer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind := line[0]
	text := strings.TrimSpace(line[1:])
	n, bad := strconv.Atoi(text)
	switch {
	case kind == '-':
		return "", errors.New(text)
	case kind == '$' && bad == nil && n >= 0:
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return string(text[:n]), err
	case kind == '*' && bad == nil:
		var all []string
		for range n {
			one, err := answer(r)
			if err != nil {
				return "", err
			}
			all = append(all, one)
		}
		return strings.Join(all, "\n"), nil
	}
	return text, nil
}

// Must is [Server.Command] for commands that must not fail.
func (s *Server) Must(args ...string) string {
	s.tb.Helper()
	answer, err := s.Command(args...)
	if err != nil {
		s.tb.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return answer
}
