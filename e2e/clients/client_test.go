package clients_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// client is a gRPC library with a program that makes calls over one channel. The arguments of the
// program are the server's address and, for TLS, the file of the authority. It reads steps from
// standard input, one per line:
//
//	CALLS TIMEOUT METADATA CANCEL FIRST REQUEST
//
// It makes one call with the message FIRST, unless that is "-", and concurrently CALLS calls with
// the message REQUEST. Messages are in hexadecimal, TIMEOUT is in milliseconds, METADATA is the
// size of a header in bytes. If CANCEL is 1, the program prints "begun", waits for a line, and
// cancels all calls. When the calls have ended, it prints the number of each answer, such as
// "3 OK" or "1 UNKNOWN: text", and an empty line.
type client struct {
	name string
	// folder is the program's directory in .build/clients, created by `make clients`.
	folder string
	// run returns the command and additional environment of the program; in is the path of the
	// folder.
	run func(in string) (run, env []string)
}

// clients without a folder are in every tier, and so is grpcio, in which calls of all tiers have
// found bugs.
var clients = []client{
	{name: "grpc-go", run: func(string) (run, env []string) { return []string{os.Args[0], "-calls"}, nil }},
	// gRPC's C core, used by Python, C++, Ruby and PHP. It sends two WINDOW_UPDATEs per call before
	// any answer.
	{name: "grpcio", folder: "python", run: func(in string) (run, env []string) {
		return []string{"python3", "testdata/python/calls.py"}, []string{"PYTHONPATH=" + in}
	}},
	{name: "@grpc/grpc-js", folder: "node", run: func(in string) (run, env []string) {
		return []string{"node", "testdata/node/calls.js"}, []string{"NODE_PATH=" + filepath.Join(in, "node_modules")}
	}},
	{name: "grpc-java", folder: "java", run: func(in string) (run, env []string) {
		return []string{"java", "-cp", in + string(os.PathListSeparator) + filepath.Join(in, "*"), "Calls"}, nil
	}},
	{name: "tonic", folder: "tonic", run: func(in string) (run, env []string) {
		return []string{filepath.Join(in, "calls")}, nil
	}},
}

// command returns a function that starts the client with the given arguments. It skips the test,
// with a note, if the client is not installed.
func (c *client) command(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	if c.folder != "" && c.folder != "python" {
		effort.Require(t, effort.All)
	}
	in, err := filepath.Abs(filepath.Join(root, ".build", "clients", c.folder))
	must.OK(t, err)
	if _, err := os.Stat(in); c.folder != "" && errors.Is(err, os.ErrNotExist) {
		suite.Skip(t, "no client for "+c.name+"; `make clients` prints the reason")
	}
	run, env := c.run(in)
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(run[0], append(run[1:len(run):len(run)], args...)...)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	}
}

// maxDuration is the default timeout of calls. On a busy machine, 10,000 calls took a JVM a minute.
const maxDuration = 5 * time.Minute

// step is a set of concurrent calls.
type step struct {
	name        string
	first, each *rls.RateLimitRequest // optional first
	calls       int
	timeout     time.Duration // mostTime, if it is not given
	metadata    int
	want        map[string]int // number of each answer
}

func (s *step) line(t *testing.T, cancel int) string {
	t.Helper()
	first := "-"
	if s.first != nil {
		first = message(t, s.first)
	}
	timeout := s.timeout
	if timeout == 0 {
		timeout = maxDuration
	}
	return fmt.Sprintln(s.calls, timeout.Milliseconds(), s.metadata, cancel, first, message(t, s.each))
}

func message(t *testing.T, m *rls.RateLimitRequest) string {
	t.Helper()
	b, err := proto.Marshal(m)
	must.OK(t, err)
	return hex.EncodeToString(b)
}

// conn is the running program of a client.
type conn struct {
	in   io.Writer
	out  *bufio.Scanner
	err  *strings.Builder
	kill func() error
}

// dial starts the program of a client, and ends it when the test ends.
func dial(t *testing.T, command func(args ...string) *exec.Cmd, addr, authority string) *conn {
	t.Helper()
	args := []string{addr}
	if authority != "" {
		args = append(args, authority)
	}
	cmd, c := command(args...), &conn{err: new(strings.Builder)}
	in, err := cmd.StdinPipe()
	must.OK(t, err)
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	cmd.Stderr = c.err
	c.in, c.out = in, bufio.NewScanner(out)
	must.OK(t, cmd.Start())
	c.kill = cmd.Process.Kill
	t.Cleanup(func() {
		late := time.AfterFunc(suite.Patience, func() { _ = c.kill() })
		defer late.Stop()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v: %s", err, c.err)
		}
	})
	return c
}

// do has the client make calls and waits for them.
func (c *conn) do(t *testing.T, s step) {
	t.Helper()
	c.write(t, s.line(t, 0))
	c.expect(t, &s)
}

// start has the client start calls. finish cancels them.
func (c *conn) start(t *testing.T, s step) (finish func()) {
	t.Helper()
	c.write(t, s.line(t, 1))
	if line := c.line(t); line != "begun" {
		t.Fatalf("%s: the client printed %q, want begun", s.name, line)
	}
	return func() {
		t.Helper()
		c.write(t, "\n")
		c.expect(t, &s)
	}
}

func (c *conn) write(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line); err != nil {
		t.Fatalf("%v: %s", err, c.err)
	}
}

func (c *conn) line(t *testing.T) string {
	t.Helper()
	late := time.AfterFunc(2*maxDuration, func() { _ = c.kill() })
	defer late.Stop()
	if !c.out.Scan() {
		t.Fatalf("the client has ended, or printed nothing for %v (%v)", 2*maxDuration, c.out.Err())
	}
	return c.out.Text()
}

// expect compares the answers with s.want. The texts of errors are compared, except those that the
// client created.
func (c *conn) expect(t *testing.T, s *step) {
	t.Helper()
	got := map[string]int{}
	for line := c.line(t); line != ""; line = c.line(t) {
		number, answer, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%s: the client printed %q", s.name, line)
		}
		code, _, _ := strings.Cut(answer, ":")
		if code == "CANCELLED" || code == "DEADLINE_EXCEEDED" {
			answer = code
		}
		got[answer] += n
	}
	if !maps.Equal(got, s.want) {
		t.Errorf("%s: the answers are %v, want %v", s.name, got, s.want)
	}
}
