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
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestTranscripts runs what the READMEs of the examples say: the programs of their sh
// blocks, then the commands of their console blocks. Each must print what stands below
// it.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("READMEs are %q, %v", paths, err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		if needCluster[name] {
			continue // has a test of its own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := readReadme(path)
			must.OK(t, err)
			if len(r.starts) < 2 || len(r.steps) == 0 {
				t.Fatalf("the README starts %d programs and shows %d commands, want two or more and some", len(r.starts), len(r.steps))
			}
			runScenario(t, r.scenario(t))
		})
	}
}

// TestQuickStart runs what the README of the repository says.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	r, err := readReadme(filepath.Join(root, "README.md"))
	must.OK(t, err)
	if len(r.starts) != 2 || len(r.steps) < 4 {
		t.Fatalf("the README starts %q and shows %d commands, want sluice, Envoy and four or more", r.starts, len(r.steps))
	}
	runScenario(t, r.scenario(t))
}

// scenario returns a scenario that starts a README's programs and runs its commands.
func (r *readme) scenario(t *testing.T) func(context.Context, *session) []string {
	t.Helper()
	suite.Envoy(t, root) // skips where none is installed, before anything runs
	return func(ctx context.Context, s *session) []string {
		for _, line := range r.starts {
			if err := s.start(ctx, t, line); err != nil {
				return []string{fmt.Sprintf("%s\n%v", line, err)}
			}
		}
		return s.runReadme(ctx, r)
	}
}

// needCluster names the examples whose programs a cluster starts.
var needCluster = map[string]bool{"istio": true, "contour": true, "envoy-gateway": true, "envoy-ai-gateway": true, "compose": true}

// gatewayCase says how the README of a gateway in front of a cluster is played.
type gatewayCase struct {
	// name is the example's.
	name string
	// flags are sluice's. Default: the rules of the example.
	flags []string
	// config is the configuration that the gateway would have. Its listener is
	// $GATEWAY.
	config   object
	listener string
	// address is where it would find sluice in the cluster.
	address string
}

// testGateway plays the README of an example for a gateway in front of a cluster.
func testGateway(t *testing.T, p gatewayCase) {
	t.Helper()
	r, err := readReadme(filepath.Join(root, "examples", p.name, "README.md"))
	must.OK(t, err)
	if len(r.starts) != 0 || len(r.steps) == 0 {
		t.Fatalf("the README starts %q and shows %d commands, want nothing and some", r.starts, len(r.steps))
	}
	if p.flags == nil {
		p.flags = []string{"-c", "examples/" + p.name + "/rules.yaml"}
	}
	runScenario(t, func(ctx context.Context, s *session) []string {
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

// runScenario runs scenes until one succeeds, or fails within one minute of the clock. If a
// minute ended meanwhile, windows ended too, and play tries again.
func runScenario(t *testing.T, scenario func(context.Context, *session) []string) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		minute := time.Now().Truncate(time.Minute)
		s := &session{ports: make(map[string]string)}
		t.Cleanup(s.stop) // a step may end the test, as where no Envoy is installed
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		problems := scenario(ctx, s)
		cancel()
		s.stop()
		if len(problems) == 0 {
			return
		}
		if attempt == 5 || time.Now().Truncate(time.Minute).Equal(minute) {
			t.Error(strings.Join(problems, "\n"))
			return
		}
		t.Logf("a minute ended; once more, after: %s", problems)
	}
}

// session is the programs of a README, each on free ports.
type session struct {
	// ports says where the port of the README is, as host:port.
	ports   map[string]string
	sluices []*sluice.Sluice
	// envoy is the newest of envoys.
	envoy  *envoy.Envoy
	envoys []*envoy.Envoy
	dirs   []string
	// env is added to the environment of commands.
	env []string
	// logs says where the files are that Envoy writes its access log to, by their names.
	logs map[string]string
}

// stop kills what runs.
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

// runReadme returns where the README is wrong.
func (s *session) runReadme(ctx context.Context, r *readme) []string {
	for _, step := range r.steps {
		if problems := s.runStep(ctx, step); problems != nil {
			return problems
		}
	}
	return s.awaitLog(ctx, r.log)
}

// awaitLog ends Envoy, which then writes the rest of its access log. It returns the first
// line that is missing there.
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
			continue // what Envoy says of itself
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
	if len(words) == 5 && words[3] == "--base-id" { // for several beside each other, which tests have without
		words = words[:3]
	}
	switch {
	case strings.HasPrefix(line, "sluice serve "), strings.HasPrefix(line, "bin/sluice serve "):
		return s.startSluice(ctx, words[2:])
	case len(words) == 3 && (words[0] == "envoy" || words[0] == fetchedEnvoy(t)) && words[1] == "-c":
		return s.startEnvoy(ctx, t, filepath.Join(root, words[2]))
	}
	return errors.New("a README starts `sluice serve` and `envoy -c FILE`, not this")
}

// fetchedEnvoy returns the path, seen from the root, to which make fetches Envoy.
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

// defaultAddrs are where sluice listens if no flag says otherwise.
var defaultAddrs = map[string]string{"grpc": ":8081", "http": ":8080", "debug": "127.0.0.1:6070", "metrics": ":9090"}

// startSluice runs sluice with flags. Addresses in them become free ports.
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
				words[i+1] = dir // one of its own for each attempt
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

// startEnvoy runs Envoy with a configuration file. Its endpoints become those of the
// running sluices.
func (s *session) startEnvoy(ctx context.Context, t *testing.T, path string) error {
	t.Helper()
	config := document(t, path)
	if err := s.redirectLogs(config); err != nil {
		return err
	}
	listeners := make(map[string]string) // by port
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

// redirectLogs has the access logs of a configuration written to a directory of the scene.
func (s *session) redirectLogs(config object) error {
	dir, err := os.MkdirTemp("", "logs-")
	if err != nil {
		return err
	}
	s.dirs = append(s.dirs, dir)
	s.logs = map[string]string{}
	eachObject(config, func(o object) {
		if kind, _ := o["@type"].(string); strings.HasSuffix(kind, ".FileAccessLog") {
			name := field[string](o, "path")
			s.logs[name] = filepath.Join(dir, filepath.Base(name))
			o["path"] = s.logs[name]
		}
	})
	return nil
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
	// onlyLooks are commands that change nothing.
	onlyLooks = regexp.MustCompile(`sluice explain|sluice simulate|grep|/metrics|/stats`)
	// built is where `make build` puts the program that these tests have elsewhere.
	built = regexp.MustCompile(`(^|[|;&] *)bin/sluice `)
)

// runStep runs one command. A command that only looks is repeated until it prints what it
// should: it may come before charges at the end of a stream, which nobody waits for.
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
		return []string{fmt.Sprintf("$ %s\nnothing that the README starts listens at %s", step.command, unknown)}
	}
	for name, path := range s.logs {
		command = strings.ReplaceAll(command, " "+name, " "+path)
	}
	var last []string
	for {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir = root
		cmd.Env = append(append(os.Environ(), s.env...), "PATH="+sluiceDir+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		problems := step.differences(string(out))
		if problems == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // else it was killed before it had printed all
			last = append([]string{"$ " + step.command}, append(problems, fmt.Sprintf("it printed (%v):\n%s", err, out))...)
		}
		if !onlyLooks.MatchString(command) || ctx.Err() != nil {
			return last
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
