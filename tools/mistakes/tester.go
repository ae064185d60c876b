package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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

// goPackage is what `go list` prints of a package.
type goPackage struct {
	ImportPath                                      string
	GoFiles, TestGoFiles, XTestGoFiles              []string
	Imports, Deps, TestImports, XTestImports, tests []string
}

// tester runs the tests of packages with a mistake.
type tester struct {
	root, module, dir string
	more              bool
	timeout           time.Duration
	packages          map[string]*goPackage
	env               []string
	planted           map[string]string        // the overlay
	took              map[string]time.Duration // by the tests of packages without a mistake
}

func newTester(ctx context.Context, root string, more bool, timeout time.Duration) (*tester, error) {
	// A mistake can let a loop allocate without end. The system then kills this process or a child
	// first. A limit would make tests fail without a mistake, because tables reserve address space.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mistakes-")
	if err != nil {
		return nil, err
	}
	t := &tester{root: root, dir: dir, more: more, timeout: timeout, packages: map[string]*goPackage{}, took: map[string]time.Duration{}}
	effort := "SLUICE_EFFORT=1"
	if more {
		effort = "SLUICE_EFFORT=10"
	}
	// Tests that build sluice do it with the mistake too, as GOFLAGS is in their environment.
	t.env = append(os.Environ(), effort, "SLUICE_NOT_RUN="+t.notRun(),
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+t.overlay()))
	if err := errors.Join(os.WriteFile(t.notRun(), nil, 0o600), t.write(t.overlay(), nil)); err != nil {
		return nil, err
	}
	return t, t.list(ctx)
}

func (t *tester) overlay() string { return filepath.Join(t.dir, "overlay.json") }

// notRun is the file in which tests write what they need and do not have, such as Envoy.
func (t *tester) notRun() string { return filepath.Join(t.dir, "notrun") }

func (t *tester) write(overlay string, replace map[string]string) error {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(overlay, text, 0o600)
}

// list reads the packages of the module.
func (t *tester) list(ctx context.Context) error {
	const fields = "ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps,TestImports,XTestImports"
	module, err := t.command(ctx, "list", "-m").Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}
	t.module = strings.TrimSpace(string(module))
	out, err := t.command(ctx, append(append([]string{"list"}, t.tags()...), "-json="+fields, "./...")...).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(goPackage)
		if err := in.Decode(p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("output of go list: %w", err)
		}
		p.tests = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		t.packages[p.ImportPath] = p
	}
}

func (t *tester) tags() []string {
	if t.more {
		return []string{"-tags=more"}
	}
	return nil
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
	t.planted = map[string]string{original: changed}
	if err := t.write(t.overlay(), t.planted); err != nil {
		return err
	}
	err = t.command(ctx, append(append([]string{"build"}, t.tags()...), "./"+path.Dir(m.file))...).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return errNotCompiled
	}
	return err
}

// find returns the test that finds the planted mistake, or "".
func (t *tester) find(ctx context.Context, m mistake) (foundBy string, err error) {
	for _, names := range t.order(t.module + "/" + path.Dir(m.file)) {
		if len(names) == 0 {
			continue
		}
		if foundBy, err = t.test(ctx, names); foundBy != "" || err != nil {
			return foundBy, err
		}
	}
	return "", nil
}

// order returns the packages to test one after another: the changed one, those that depend on it,
// e2e/proxy, other packages of e2e.
func (t *tester) order(changed string) (all [4][]string) {
	rank := func(p *goPackage) int {
		switch dir := strings.TrimPrefix(p.ImportPath, t.module+"/"); {
		case p.ImportPath == changed:
			return 0
		case dir == "e2e/proxy":
			return 2
		case dir == "e2e" || strings.HasPrefix(dir, "e2e/"):
			return 3
		}
		return 1
	}
	for name, p := range t.packages {
		if len(p.tests) == 0 || rank(p) == 3 && !t.more {
			continue
		}
		if rank(p)%2 == 0 || t.dependsOn(p, changed) || rank(p) == 3 && t.dependsOn(p, t.module+"/e2e/sluice") {
			all[rank(p)] = append(all[rank(p)], name)
		}
	}
	for _, names := range all {
		slices.SortFunc(names, func(a, b string) int { // those with few dependencies are built fast
			return cmp.Or(len(t.packages[a].Deps)-len(t.packages[b].Deps), strings.Compare(a, b))
		})
	}
	return all
}

// dependsOn reports whether the tests of a package link another one.
func (t *tester) dependsOn(p *goPackage, other string) bool {
	for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		if q := t.packages[imported]; imported == other || q != nil && slices.Contains(q.Deps, other) {
			return true
		}
	}
	return false
}

// test runs the tests of packages with the mistake until those of one fail, and returns the test, or "".
func (t *tester) test(ctx context.Context, names []string) (foundBy string, err error) {
	timeout, err := t.bound(ctx, names)
	if err != nil {
		return "", err
	}
	foundBy, _, err = t.run(ctx, names, timeout)
	return foundBy, err
}

// bound returns how long the tests of each of some packages may take. A mistake such as a dropped Unlock
// lets one wait without end: with it, all may take several times as long as the slowest without one.
func (t *tester) bound(ctx context.Context, names []string) (time.Duration, error) {
	const times, least = 4, 30 * time.Second
	var unknown []string
	for _, name := range names {
		if _, ok := t.took[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		if err := t.write(t.overlay(), nil); err != nil {
			return 0, err
		}
		failed, out, err := t.run(ctx, unknown, t.timeout)
		if err = errors.Join(err, t.write(t.overlay(), t.planted)); err != nil {
			return 0, err
		}
		if failed != "" {
			return 0, fmt.Errorf("%s fails without a mistake:\n%s", failed, out)
		}
		maps.Copy(t.took, durations(out))
	}
	bound := least
	for _, name := range names {
		bound = max(bound, times*t.took[name])
	}
	return min(bound, t.timeout), nil
}

var passed = regexp.MustCompile(`(?m)^ok  \t(\S+)\t([\d.]+s)`)

// durations returns how long the tests of packages took according to the output of `go test`.
func durations(out string) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, m := range passed.FindAllStringSubmatch(out, -1) {
		all[m[1]], _ = time.ParseDuration(m[2])
	}
	return all
}

// run runs the tests of packages until those of one fail, and returns the test, or "", and the output.
func (t *tester) run(ctx context.Context, names []string, timeout time.Duration) (foundBy, text string, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-failfast", "-count=1", fmt.Sprint("-timeout=", timeout)}, t.tags()...)
	cmd := t.command(running, append(args, names...)...)
	out := &output{failed: cancel}
	cmd.Stdout = out
	cmd.Stderr = out
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that the tests have left
	}
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if foundBy = failure(out.String()); foundBy != "" {
		return strings.TrimPrefix(foundBy, t.module+"/"), out.String(), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("test %v: %w\n%s", names, err, out)
	}
	return "", out.String(), nil
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
	hangs := strings.Contains(out, "panic: test timed out after")
	if m := failedTest.FindStringSubmatch(out); m != nil && !hangs {
		return name + "." + m[1]
	}
	if m := runningTest.FindStringSubmatch(out); m != nil && hangs {
		return name + "." + m[1] + " (hangs)"
	}
	if hangs {
		return name + " (hangs)"
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
