package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestTranscripts runs the examples' READMEs: the programs in their sh blocks, then the commands in
// their console blocks. The output must match the README.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("READMEs are %q, %v", paths, err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		if needCluster[name] {
			continue // has a separate test
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := readReadme(path)
			must.OK(t, err)
			before := filesOf(t, filepath.Dir(path))
			t.Cleanup(func() {
				if after := filesOf(t, filepath.Dir(path)); after != before {
					t.Errorf("the example has left files in the clone: %s, before %s", after, before)
				}
			})
			if len(r.starts) < 2 || len(r.steps) == 0 {
				t.Fatalf("the README starts %d programs and shows %d commands, want at least two programs and one command", len(r.starts), len(r.steps))
			}
			runScenario(t, time.Minute, r.scenario(t))
		})
	}
}

// filesOf returns the names of the files in the root of the clone and in a directory of it.
func filesOf(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	for _, pattern := range []string{filepath.Join(root, "*"), filepath.Join(dir, "*")} {
		found, err := filepath.Glob(pattern)
		must.OK(t, err)
		names = append(names, slices.DeleteFunc(found, func(name string) bool { return slices.Contains([]string{"bin", "dist"}, filepath.Base(name)) })...)
	}
	return strings.Join(names, " ")
}

// TestQuickStart runs the README of the repository.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	r, err := readReadme(filepath.Join(root, "README.md"))
	must.OK(t, err)
	if len(r.starts) != 2 || len(r.steps) < 4 {
		t.Fatalf("the README starts %q and shows %d commands, want sluice and Envoy, and at least four commands", r.starts, len(r.steps))
	}
	runScenario(t, time.Hour, r.scenario(t))
}

// scenario returns a function that starts a README's programs and runs its commands.
func (r *readme) scenario(t *testing.T) func(context.Context, *session) []string {
	t.Helper()
	suite.Envoy(t, root) // skips the test before anything runs
	return func(ctx context.Context, s *session) []string {
		for _, line := range r.starts {
			if err := s.start(ctx, t, line); err != nil {
				return []string{fmt.Sprintf("%s\n%v", line, err)}
			}
		}
		return s.runReadme(ctx, r)
	}
}

// needCluster contains the examples whose programs are started by a cluster.
var needCluster = map[string]bool{"istio": true, "contour": true, "envoy-gateway": true, "envoy-ai-gateway": true, "compose": true}

// gatewayCase configures the README of a gateway in front of a cluster.
type gatewayCase struct {
	// name is the name of the example.
	name string
	// flags contains the flags of sluice. Default: the rules of the example.
	flags []string
	// config is the gateway's configuration. The address of its listener is $GATEWAY in commands.
	config   object
	listener string
	// address is the address of sluice in the cluster.
	address string
}

// testGateway runs the README of a gateway in front of a cluster.
func testGateway(t *testing.T, p gatewayCase) {
	t.Helper()
	r, err := readReadme(filepath.Join(root, "examples", p.name, "README.md"))
	must.OK(t, err)
	if len(r.starts) != 0 || len(r.steps) == 0 {
		t.Fatalf("the README starts %q and shows %d commands, want no program and at least one command", r.starts, len(r.steps))
	}
	if p.flags == nil {
		p.flags = []string{"-c", "examples/" + p.name + "/rules.yaml"}
	}
	runScenario(t, time.Minute, func(ctx context.Context, s *session) []string {
		if err := s.startSluice(ctx, p.flags); err != nil {
			return []string{err.Error()}
		}
		endpoints := map[string]string{p.address: s.sluices[0].Addr("grpc")}
		if err := s.runEnvoy(ctx, t, p.config, endpoints); err != nil {
			return []string{err.Error()}
		}
		s.env = append(s.env, "GATEWAY="+s.envoy.Addr(p.listener))
		return s.runReadme(ctx, r)
	})
}

// runScenario runs a scenario until it succeeds, or fails within one window of its limits, such as a
// minute. If a failed run was not within one window, it is run again.
func runScenario(t *testing.T, window time.Duration, scenario func(context.Context, *session) []string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the commands of READMEs need curl: install it")
		}
		suite.Skip(t, "the commands of READMEs: install curl")
	}
	for {
		began := time.Now().Truncate(window)
		s := &session{ports: make(map[string]string)}
		t.Cleanup(s.stop) // a step may end the test
		problems := scenario(t.Context(), s)
		s.stop()
		if len(problems) == 0 {
			return
		}
		if time.Now().Truncate(window).Equal(began) {
			t.Error(strings.Join(problems, "\n"))
			return
		}
		t.Logf("a window ended; running again after: %s", problems)
	}
}

// session contains the programs of a README, on free ports.
type session struct {
	// ports maps the ports in the README to host:port.
	ports   map[string]string
	sluices []*sluice.Sluice
	// envoy is the newest of envoys.
	envoy  *envoy.Envoy
	envoys []*envoy.Envoy
	dirs   []string
	// env contains additional variables for commands.
	env []string
	// logs maps the names of Envoy's access logs to their paths.
	logs map[string]string
}

// stop kills all programs.
func (s *session) stop() {
	for _, e := range s.envoys {
		e.Kill()
	}
	for _, p := range s.sluices {
		p.Kill()
	}
	for _, dir := range s.dirs {
		_ = os.RemoveAll(dir)
	}
}

// runReadme runs the commands and returns the differences from the README.
func (s *session) runReadme(ctx context.Context, r *readme) []string {
	for _, step := range r.steps {
		if problems := s.runStep(ctx, step); problems != nil {
			return problems
		}
	}
	return s.awaitLog(ctx, r.log)
}

// awaitLog stops Envoy, which flushes its access log, and returns the first missing line.
func (s *session) awaitLog(ctx context.Context, want []string) []string {
	if len(want) == 0 {
		return nil
	}
	if _, err := s.envoy.Stop(ctx); err != nil {
		return []string{err.Error()}
	}
	var access strings.Builder
	for line := range strings.Lines(s.envoy.Log()) {
		if strings.HasPrefix(line, "[") {
			continue // Envoy's own messages
		}
		access.WriteString(line)
		if len(want) > 0 && matches(want[0], strings.TrimRight(line, "\n")) {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		return []string{fmt.Sprintf("Envoy's access log lacks %q:\n%s", want[0], access.String())}
	}
	return nil
}

// start runs a line of a sh block.
func (s *session) start(ctx context.Context, t *testing.T, line string) error {
	t.Helper()
	words := strings.Fields(line)
	if len(words) == 5 && words[3] == "--base-id" { // for several Envoys on a machine; tests do not need it
		words = words[:3]
	}
	switch {
	case strings.HasPrefix(line, "sluice serve "), strings.HasPrefix(line, "bin/sluice serve "):
		return s.startSluice(ctx, words[2:])
	case len(words) == 3 && (words[0] == "envoy" || words[0] == fetchedEnvoy(t)) && words[1] == "-c":
		return s.startEnvoy(ctx, t, filepath.Join(root, words[2]))
	}
	return errors.New("unknown program; a README may start `sluice serve` and `envoy -c FILE`")
}

// fetchedEnvoy returns the path, relative to the root, where make installs Envoy.
func fetchedEnvoy(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must.OK(t, err)
	version := regexp.MustCompile(`(?m)^ENVOY_VERSION := (\S+)$`).FindSubmatch(text)
	if version == nil {
		t.Fatal("the Makefile has no ENVOY_VERSION")
	}
	return ".build/envoy-" + string(version[1])
}

// defaultAddrs are sluice's default addresses.
var defaultAddrs = map[string]string{"grpc": ":8081", "http": ":8080", "debug": "127.0.0.1:6070", "metrics": ":9090"}

// startSluice starts sluice, with free ports instead of the addresses in its flags.
func (s *session) startSluice(ctx context.Context, words []string) error {
	addrs := maps.Clone(defaultAddrs)
	o := sluice.Options{Binary: sluiceBinary, Dir: root, Addrs: make(map[string]string)}
	for i := 0; i < len(words); i++ {
		flag, value, joined := strings.Cut(words[i], "=")
		name, isAddr := strings.CutSuffix(strings.TrimPrefix(flag, "--"), "-addr")
		if _, known := addrs[name]; !isAddr || !known {
			if o.Args = append(o.Args, words[i]); flag == "--tables-dir" && !joined && i+1 < len(words) {
				dir, err := os.MkdirTemp("", "tables-")
				if err != nil {
					return err
				}
				s.dirs = append(s.dirs, dir)
				if !outsideClone(words[i+1]) {
					return fmt.Errorf("--tables-dir %s is in the clone", words[i+1])
				}
				words[i+1] = dir // a new directory for each attempt
			}
			continue
		}
		if !joined {
			if i++; i == len(words) {
				return fmt.Errorf("%s has no value", flag)
			}
			value = words[i]
		}
		addrs[name] = value
	}
	for name, addr := range addrs {
		if addr == "" {
			o.Addrs[name] = ""
		}
	}
	p, err := sluice.Start(ctx, o)
	if err != nil {
		return err
	}
	s.sluices = append(s.sluices, p)
	for name, addr := range addrs {
		if _, port, err := net.SplitHostPort(addr); err == nil {
			s.ports[port] = p.Addr(name)
		}
	}
	return nil
}

// startEnvoy starts Envoy with a configuration file whose endpoints are replaced by those of the
// running sluices.
func (s *session) startEnvoy(ctx context.Context, t *testing.T, path string) error {
	t.Helper()
	config := document(t, path)
	if err := s.redirectLogs(config); err != nil {
		return err
	}
	listeners := make(map[string]string) // addresses by port
	endpoints := make(map[string]string)
	eachObject(config, func(o object) {
		address, _ := o["address"].(object)
		socket, ok := address["socket_address"].(object)
		if !ok {
			return
		}
		port := fmt.Sprint(socket["port_value"])
		name, _ := o["name"].(string)
		if _, isListener := o["filter_chains"]; isListener {
			listeners[port] = name
		} else if at, runs := s.ports[port]; runs {
			endpoints[net.JoinHostPort(fmt.Sprint(socket["address"]), port)] = at
		}
	})
	if err := s.runEnvoy(ctx, t, config, endpoints); err != nil {
		return err
	}
	for port, name := range listeners {
		s.ports[port] = s.envoy.Addr(name)
	}
	if len(s.envoys) == 1 {
		s.ports["9901"] = s.envoy.Admin
	}
	return nil
}

// redirectLogs moves the access logs of a configuration to a directory of the session.
func (s *session) redirectLogs(config object) error {
	dir, err := os.MkdirTemp("", "logs-")
	if err != nil {
		return err
	}
	s.dirs = append(s.dirs, dir)
	s.logs = map[string]string{}
	var inClone []string
	eachObject(config, func(o object) {
		if kind, _ := o["@type"].(string); strings.HasSuffix(kind, ".FileAccessLog") {
			name := field[string](o, "path")
			if !outsideClone(name) {
				inClone = append(inClone, name)
			}
			s.logs[name] = filepath.Join(dir, filepath.Base(name))
			o["path"] = s.logs[name]
		}
	})
	if len(inClone) > 0 {
		return fmt.Errorf("access logs %q are in the clone", inClone)
	}
	return nil
}

// outsideClone reports whether a file that an example writes is outside of the clone, in which the
// example runs.
func outsideClone(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/dev/")
}

func (s *session) runEnvoy(ctx context.Context, t *testing.T, config object, endpoints map[string]string) error {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envoy-")
	if err != nil {
		return err
	}
	s.dirs = append(s.dirs, dir)
	started, err := envoy.Start(ctx, envoy.Options{
		Binary: suite.Envoy(t, root), Bootstrap: text, Endpoints: endpoints, Dir: dir, Patient: true,
	})
	if err != nil {
		return err
	}
	s.envoy, s.envoys = started, append(s.envoys, started)
	return nil
}

var (
	localAddr = regexp.MustCompile(`\b(?:localhost|127\.0\.0\.1):(\d+)\b`)
	// readOnly matches commands that change nothing.
	readOnly = regexp.MustCompile(`sluice explain|sluice simulate|grep|/metrics|/stats`)
	// called matches a command with a deadline, which a busy machine may exceed.
	called = regexp.MustCompile(`(sluice call) `)
	// built matches the path that `make build` writes to; tests have the program elsewhere.
	built = regexp.MustCompile(`(^|[|;&] *)bin/sluice `)
)

// runStep runs one command. A command that changes nothing is repeated until its output matches,
// because it may precede charges at the end of a stream, whose replies are not awaited.
func (s *session) runStep(ctx context.Context, step step) []string {
	unknown := ""
	command := localAddr.ReplaceAllStringFunc(built.ReplaceAllString(step.command, "${1}sluice "), func(addr string) string {
		at, known := s.ports[addr[strings.LastIndexByte(addr, ':')+1:]]
		if !known {
			unknown = addr
		}
		return at
	})
	if unknown != "" {
		return []string{fmt.Sprintf("$ %s\nno program of the README listens at %s", step.command, unknown)}
	}
	command = called.ReplaceAllString(command, "$1 --timeout 1h ")
	for name, path := range s.logs {
		command = strings.ReplaceAll(command, " "+name, " "+path)
	}
	for {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir = root
		cmd.Env = append(append(os.Environ(), s.env...), "PATH="+sluiceDir+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		problems := step.differences(string(out))
		if problems == nil {
			return nil
		}
		if !readOnly.MatchString(command) {
			return append([]string{"$ " + step.command}, append(problems, fmt.Sprintf("it printed (%v):\n%s", err, out))...)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
