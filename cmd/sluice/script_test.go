package main

import (
	"bufio"
	"cmp"
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

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
)

var update = flag.Bool("update", false, "rewrite the files that scripts compare with")

func TestMain(m *testing.M) {
	// The program behaves differently under each of its names.
	testscript.Main(leakChecker{m}, map[string]func(){"sluice": mainWithTimeouts, "ratelimit": mainWithTimeouts})
}

// storeStartTimeoutVariable is the environment variable that sets storeStartTimeout.
const storeStartTimeoutVariable = "SCRIPT_STORE_START_TIMEOUT"

// debugAddrVariable is the environment variable that sets defaultDebugAddr.
const debugAddrVariable = "SCRIPT_DEBUG_ADDR"

// mainWithTimeouts is main with the timeouts of scripts.
func mainWithTimeouts() {
	os.Args = withTimeout(os.Args)
	removeTimeouts()
	hiddenFlags = "tests"
	defaultDebugAddr = cmp.Or(os.Getenv(debugAddrVariable), "127.0.0.1:1")
	if timeout, err := time.ParseDuration(os.Getenv(storeStartTimeoutVariable)); err == nil {
		storeStartTimeout = timeout
	}
	main()
}

// removeTimeouts makes the timeouts of commands longer than any test.
func removeTimeouts() { debugTimeout, logFlushTimeout = 24*time.Hour, 24*time.Hour }

// withTimeout adds a timeout to the arguments of sluice call, unless they have one. The default of
// one second is too short on a busy machine.
func withTimeout(args []string) []string {
	isCall := len(args) > 1 && args[1] == "call"
	if !isCall || slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--timeout") }) {
		return args
	}
	return append(args, "--timeout=24h")
}

// leakChecker runs the tests, and fails if goroutines are left.
type leakChecker struct{ m *testing.M }

func (l leakChecker) Run() int {
	removeTimeouts()
	hiddenFlags = "tests"
	time.Local = time.UTC // as in the output that pages show
	if signal.Ignored(os.Interrupt) {
		// A shell that runs the tests in the background ignores SIGINT, and the commands of scripts
		// would inherit that.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := l.m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "tests passed, but goroutines are left:", err)
		return 1
	}
	return code
}

// TestScripts runs testdata/*.txt. In addition to the commands of testscript they have:
//
//	exits CODE COMMAND...     run a command, which must exit with CODE
//	start COMMAND...          start a server on free ports; sets $grpc, $http, $debug and $metrics
//	                          to the addresses of its listeners, and $json if it has one
//	variables NAME=VALUE...   set variables of servers that are started later, and unset the
//	                          variables of the previous such line
//	startenv LISTENER,... COMMAND
//	                          start a server with these listeners, without flags for addresses
//	launch COMMAND...         start a command without waiting for a listener
//	logged REGEXP             wait until the server logs a line that matches, after the lines
//	                          that earlier commands have read
//	haslogged REGEXP          wait until the log has a line that matches, which an earlier
//	                          command may have read
//	signal TERM|INT|HUP|KILL  send a signal to the server
//	closelog                  close the reading end of the server's log
//	exited CODE               wait until the server exits with CODE or by a signal, such as
//	                          "signal: terminated"; writes its log to the file log
//	get URL                   print the status and the body of the response
//	post URL BODY             the same with POST and a body
//	page URL REGEXP           get a URL until the body matches
//	occupy ADDR               listen on an address until the script ends; only one script may
//	                          name it
//	certificates              create the directories server (for sluice.test), client (for
//	                          envoy.test) and stranger (for envoy.test, by another authority),
//	                          each with tls.crt, tls.key and ca.crt
//	ads NODE [DIR]            start a management server, with TLS if DIR has its certificates;
//	                          sets $ads to its address
//	adsrequest REGEXP         wait until it gets a request whose node, metadata and headers match
//	statsd [HOST]             listen for StatsD packets; sets $statsd to the address and
//	                          $statsd_port to its port
//	statsdline REGEXP         wait for a StatsD line that matches
//	collector                 listen for OTLP over HTTP; sets $collector to the URL
//	spans REGEXP              wait for a message of spans whose bytes match
func TestScripts(t *testing.T) { testscript.Run(t, scripts(t)) }

// scripts returns the parameters of the scripts. The condition [more] is true with SLUICE_EFFORT=10 or more.
func scripts(tb testing.TB) testscript.Params {
	tb.Helper()
	level := effort.Level(tb)
	return testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Condition: func(condition string) (bool, error) {
			if condition != "more" {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			return level >= effort.More, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      expectExit,
			"start":      start,
			"startenv":   startFromEnvironment,
			"launch":     func(ts *testscript.TestScript, _ bool, args []string) { launch(ts, args, 0) },
			"ads":        startADS,
			"adsrequest": waitForADSRequest,
			"variables":  setVariables,
			"logged": func(ts *testscript.TestScript, _ bool, args []string) {
				runningServer(ts).waitForNextLogLine(ts, args[0])
			},
			"haslogged": func(ts *testscript.TestScript, _ bool, args []string) { runningServer(ts).waitForLogLine(ts, args[0]) },
			"signal":    func(ts *testscript.TestScript, _ bool, args []string) { runningServer(ts).signal(ts, args[0]) },
			"closelog":  func(ts *testscript.TestScript, _ bool, _ []string) { runningServer(ts).closeLog(ts) },
			"exited":    func(ts *testscript.TestScript, _ bool, args []string) { runningServer(ts).waitForExit(ts, args[0]) },
			"page":      waitForPage,
			"get": func(ts *testscript.TestScript, _ bool, args []string) {
				sendRequest(ts, http.MethodGet, args[0], "", args[1:]...)
			},
			"post": func(ts *testscript.TestScript, _ bool, args []string) {
				sendRequest(ts, http.MethodPost, args[0], args[1])
			},
			"statsd":       listenStatsd,
			"certificates": certificates,
			"occupy":       occupyAddress,
			"collector":    listenOTLP,
			"spans":        waitForSpans,
			"statsdline": func(ts *testscript.TestScript, _ bool, args []string) {
				receiveStatsd(ts, regexp.MustCompile(args[0]))
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Values[servers{}] = &servers{}
			// With the race detector a program sleeps for a second before it exits, and the scripts
			// start hundreds.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			env.Setenv(storeStartTimeoutVariable, "1ms") // many scripts name an unavailable store
			return nil
		},
	}
}

// expectExit runs a command and compares its exit code.
func expectExit(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
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

// occupyAddress listens on an address until the script ends. If another process listens on it, such
// as another run of the script, it returns immediately and listens as soon as the address is free.
func occupyAddress(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", args[0])
	if errors.Is(err, syscall.EADDRINUSE) {
		ts.Defer(listenWhenFree(args[0]))
		return
	}
	ts.Check(err)
	ts.Defer(func() { l.Close() })
}

// listenWhenFree listens on addr once it is free, until stop is called.
func listenWhenFree(addr string) (stop func()) {
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if l, err := net.Listen("tcp", addr); err == nil {
				<-stopping
				_ = l.Close()
				return
			}
			select {
			case <-tick.C:
			case <-stopping:
				return
			}
		}
	}()
	return func() {
		close(stopping)
		<-done
	}
}

func sendRequest(ts *testscript.TestScript, method, url, body string, headers ...string) {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	ts.Check(err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	_, err = io.WriteString(ts.Stdout(), response.Status+"\n")
	ts.Check(err)
	_, err = io.Copy(ts.Stdout(), response.Body)
	ts.Check(err)
}

// waitForPage waits until a page matches. A server may count a request after the client has
// received the response.
func waitForPage(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[1])
	for {
		response, err := http.Get(args[0])
		ts.Check(err)
		page, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		ts.Check(err)
		if want.Match(page) {
			return
		}
		time.Sleep(pollInterval)
	}
}

func listenStatsd(ts *testscript.TestScript, _ bool, args []string) {
	host := strings.Join(append(args, "127.0.0.1")[:1], "")
	conn, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	ts.Check(err)
	_, port, err := net.SplitHostPort(conn.LocalAddr().String())
	ts.Check(err)
	ts.Setenv("statsd_port", port)
	ts.Setenv("statsd", conn.LocalAddr().String())
	if udp, ok := conn.(*net.UDPConn); ok { // more for a busy machine, if the kernel allows it
		ts.Check(udp.SetReadBuffer(4 << 20))
	}
	packets, ended := make(chan string, 1<<14), make(chan struct{})
	ts.Defer(func() {
		conn.Close()
		close(ended)
	})
	go func() { // at once, because the kernel drops packets that wait for the next command
		buffer := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			select {
			case packets <- string(buffer[:n]):
			case <-ended:
				return
			}
		}
	}()
	s, _ := ts.Value(servers{}).(*servers)
	s.statsd = packets
}

func receiveStatsd(ts *testscript.TestScript, want *regexp.Regexp) {
	s, _ := ts.Value(servers{}).(*servers)
	for packet := range s.statsd {
		if slices.ContainsFunc(strings.Split(packet, "\n"), want.MatchString) {
			return
		}
	}
}

// pollInterval is the interval at which commands poll.
const pollInterval = 30 * time.Millisecond

// servers are the servers of a script: the last started one, and those that it sends requests,
// StatsD and spans to.
type servers struct {
	current *serveProcess
	statsd  <-chan string // packets
	ads     *adstest.Server
	spans   chan string
}

// serveProcess is a running server and its log so far.
type serveProcess struct {
	cmd    *exec.Cmd
	stderr *os.File
	lines  *bufio.Reader
	log    strings.Builder
}

func runningServer(ts *testscript.TestScript) *serveProcess {
	s, _ := ts.Value(servers{}).(*servers)
	if s.current == nil {
		ts.Fatalf("no server is running")
	}
	return s.current
}

var listening = regexp.MustCompile(`"listener": ?"(\w+)", ?"addr": ?"([^"]+)"`)

// setVariables sets variables for servers that are started later, and unsets those of the previous
// call.
func setVariables(ts *testscript.TestScript, _ bool, args []string) {
	for name := range strings.FieldsSeq(ts.Getenv("EXPORT")) {
		ts.Setenv(name, "")
	}
	var names []string
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		ts.Setenv(name, value)
		names = append(names, name)
	}
	ts.Setenv("EXPORT", strings.Join(names, " "))
}

// startFromEnvironment starts a server that has the listeners in args[0], without flags for their
// addresses.
func startFromEnvironment(ts *testscript.TestScript, _ bool, args []string) {
	launch(ts, args[1:], strings.Count(args[0], ",")+1)
}

// start starts a server with a free port for each listener whose address args do not set, and waits
// until all listen.
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

// launch starts a server and waits until the given number of its listeners listen.
func launch(ts *testscript.TestScript, args []string, wait int) {
	r, w, err := os.Pipe()
	ts.Check(err)
	path, err := lookPath(ts, args[0])
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for name := range strings.FieldsSeq(ts.Getenv("EXPORT") + " PATH HOME TMPDIR GORACE " + storeStartTimeoutVariable) {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stderr = w
	stdin, unused, err := os.Pipe() // a command that reads it blocks
	ts.Check(err)
	ts.Defer(func() { unused.Close() })
	cmd.Stdin = stdin
	ts.Check(cmd.Start())
	ts.Check(stdin.Close())
	ts.Check(w.Close())
	p := &serveProcess{cmd: cmd, stderr: r, lines: bufio.NewReader(r)}
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it may have exited
		_ = cmd.Wait()
		_ = r.Close()
	})
	all, _ := ts.Value(servers{}).(*servers)
	all.current = p
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

func (p *serveProcess) waitForNextLogLine(ts *testscript.TestScript, pattern string) {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	p.next(ts, re)
}

func (p *serveProcess) waitForLogLine(ts *testscript.TestScript, pattern string) {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	if !re.MatchString(p.log.String()) {
		p.next(ts, re)
	}
}

// next returns the next line of the log that matches.
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

// closeLog closes the reading end of the log.
func (p *serveProcess) closeLog(ts *testscript.TestScript) {
	ts.Check(p.stderr.Close())
	p.lines = bufio.NewReader(strings.NewReader(""))
}

func (p *serveProcess) signal(ts *testscript.TestScript, name string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	ts.Check(p.cmd.Process.Signal(signals[name]))
}

func (p *serveProcess) waitForExit(ts *testscript.TestScript, want string) {
	rest, err := io.ReadAll(p.lines)
	p.log.Write(rest)
	if err != nil {
		ts.Fatalf("the server does not exit: %v; its log:\n%s", err, p.log.String())
	}
	_ = p.cmd.Wait() // its error repeats the exit code
	ts.Check(os.WriteFile(ts.MkAbs("log"), []byte(p.log.String()), 0o600))
	if got := p.cmd.ProcessState.String(); got != want && got != "exit status "+want {
		ts.Fatalf("the server exited with %s, want %s; its log:\n%s", got, want, p.log.String())
	}
}
