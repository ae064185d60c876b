package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errNotCompiled is the result of planting a mistake that the compiler rejects.
var errNotCompiled = errors.New("does not compile")

// tester runs the tests with a mistake.
type tester struct {
	root, dir string
	more      bool
	env       []string
}

// newTester returns a tester after the tests have passed without a mistake.
func newTester(ctx context.Context, root string, more bool) (*tester, error) {
	// A mistake can let a loop allocate without end. The system then kills this process or a child
	// first. A limit would make tests fail without a mistake, because tables reserve address space.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mistakes-")
	if err != nil {
		return nil, err
	}
	t := &tester{root: root, dir: dir, more: more}
	flags := " -vet=off -overlay=" + t.overlay()
	effort := "SLUICE_EFFORT=1"
	if more {
		flags += " -tags=more"
		effort = "SLUICE_EFFORT=10"
	}
	// Tests that build sluice do it with the mistake too, as GOFLAGS is in their environment.
	t.env = append(os.Environ(), effort, "SLUICE_NOT_RUN="+t.notRun(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+flags))
	if err := errors.Join(os.WriteFile(t.notRun(), nil, 0o600), t.replace(nil)); err != nil {
		return nil, err
	}
	if failed, err := t.find(ctx, "limiter/*.go"); failed != "" || err != nil {
		return nil, cmp.Or(err, fmt.Errorf("without a mistake: %s", failed))
	}
	return t, nil
}

func (t *tester) overlay() string { return filepath.Join(t.dir, "overlay.json") }

// notRun is the file in which tests write what they need and do not have, such as Envoy.
func (t *tester) notRun() string { return filepath.Join(t.dir, "notrun") }

// replace sets the files that the go command replaces by others.
func (t *tester) replace(files map[string]string) error {
	text, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return err
	}
	return os.WriteFile(t.overlay(), text, 0o600)
}

// command returns a go command that runs in a process group of its own.
func (t *tester) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	cmd.Env = t.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// plant lets go commands build with a mistake, and compiles its package.
func (t *tester) plant(ctx context.Context, m mistake) error {
	original := filepath.Join(t.root, m.file)
	src, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	changed := filepath.Join(t.dir, path.Base(m.file))
	if err := os.WriteFile(changed, m.apply(src), 0o600); err != nil {
		return err
	}
	if err := t.replace(map[string]string{original: changed}); err != nil {
		return err
	}
	err = t.command(ctx, "build", "./"+path.Dir(m.file)).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return errNotCompiled
	}
	return err
}

// find returns the test that fails with a mistake in a file, or "": first of its package, then of those outside
// e2e, whose results the go command caches, then of those that run sluice.
func (t *tester) find(ctx context.Context, file string) (foundBy string, err error) {
	list, err := t.command(ctx, "list", "./...").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	var others []string
	binary := []string{"-count=1"}
	for name := range strings.FieldsSeq(string(list)) {
		switch _, dir, _ := strings.Cut(name, "/sluice/"); {
		case dir == "cmd/sluice", dir == "e2e/proxy", t.more && strings.HasPrefix(dir, "e2e/"):
			binary = append(binary, name)
		case !strings.HasPrefix(dir, "e2e"):
			others = append(others, name)
		}
	}
	for _, args := range [][]string{{"./" + path.Dir(file)}, others, binary} {
		if foundBy, err = t.test(ctx, args); foundBy != "" || err != nil {
			return foundBy, err
		}
	}
	return "", nil
}

// test runs tests until those of one package fail, and returns the test, or "".
func (t *tester) test(ctx context.Context, args []string) (foundBy string, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := t.command(running, append([]string{"test", "-failfast", "-timeout=10m"}, args...)...)
	out := &output{failed: cancel}
	cmd.Stdout = out
	cmd.Stderr = out
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that the tests have left
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if foundBy = failure(out.String()); foundBy == "" && err != nil {
		return "", fmt.Errorf("test %v: %w\n%s", args, err, out)
	}
	return foundBy, nil
}

// output is what `go test` prints. It calls failed when the tests of a package have failed.
type output struct {
	bytes.Buffer
	failed func()
}

func (o *output) Write(p []byte) (n int, err error) {
	n, err = o.Buffer.Write(p)
	if failedPackage.Match(o.Bytes()) {
		o.failed()
	}
	return n, err
}

var (
	failedPackage = regexp.MustCompile(`(?m)^FAIL\t(\S+)\s+[\d.]+s$`) // or [build failed]
	failedTest    = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crash         = regexp.MustCompile(`(?m)^(?:panic|fatal error|signal): .*$`)
	runningTest   = regexp.MustCompile(`(?m)^\s*running tests:\n\s*(\S+)`)
)

// failure returns the test that failed first according to the output of `go test`, or "".
func failure(out string) string {
	at := failedPackage.FindStringSubmatchIndex(out)
	if at == nil {
		return ""
	}
	name := out[at[2]:at[3]]
	out = out[:at[0]]
	for _, test := range []*regexp.Regexp{runningTest, failedTest} {
		if m := test.FindStringSubmatch(out); m != nil {
			return name + "." + m[1]
		}
	}
	return fmt.Sprintf("%s (%s)", name, cmp.Or(crash.FindString(out), "ends early"))
}

// reportNotRun prints what tests needed and did not have.
func (t *tester) reportNotRun() error {
	text, err := os.ReadFile(t.notRun())
	if err != nil {
		return err
	}
	why := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(why)
	for _, line := range slices.Compact(why) {
		if line != "" {
			fmt.Println("tested WITHOUT", line)
		}
	}
	return nil
}
