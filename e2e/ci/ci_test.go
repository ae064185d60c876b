// Package ci tests .pre-commit-hooks.yaml and action.yml as described in docs/ci.md.
package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const root = "../.."

// docsBlock returns the YAML block in docs/ci.md that starts with the name of a file.
func docsBlock(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```yaml\n# "+name+"\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatalf("docs/ci.md has no block of %s", name)
	}
	return block
}

// newRepository returns a user's repository with rules and an Envoy configuration that sends their
// descriptors.
func newRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	envoy, err := os.ReadFile(root + "/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(root + "/examples/quickstart/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/envoy.yaml", string(envoy))
	write(t, dir+"/rules/quickstart.yaml", string(rules))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit replaces a text in a file.
func edit(t *testing.T, path, right, wrong string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), right) {
		t.Fatalf("%s does not contain %q", path, right)
	}
	write(t, path, strings.Replace(string(text), right, wrong, 1))
}

// run returns the output of a command and whether it succeeded.
func run(t *testing.T, dir string, env []string, name string, args ...string) (said string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// mustRun fails the test if the command fails.
func mustRun(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	said, ok := run(t, dir, env, name, args...)
	if !ok {
		t.Fatalf("%s %q: %s", name, args, said)
	}
	return said
}

// TestPreCommit has the real pre-commit run the hooks of a clone of this repository with its
// uncommitted changes.
func TestPreCommit(t *testing.T) {
	t.Parallel()
	installed, err := filepath.Glob(root + "/.build/pre-commit-*")
	if err != nil {
		t.Fatal(err)
	}
	if len(installed) == 0 {
		suite.Skip(t, "pre-commit is not installed; `make test-more` prints the reason")
	}
	python, err := filepath.Abs(installed[0])
	if err != nil {
		t.Fatal(err)
	}
	hooks := clone(t)
	dir := newRepository(t)
	config := strings.ReplaceAll(docsBlock(t, ".pre-commit-config.yaml"), "https://github.com/sluice-ratelimit/sluice", hooks)
	write(t, dir+"/.pre-commit-config.yaml", strings.ReplaceAll(config, "v0.1.0", strings.TrimSpace(mustRun(t, hooks, nil, "git", "rev-parse", "HEAD"))))
	env := []string{
		"PYTHONPATH=" + python, "PRE_COMMIT_HOME=" + t.TempDir(),
		// By default, pre-commit uses separate Go caches, and everything would be downloaded and
		// built again.
		"GOMODCACHE=" + strings.TrimSpace(mustRun(t, ".", nil, "go", "env", "GOMODCACHE")),
		"GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	mustRun(t, dir, env, "git", "init", "-q")
	check := func() (string, bool) {
		mustRun(t, dir, env, "git", "add", "-A")
		return run(t, dir, env, "python3", "-m", "pre_commit", "run", "--color=never", "--all-files")
	}
	said, ok := check()
	if passed := strings.Count(said, "..Passed"); !ok || passed != 2 {
		t.Fatalf("pre-commit with valid files printed\n%s", said)
	}
	edit(t, dir+"/rules/quickstart.yaml", "key: user", "key: usr")
	said, ok = check()
	if ok || !strings.Contains(said, "check rate-limit rules......") || !regexp.MustCompile(`(?s)compare Envoy.*Failed.*rules/quickstart.yaml:\d+:\d+: warning: unsent`).MatchString(said) {
		t.Errorf("pre-commit with a different key printed\n%s", said)
	}
	edit(t, dir+"/rules/quickstart.yaml", "unit: hour", "unit: hours")
	said, ok = check()
	if ok || !regexp.MustCompile(`(?s)check rate-limit rules.*Failed.*rules/quickstart.yaml:\d+:\d+: error: .*unknown unit "hours"`).MatchString(said) {
		t.Errorf("pre-commit with an unknown unit printed\n%s", said)
	}
}

// clone returns a repository with the current files of this one in one commit.
func clone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := mustRun(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, but not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	mustRun(t, dir, nil, "git", "init", "-q")
	mustRun(t, dir, nil, "git", "add", "-A")
	mustRun(t, dir, nil, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "as it stands")
	return dir
}

// action contains the used fields of action.yml.
type action struct {
	Name, Description string
	Inputs            map[string]struct {
		Description, Default string
		Required             bool
	}
	Runs struct {
		Using string
		Steps []struct {
			Name, Uses, If, Shell, Run string
			With, Env                  map[string]string
		}
	}
}

// job is the environment of an action: the inputs of `with:` and the runner's directories.
type job struct {
	with                        map[string]string
	workspace, temp, checkedOut string
}

var expression = regexp.MustCompile(`\$\{\{\s*([^}]*?)\s*\}\}`)

// expand returns text with its expressions replaced by their values.
func (j *job) expand(t *testing.T, a *action, text string) string {
	t.Helper()
	return expression.ReplaceAllStringFunc(text, func(e string) string {
		name := expression.FindStringSubmatch(e)[1]
		if name == "github.action_path" {
			return j.checkedOut
		}
		input, is := strings.CutPrefix(name, "inputs.")
		declared, known := a.Inputs[input]
		if !is || !known {
			t.Fatalf("unsupported expression %s", e)
		}
		if given, is := j.with[input]; is {
			return given
		}
		return declared.Default
	})
}

// run runs the scripts of an action as documented by GitHub, with `bash --noprofile --norc -eo
// pipefail` and the variables of the runner and of each step. It returns their output up to the
// first failure.
func (j *job) run(t *testing.T, a *action) (said string, ok bool) {
	t.Helper()
	for _, step := range a.Runs.Steps {
		for name, text := range step.With {
			path := j.expand(t, a, text)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %s: %v", step.Uses, name, err)
			}
		}
		if step.Uses != "" {
			continue // an action of another repository; it installs Go, which is already there
		}
		if step.If == "inputs.envoy != ''" && j.with["envoy"] == "" {
			continue
		} else if step.If != "" && step.If != "inputs.envoy != ''" {
			t.Fatalf("unsupported condition %q", step.If)
		}
		if step.Shell != "bash" || expression.MatchString(step.Run) {
			t.Fatalf("step %q: want shell: bash, required in composite actions, and no expression in the script", step.Name)
		}
		script := filepath.Join(j.temp, "script.sh")
		write(t, script, step.Run)
		env := []string{"GITHUB_ACTIONS=true", "CI=true", "GITHUB_WORKSPACE=" + j.workspace, "GITHUB_ACTION_PATH=" + j.checkedOut, "RUNNER_TEMP=" + j.temp}
		for name, text := range step.Env {
			env = append(env, name+"="+j.expand(t, a, text))
		}
		out, good := run(t, j.workspace, env, "bash", "--noprofile", "--norc", "-eo", "pipefail", script)
		if said += out; !good {
			return said, false
		}
	}
	return said, true
}

// TestAction runs the scripts of action.yml with the inputs in docs/ci.md.
func TestAction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var a action
	if err := yaml.Load(text, &a); err != nil {
		t.Fatal(err)
	}
	if a.Name == "" || a.Description == "" || a.Runs.Using != "composite" {
		t.Errorf("action.yml is %+v", a)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	if err := yaml.Load([]byte(docsBlock(t, ".github/workflows/rate-limits.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	steps := workflow.Jobs["rate-limits"].Steps
	checkedOut, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{with: steps[len(steps)-1].With, workspace: newRepository(t), temp: t.TempDir(), checkedOut: checkedOut}
	for name := range j.with {
		if _, known := a.Inputs[name]; !known {
			t.Errorf("docs/ci.md sets the input %s, which action.yml does not define", name)
		}
	}
	if said, ok := j.run(t, &a); !ok || strings.Contains(said, "::error") || strings.Contains(said, "::warning") {
		t.Fatalf("the action with valid files printed %q", said)
	}
	rules := j.workspace + "/rules/quickstart.yaml"
	edit(t, rules, "key: user", "key: usr")
	if said, ok := j.run(t, &a); ok || !regexp.MustCompile(`(?m)^::warning file=rules/quickstart.yaml,line=\d+,col=\d+,title=sluice unsent::`).MatchString(said) {
		t.Errorf("the action with a different key printed %q", said)
	}
	j.with = map[string]string{"rules": "rules/\n\n  \nmore file.yaml\n", "strict": "false"}
	write(t, j.workspace+"/more file.yaml", "domain: more\ndescriptors:\n- {key: a, rate_limit: {unit: hour}}\n")
	if said, ok := j.run(t, &a); !ok || !strings.Contains(said, "::warning file=more file.yaml,line=3,") {
		t.Errorf("the action with a warning and without strict printed %q", said)
	}
	delete(j.with, "strict")
	if said, ok := j.run(t, &a); ok {
		t.Errorf("the action with a warning printed %q", said)
	}
	j.with["rules"] = "$(touch owned); `touch owned`"
	if said, ok := j.run(t, &a); ok || !strings.Contains(said, "touch owned") {
		t.Errorf("the action with a missing path printed %q", said)
	}
	if _, err := os.Stat(j.workspace + "/owned"); err == nil {
		t.Error("an input was executed as a command")
	}
}
