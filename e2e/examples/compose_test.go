package examples_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// composeFile contains the fields of a compose file that the example uses.
type composeFile struct {
	Name     string
	Services map[string]composeService
}

type composeService struct {
	Image           string
	Build           string
	Entrypoint      []string
	Command         []string
	Volumes         []string
	Ports           []string
	DependsOn       []string `yaml:"depends_on"`
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	MemLimit        string   `yaml:"mem_limit"`
	StopGracePeriod string   `yaml:"stop_grace_period"`
}

func readCompose(text []byte) (file composeFile, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	return file, decoder.Decode(&file)
}

// mounts returns the container paths of the host's directories and files, which must exist.
func (s composeService) mounts(dir string) (map[string]string, error) {
	mounts := make(map[string]string)
	for _, volume := range s.Volumes {
		parts := strings.Split(volume, ":")
		if len(parts) != 3 || parts[2] != "ro" {
			return nil, fmt.Errorf("volume %q: want HOST:CONTAINER:ro", volume)
		}
		host := filepath.Join(dir, parts[0])
		if _, err := os.Stat(host); err != nil {
			return nil, err
		}
		mounts[parts[1]] = host
	}
	return mounts, nil
}

// hostPath returns an argument with paths of the host.
func hostPath(arg string, mounts map[string]string) string {
	for container, host := range mounts {
		if arg == container || strings.HasPrefix(arg, container+"/") {
			return host + strings.TrimPrefix(arg, container)
		}
	}
	return arg
}

// checkCompose returns the differences between a compose file and its directory.
func checkCompose(file composeFile, dir string, config object) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	listens := make(map[string]bool)
	eachObject(config, func(o object) {
		socket, ok := o["socket_address"].(object)
		if !ok {
			return
		}
		host, port := fmt.Sprint(socket["address"]), fmt.Sprint(socket["port_value"])
		if host == "0.0.0.0" {
			listens["envoy:"+port] = true
		} else if _, known := file.Services[host]; !known && host != "127.0.0.1" {
			complain("Envoy calls %s, which is not a service", host)
		}
	})
	listens["sluice:9090"] = true // default
	for name, service := range file.Services {
		if !regexp.MustCompile(`^[a-z0-9.]+/[a-z0-9/-]+:v\d+\.\d+\.\d+$`).MatchString(service.Image) {
			complain("%s: image %q, want one with a registry and a version", name, service.Image)
		}
		if service.Build != "" {
			if _, err := os.Stat(filepath.Join(dir, service.Build, "Dockerfile")); err != nil {
				complain("%s: %v", name, err)
			}
		}
		if _, err := service.mounts(dir); err != nil {
			complain("%s: %v", name, err)
		}
		for _, other := range service.DependsOn {
			if _, known := file.Services[other]; !known {
				complain("%s depends on %s, which is not a service", name, other)
			}
		}
		for _, published := range service.Ports {
			parts := strings.Split(published, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" || !listens[name+":"+parts[2]] {
				complain("%s: port %q: want a listening port, published on loopback", name, published)
			}
		}
	}
	return problems
}

// TestCompose checks examples/compose, starts sluice with the command line of its service and Envoy
// with its configuration, and runs the README.
func TestCompose(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(root, "examples", "compose")
	text, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	must.OK(t, err)
	file, err := readCompose(text)
	must.OK(t, err)
	for _, problem := range checkCompose(file, dir, example(t, "compose", "envoy.yaml")) {
		t.Error(problem)
	}
	proxy, limits := file.Services["envoy"], file.Services["sluice"]
	if want := "docker.io/envoyproxy/envoy:v" + envoy.Version; proxy.Image != want {
		t.Errorf("Envoy's image is %s, want %s as in the tests", proxy.Image, want)
	}
	version := document(t, filepath.Join(root, "kustomize", "components", "version", "kustomization.yaml"))
	if released := field[object](object{"first": field[list](version, "images")[0]}, "first"); limits.Image !=
		fmt.Sprintf("%s:%s", released["name"], released["newTag"]) {
		t.Errorf("sluice's image is %s, want %v", limits.Image, released)
	}
	if !slices.Equal(limits.Entrypoint, []string{"/bin/sluice"}) || limits.Command[0] != "serve" {
		t.Fatalf("sluice runs %q %q, want /bin/sluice serve", limits.Entrypoint, limits.Command)
	}
	mounts, err := proxy.mounts(dir)
	must.OK(t, err)
	if !slices.Equal(proxy.Command[:2], []string{"envoy", "-c"}) || len(proxy.Command) != 3 {
		t.Fatalf("Envoy's command is %q, want envoy -c FILE", proxy.Command)
	}
	config := document(t, hostPath(proxy.Command[2], mounts))
	if mounts, err = limits.mounts(dir); err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, arg := range limits.Command[1:] {
		path, err := filepath.Abs(hostPath(arg, mounts))
		if err != nil || hostPath(arg, mounts) == arg {
			path = arg
		}
		flags = append(flags, path)
	}
	r, err := readReadme(filepath.Join(dir, "README.md"))
	if err != nil || len(r.starts) != 0 || len(r.steps) == 0 {
		t.Fatalf("the README starts %q and shows %d commands (%v), want no program and at least one command", r.starts, len(r.steps), err)
	}
	upstream := suite.StartBackend(t)
	runScenario(t, time.Minute, func(ctx context.Context, s *session) []string {
		if err := s.startSluice(ctx, flags); err != nil {
			return []string{err.Error()}
		}
		endpoints := map[string]string{"sluice:8081": s.sluices[0].Addr("grpc"), "backend:8080": upstream.Addr}
		if err := s.runEnvoy(ctx, t, config, endpoints); err != nil {
			return []string{err.Error()}
		}
		s.ports["10000"] = s.envoy.Addr("ingress")
		return s.runReadme(ctx, r)
	})
}
