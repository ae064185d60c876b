package dropin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// Environment variables for the test process in the namespaces: the mode, and the path of the
// image.
const (
	insideVariable = "SLUICE_DROPIN_INSIDE"
	imageVariable  = "SLUICE_DROPIN_IMAGE"
)

// uids are the users that run the image: its default user, and that of Envoy Gateway.
var uids = [...]int{65532, 65534}

const patience = suite.Patience

func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) == "" {
		goleak.VerifyTestMain(m) // calls os.Exit
	}
	if err := setUpNamespaces(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(imageVariable) == "" {
		os.Exit(0) // the parent only checked whether namespaces work
	}
	goleak.VerifyTestMain(m)
}

// TestDropIn starts the image with the manifests of Istio, Contour and others for
// envoyproxy/ratelimit, with BACKEND_TYPE=memory added, and with sluice's own. It runs as users
// that own no file of the image, with a read-only root, on the ports of the manifests. This
// requires network and mount namespaces, by root or with user namespaces.
func TestDropIn(t *testing.T) {
	if mode := os.Getenv(insideVariable); mode != "" {
		testInside(t, mode, os.Getenv(imageVariable))
		return
	}
	for _, mode := range namespaceModes() {
		if out, err := inNamespaces(t, mode).CombinedOutput(); err != nil {
			t.Logf("%s: %v: %s", mode, err, out)
			continue
		}
		cmd := inNamespaces(t, mode, imageVariable+"="+makeImage(t))
		out, err := cmd.CombinedOutput()
		t.Logf("%s:\n%s", mode, out)
		check(t, err)
		return
	}
	suite.SkipWithoutNamespaces(t, "neither root's rights nor user namespaces are to be had")
}

func testInside(t *testing.T, mode, imagePath string) {
	t.Helper()
	i := readImage(t, imagePath)
	t.Run("image", func(t *testing.T) { testImage(t, i) })
	paths, err := filepath.Glob("testdata/*.txtar")
	check(t, err)
	if len(paths) < 4 {
		t.Fatalf("%d manifests", len(paths))
	}
	for _, path := range paths {
		for _, uid := range uids {
			t.Run(fmt.Sprintf("%s as %d", strings.TrimSuffix(filepath.Base(path), ".txtar"), uid), func(t *testing.T) {
				m := readManifest(t, path)
				m.test(t, mode, i, uid)
			})
		}
	}
}

func (m *manifest) test(t *testing.T, mode string, i *image, uid int) {
	t.Helper()
	root := m.fileSystem(t, i)
	readOnly(t, root)
	if err := os.WriteFile(filepath.Join(root, "probe"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("writing below %s: %v, want that it is read-only", root, err)
	}
	m.startManagement(t, root)
	args := m.args
	if len(args) == 0 {
		args = i.entrypoint
	}
	cmd := &exec.Cmd{Path: args[0], Args: args, Env: m.env, Dir: "/"}
	cmd.SysProcAttr = confinedTo(mode, root, uid)
	p, err := process.Start(cmd)
	check(t, err)
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	listening := 0
	check(t, p.WaitLine(ctx, func(line string) bool {
		if strings.Contains(line, "\tlistening\t") {
			listening++
		}
		return listening == 4
	}))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	check(t, err)
	runsAs := regexpUID.FindStringSubmatch(string(status))
	if want := hostUID(mode, uid); runsAs == nil || runsAs[1] != want {
		t.Errorf("sluice runs as %v, want %s", runsAs, want)
	}
	m.probe(t)
	check(t, p.WaitLine(ctx, func(line string) bool { return strings.Contains(line, "\trules loaded\t") }))
	callArgs := []string{"call", "--timeout", patience.String()}
	for _, arg := range m.call {
		callArgs = append(callArgs, strings.ReplaceAll(arg, "$root", root))
	}
	call := exec.CommandContext(ctx, filepath.Join(root, "bin", "sluice"), callArgs...)
	out, err := call.CombinedOutput()
	if err != nil || !strings.Contains(string(out), m.want) {
		t.Errorf("sluice %v: %v, %s\nwant %s", call.Args, err, out, m.want)
	}
	if code, err := p.Stop(ctx); err != nil || code != 0 {
		t.Errorf("sluice exited with %d, %v", code, err)
	}
	t.Log(p.Log())
}

// probe sends the requests of the kubelet's probes.
func (m *manifest) probe(t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080/healthcheck", nil)
	check(t, err)
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	if response.StatusCode != http.StatusOK || string(body) != "OK" {
		t.Errorf("/healthcheck answers %s %q, want 200 OK", response.Status, body)
	}
	client.CloseIdleConnections()
}
