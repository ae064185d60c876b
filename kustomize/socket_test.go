package kustomize

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestEnvoyUserCanUseSocket runs sluice as its user in a pod of sidecar-unix, on a volume with the kubelet's
// permissions. Envoy's user, without a common group, can connect. With the socket's default mode it cannot.
func TestEnvoyUserCanUseSocket(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		suite.Skip(t, "only root can be several users")
	}
	o := buildObjects(t, combo{overlay: "sidecar-unix"}.files())
	mode := "--grpc-socket-mode=" + o.instances()[0].flags["grpc-socket-mode"]
	dir, err := publicDir()
	if err != nil {
		t.Fatal(err)
	}
	program, rules, volume := filepath.Join(dir, "sluice"), filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "run")
	// A copy by this process could be busy: another test may fork while it is open for writing.
	if err := errors.Join(
		exec.CommandContext(t.Context(), "cp", binary, program).Run(),
		os.Chmod(program, 0o755),
		os.WriteFile(rules, []byte("domain: d\n"), 0o644),
		os.Mkdir(volume, 0o777),
		os.Chmod(volume, 0o777),
	); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd
	}
	// call returns the result of a call by Envoy's user to a sluice with these flags.
	ask := func(name string, flags ...string) (string, error) {
		socket := "unix://" + filepath.Join(volume, name)
		server, err := process.Start(as(65532, append([]string{
			"serve", "--config=" + rules, "--grpc-addr=" + socket,
			"--http-addr=", "--debug-addr=", "--metrics-addr=",
		}, flags...)...))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Kill()
		if err := server.WaitLine(t.Context(), func(line string) bool { return strings.Contains(line, "\tlistening\t") }); err != nil {
			t.Fatal(err)
		}
		out, err := as(101, "call", "--addr", socket, "--domain", "d", "--descriptor", "k=v", "--timeout", patience.String()).CombinedOutput()
		return string(out), err
	}
	if out, err := ask("open", mode); err != nil {
		t.Errorf("with %s: %v: %s", mode, err, out)
	}
	if out, err := ask("closed"); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("without: %v: %s, want permission denied", err, out)
	}
}

// publicDir returns a directory that any user can enter.
func publicDir() (string, error) {
	dir, err := os.MkdirTemp(scratch, "")
	return dir, errors.Join(err, os.Chmod(scratch, 0o755), os.Chmod(dir, 0o755))
}
