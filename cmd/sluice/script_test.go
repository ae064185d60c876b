package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
)

var update = flag.Bool("update", false, "rewrite the files that scripts compare with")

func TestMain(m *testing.M) {
	// The same program under both names that it knows itself by.
	testscript.Main(leakless{m}, map[string]func(){"sluice": bounded, "ratelimit": bounded})
}

// mustEndVariable tells a program for how long it may run; see [exits].
const mustEndVariable = "SCRIPT_MUST_END"

// patienceVariable tells a program how long it waits for a store at the start.
const patienceVariable = "SCRIPT_STORE_PATIENCE"

// bounded is main for as long as the script that runs it allows.
func bounded() {
	if most, err := time.ParseDuration(os.Getenv(mustEndVariable)); err == nil {
		time.AfterFunc(most, func() { os.Exit(-1) })
	}
	os.Args = withTimeout(os.Args)
	if wait, err := time.ParseDuration(os.Getenv(patienceVariable)); err == nil {
		storeStartTimeout = wait
	}
	main()
}

// withTimeout adds a deadline to the arguments of `sluice call` that have none. Its default, a second, is
// short for a busy machine.
func withTimeout(args []string) []string {
	isCall := len(args) > 1 && args[1] == "call"
	if !isCall || slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--timeout") }) {
		return args
	}
	return append(args, "--timeout=30s")
}

// leakless are tests that fail if they leave goroutines behind.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	if signal.Ignored(os.Interrupt) {
		// As where a shell runs the tests in the background: the commands of scripts would ignore it, too.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := l.m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "tests passed, but left goroutines behind:", err)
		return 1
	}
	return code
}

// TestScripts runs testdata/*.txt. Beside testscript's own commands they have:
//
//	exits CODE COMMAND...    run a command, which must soon exit with CODE
//	start COMMAND...         start a server on free ports; $grpc, $http, $debug
//	                         and $metrics become the addresses of its listeners,
//	                         $json too if it has one
//	variables NAME=VALUE...  set the environment of the servers that follow, for
//	                         variables whose effect the script then sees
//	run LISTENER,... COMMAND start a server that has these listeners, where its
//	                         environment says
//	launch COMMAND...        start a command; no listener is waited for
//	logged REGEXP            wait until the server logs a line that matches
//	                         after those that were waited for before
//	says REGEXP              wait until the server logs a line that matches, if it has
//	                         not, such as while it started to listen
//	signal TERM|INT|HUP|KILL send the server a signal
//	unread                   stop reading the server's log, as a reader that goes away
//	delete URL               like get, with the method DELETE
//	ended CODE               wait until the server exits with CODE, or is ended by a
//	                         signal, such as "signal: terminated"; its log is in
//	                         the file log
//	get URL                  print the status and the body of an answer
//	post URL BODY            the same, with a body to send
//	taken ADDR               listen on an address, if no other process does, until the script
//	                         ends; no two scripts name the same one
//	certificates             make the folders server (for sluice.test), client (for
//	                         envoy.test) and stranger (for envoy.test, by another
//	                         authority), each with tls.crt, tls.key and ca.crt
//	ads NODE [DIR]           start a management server, with TLS if there is a
//	                         directory of certificates; $ads becomes the address
//	asked REGEXP             wait until it gets a request whose node, metadata and
//	                         headers match
//	statsd [HOST]            listen for StatsD packets; $statsd becomes the address,
//	                         $statsd_port its port
//	received REGEXP          wait until a StatsD line comes that matches
//	collector                listen for OTLP over HTTP; $collector becomes the URL
//	traced REGEXP            wait until spans come that match, as bytes
func TestScripts(t *testing.T) { testscript.Run(t, scripts("")) }

// scripts are those of testdata, run without one variable if it is not "".
func scripts(without string) testscript.Params {
	return testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Deadline:            time.Now().Add(10 * patience),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":        exits,
			"start":        start,
			"run":          runAsSet,
			"launch":       func(ts *testscript.TestScript, _ bool, args []string) { launch(ts, args, 0) },
			"ads":          startADS,
			"asked":        asked,
			"variables":    setVariables,
			"logged":       func(ts *testscript.TestScript, _ bool, args []string) { running(ts).logged(ts, args[0]) },
			"says":         func(ts *testscript.TestScript, _ bool, args []string) { running(ts).says(ts, args[0]) },
			"signal":       func(ts *testscript.TestScript, _ bool, args []string) { running(ts).signal(ts, args[0]) },
			"unread":       func(ts *testscript.TestScript, _ bool, _ []string) { running(ts).unread(ts) },
			"delete":       func(ts *testscript.TestScript, _ bool, args []string) { ask(ts, http.MethodDelete, args[0], "") },
			"ended":        func(ts *testscript.TestScript, _ bool, args []string) { running(ts).ended(ts, args[0]) },
			"shows":        shows,
			"get":          func(ts *testscript.TestScript, _ bool, args []string) { ask(ts, http.MethodGet, args[0], "") },
			"post":         func(ts *testscript.TestScript, _ bool, args []string) { ask(ts, http.MethodPost, args[0], args[1]) },
			"statsd":       listenStatsd,
			"certificates": certificates,
			"taken":        take,
			"collector":    listenOTLP,
			"traced":       traced,
			"received": func(ts *testscript.TestScript, _ bool, args []string) {
				receiveStatsd(ts, regexp.MustCompile(args[0]))
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Values[servers{}] = &servers{without: without}
			// The race detector lets a program sleep for a second when it ends, and
			// the scripts start hundreds.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			env.Setenv(patienceVariable, "1ms") // many name a store that is not there
			return nil
		},
	}
}

// exits does not wait for the end of the script where the command serves instead of
// ending, as commands do that lack the variable that should have stopped them.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(mustEndVariable, patience.String())
	err := ts.Exec(args[1], args[2:]...)
	ts.Setenv(mustEndVariable, "")
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exits with %d, want %s", args[1], code, args[0])
	}
}

func certificates(ts *testscript.TestScript, _ bool, _ []string) {
	ours, err := testcert.New("ours")
	ts.Check(err)
	others, err := testcert.New("others")
	ts.Check(err)
	for _, f := range []struct {
		dir, name string
		authority *testcert.Authority
	}{{"server", "sluice.test", ours}, {"client", "envoy.test", ours}, {"stranger", "envoy.test", others}} {
		pair, err := f.authority.Issue(testcert.Leaf{Names: []string{f.name}})
		ts.Check(err)
		ts.Check(os.MkdirAll(ts.MkAbs(f.dir), 0o750))
		_, err = testcert.Mount(ts.MkAbs(f.dir), pair, f.authority.PEM)
		ts.Check(err)
	}
}

// take listens on an address until the script ends. If another process has the address, such as another
// run of the script, take returns at once and listens as soon as that process leaves it.
func take(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", args[0])
	if errors.Is(err, syscall.EADDRINUSE) {
		ts.Defer(takeWhenFree(args[0]))
		return
	}
	ts.Check(err)
	ts.Defer(func() { l.Close() })
}

// takeWhenFree returns a function that ends it.
func takeWhenFree(addr string) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if l, err := net.Listen("tcp", addr); err == nil {
				<-stop
				_ = l.Close()
				return
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

func ask(ts *testscript.TestScript, method, url, body string) {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	ts.Check(err)
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	_, err = io.WriteString(ts.Stdout(), response.Status+"\n")
	ts.Check(err)
	_, err = io.Copy(ts.Stdout(), response.Body)
	ts.Check(err)
}

// shows waits until a page matches. A server may count what a client caused after the client has seen it.
func shows(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[1])
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		response, err := http.Get(args[0])
		ts.Check(err)
		page, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		ts.Check(err)
		if want.Match(page) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not show %s:\n%s", args[0], args[1], page)
		}
	}
}

func listenStatsd(ts *testscript.TestScript, _ bool, args []string) {
	host := strings.Join(append(args, "127.0.0.1")[:1], "")
	conn, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	ts.Check(err)
	_, port, err := net.SplitHostPort(conn.LocalAddr().String())
	ts.Check(err)
	ts.Setenv("statsd_port", port)
	ts.Defer(func() { conn.Close() })
	ts.Setenv("statsd", conn.LocalAddr().String())
	s, _ := ts.Value(servers{}).(*servers)
	s.statsd = conn
}

func receiveStatsd(ts *testscript.TestScript, want *regexp.Regexp) {
	s, _ := ts.Value(servers{}).(*servers)
	ts.Check(s.statsd.SetReadDeadline(time.Now().Add(patience)))
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := s.statsd.ReadFrom(buffer)
		ts.Check(err)
		if slices.ContainsFunc(strings.Split(string(buffer[:n]), "\n"), want.MatchString) {
			return
		}
	}
}

// patience bounds every wait. It ends a script that hangs, and decides nothing else.
var patience = 3 * time.Minute

// pollInterval is how often a command asks again.
const pollInterval = 30 * time.Millisecond

// servers holds the server that a script runs, and what it
// sends StatsD and spans to.
type servers struct {
	now    *serveProcess
	statsd net.PacketConn
	ads    *adstest.Server
	spans  chan string
	// without is a variable that the script is run without.
	without string
}

// serveProcess is a running server and what it has logged so far.
type serveProcess struct {
	cmd    *exec.Cmd
	stderr *os.File
	lines  *bufio.Reader
	log    strings.Builder
}

func running(ts *testscript.TestScript) *serveProcess {
	s, _ := ts.Value(servers{}).(*servers)
	if s.now == nil {
		ts.Fatalf("no server runs")
	}
	return s.now
}

var listening = regexp.MustCompile(`"listener": ?"(\w+)", ?"addr": ?"([^"]+)"`)

// setVariables sets variables for the servers that follow, and unsets those of the
// line before. Each must change something that the script then sees.
func setVariables(ts *testscript.TestScript, _ bool, args []string) {
	for name := range strings.FieldsSeq(ts.Getenv("EXPORT")) {
		ts.Setenv(name, "")
	}
	var names []string
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if s, _ := ts.Value(servers{}).(*servers); name == s.without {
			continue
		}
		ts.Setenv(name, value)
		names = append(names, name)
	}
	ts.Setenv("EXPORT", strings.Join(names, " "))
}

// runAsSet starts a server with the listeners that args[0] names, where its
// environment says.
func runAsSet(ts *testscript.TestScript, _ bool, args []string) {
	launch(ts, args[1:], strings.Count(args[0], ",")+1)
}

// start gives the listeners that args do not name a free port, and waits until
// all that are on listen.
func start(ts *testscript.TestScript, _ bool, args []string) {
	given := strings.Join(args, " ")
	wait := 0
	for _, name := range []string{"grpc", "http", "debug", "metrics"} {
		if !strings.Contains(given, "--"+name+"-addr") {
			args = append(args, "--"+name+"-addr=127.0.0.1:0")
		}
		if !strings.Contains(given+" ", "--"+name+"-addr= ") {
			wait++
		}
	}
	if strings.Contains(given, "--json-addr") {
		wait++
	}
	launch(ts, args, wait)
}

// launch starts a server and waits until so many of its listeners listen.
func launch(ts *testscript.TestScript, args []string, wait int) {
	r, w, err := os.Pipe()
	ts.Check(err)
	ts.Check(r.SetReadDeadline(time.Now().Add(patience)))
	path, err := lookPath(ts, args[0])
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for name := range strings.FieldsSeq(ts.Getenv("EXPORT") + " PATH HOME TMPDIR GORACE " + patienceVariable) {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stderr = w
	stdin, stays, err := os.Pipe() // a command that reads it waits
	ts.Check(err)
	ts.Defer(func() { stays.Close() })
	cmd.Stdin = stdin
	ts.Check(cmd.Start())
	ts.Check(stdin.Close())
	ts.Check(w.Close())
	p := &serveProcess{cmd: cmd, stderr: r, lines: bufio.NewReader(r)}
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = r.Close()
	})
	all, _ := ts.Value(servers{}).(*servers)
	all.now = p
	for range wait {
		m := listening.FindStringSubmatch(p.next(ts, listening))
		ts.Setenv(m[1], m[2])
	}
}

func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, name); isFile(path) {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (p *serveProcess) logged(ts *testscript.TestScript, pattern string) {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	p.next(ts, re)
}

func (p *serveProcess) says(ts *testscript.TestScript, pattern string) {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	if !re.MatchString(p.log.String()) {
		p.next(ts, re)
	}
}

// next returns the next line that matches.
func (p *serveProcess) next(ts *testscript.TestScript, re *regexp.Regexp) string {
	for {
		line, err := p.lines.ReadString('\n')
		p.log.WriteString(line)
		if re.MatchString(line) {
			return line
		}
		if err != nil {
			ts.Fatalf("no line of the log matches %v: %v; so far:\n%s", re, err, p.log.String())
		}
	}
}

// unread ends the reading of the log.
func (p *serveProcess) unread(ts *testscript.TestScript) {
	ts.Check(p.stderr.Close())
	p.lines = bufio.NewReader(strings.NewReader(""))
}

func (p *serveProcess) signal(ts *testscript.TestScript, name string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	ts.Check(p.cmd.Process.Signal(signals[name]))
}

func (p *serveProcess) ended(ts *testscript.TestScript, want string) {
	rest, err := io.ReadAll(p.lines)
	p.log.Write(rest)
	if err != nil {
		ts.Fatalf("the server does not end: %v; its log:\n%s", err, p.log.String())
	}
	_ = p.cmd.Wait() // the exit code says more
	ts.Check(os.WriteFile(ts.MkAbs("log"), []byte(p.log.String()), 0o600))
	if got := p.cmd.ProcessState.String(); got != want && got != "exit status "+want {
		ts.Fatalf("the server ended with %s, want %s; its log:\n%s", got, want, p.log.String())
	}
}
