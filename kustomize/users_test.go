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

// TestOthersAskBySocket runs sluice and who asks it as the users that they are in
// a pod of sidecar-unix, over a volume as the kubelet makes it with fsGroup: Envoy,
// which is in the volume's group, may ask, and a user who is not may not.
func TestOthersAskBySocket(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		suite.NotRun(t, "only root can be several users")
	}
	p, err := theProgram()
	if err != nil {
		t.Fatal(err)
	}
	const group = 65532
	dir, err := public()
	if err != nil {
		t.Fatal(err)
	}
	program, rules, volume := filepath.Join(dir, "sluice"), filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "run")
	text, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(program, text, 0o755),
		os.WriteFile(rules, []byte("domain: d\n"), 0o644),
		os.Mkdir(volume, 0o777),
		os.Chown(volume, 0, group),
		os.Chmod(volume, 0o777|os.ModeSetgid),
	); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32, groups []uint32, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
		return cmd
	}
	socket := "unix://" + filepath.Join(volume, "grpc.sock")
	server, err := process.Start(as(65532, []uint32{group}, "serve", "--config="+rules, "--grpc-addr="+socket,
		"--http-addr=", "--debug-addr=", "--metrics-addr="))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	if err := server.WaitLine(t.Context(), func(line string) bool { return strings.Contains(line, "\tlistening\t") }); err != nil {
		t.Fatal(err)
	}
	call := []string{"call", socket, "--domain", "d", "--descriptor", "k=v", "--timeout", patience.String()}
	if out, err := as(101, []uint32{group}, call...).CombinedOutput(); err != nil {
		t.Errorf("Envoy's user: %v: %s", err, out)
	}
	if out, err := as(101, nil, call...).CombinedOutput(); err == nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("a user who is not of the group: %v: %s, want permission denied", err, out)
	}
}

// public returns a directory that any user may enter.
func public() (string, error) {
	dir, err := os.MkdirTemp(scratch, "")
	return dir, errors.Join(err, os.Chmod(scratch, 0o755), os.Chmod(dir, 0o755))
}
