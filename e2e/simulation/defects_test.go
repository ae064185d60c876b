package simulation

import (
	"bytes"
	"cmp"
	_ "embed" // defects
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// defect is a bug of the service that the simulation must find. It is planted by mistakes.
type defect struct {
	name    string
	what    string
	changes []mistake
	foundBy string // the test that finds it, "package.Test"; empty for the simulation
}

// mistake replaces lines that occur once in a file.
type mistake struct{ file, old, new string }

//go:embed testdata/defects.diff
var defectsText string

// defects are separated by empty lines. The first line of each is "name: what". A line "found by TEST,
// because REASON" may follow, then the changes. Each begins with "--- FILE".
var defects = func() (all []*defect) {
	for text := range strings.SplitSeq(defectsText, "\n\n") {
		d := new(defect)
		for line := range strings.Lines(strings.TrimSuffix(text, "\n") + "\n") {
			test, found := strings.CutPrefix(line, "found by ")
			file, isFile := strings.CutPrefix(line, "--- ")
			switch {
			case found:
				d.foundBy, _, _ = strings.Cut(test, ",")
			case isFile:
				d.changes = append(d.changes, mistake{file: strings.TrimSpace(file)})
			case len(d.changes) == 0:
				d.name, d.what, _ = strings.Cut(strings.TrimSpace(line), ": ")
			default:
				c := &d.changes[len(d.changes)-1]
				if line[0] != '+' {
					c.old += line[1:]
				}
				if line[0] != '-' {
					c.new += line[1:]
				}
			}
		}
		all = append(all, d)
	}
	return all
}()

// root is the root of the module.
const root = "../.."

// plant writes files with the defects, and returns the flag that lets the go command build them.
func plant(t *testing.T, defects ...*defect) string {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	for _, d := range defects {
		for _, c := range d.changes {
			original, err := filepath.Abs(path.Join(root, c.file))
			must.OK(t, err)
			text, err := os.ReadFile(cmp.Or(replace[original], original))
			must.OK(t, err)
			if n := bytes.Count(text, []byte(c.old)); n != 1 {
				t.Fatalf("%s: %s: the text to replace occurs %d times, want once; adapt the defect to the changed code", d.name, c.file, n)
			}
			if replace[original] == "" {
				replace[original] = path.Join(dir, fmt.Sprint(len(replace), path.Base(c.file)))
			}
			must.OK(t, os.WriteFile(replace[original], bytes.Replace(text, []byte(c.old), []byte(c.new), 1), 0o600))
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must.OK(t, err)
	must.OK(t, os.WriteFile(path.Join(dir, "overlay.json"), overlay, 0o600))
	return "-overlay=" + path.Join(dir, "overlay.json")
}

// TestDefectsApply verifies that the defects of each package can be planted, and compile.
func TestDefectsApply(t *testing.T) {
	packages := map[string][]*defect{}
	for _, d := range defects {
		dir := path.Dir(d.changes[0].file)
		packages[dir] = append(packages[dir], d)
	}
	for _, dir := range sortedKeys(packages) {
		build := exec.CommandContext(t.Context(), "go", "build", plant(t, packages[dir]...), "./"+dir)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}

// maxDefectSeeds is the number of seeds that must find each defect.
const maxDefectSeeds = 2000

// TestDefectsAreFound plants each defect in a binary of this package, and runs seeds until one
// fails; or in one of the package whose test finds it:
//
//	SLUICE_EFFORT=100 go test -count=1 -v -timeout 0 ./e2e/simulation -run TestDefectsAreFound
func TestDefectsAreFound(t *testing.T) {
	t.Parallel()
	effort.Require(t, effort.All)
	for _, d := range defects {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			d.find(t)
		})
	}
}

// find builds a binary with the defect and runs it.
func (d *defect) find(t *testing.T) {
	t.Helper()
	binary := path.Join(t.TempDir(), "simulation.test")
	pkg, test, _ := strings.Cut(cmp.Or(d.foundBy, "e2e/simulation.TestSimulation"), ".")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags=more", plant(t, d), "-o", binary, ".")
	build.Dir = path.Join(root, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	began := time.Now()
	args := []string{"-test.run=^" + test + "$", "-test.v", "-test.timeout=0"}
	if d.foundBy == "" {
		args = append(args, fmt.Sprint("-last=", maxDefectSeeds))
	}
	run := exec.CommandContext(t.Context(), binary, args...)
	run.Dir = build.Dir
	run.Env = append(os.Environ(), "SLUICE_SEED=", "SLUICE_EFFORT=10")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("not found by %d seeds: %s", maxDefectSeeds, d.what)
	}
	seeds := regexp.MustCompile(`seed (\d+)`).FindAllStringSubmatch(string(out), -1)
	violation := `violated: .*|panic: .*|fatal error: .*`
	if d.foundBy != "" {
		violation = "--- FAIL: " + test
	}
	found := regexp.MustCompile(violation).FindString(string(out))
	if found == "" {
		t.Fatalf("the run failed without a violation: %v\n%s", err, out)
	}
	where := cmp.Or(d.foundBy, "seed below 500, as no progress was reported")
	if len(seeds) > 0 {
		where = "seed " + seeds[len(seeds)-1][1]
	}
	t.Logf("%s after %v: %s", where, time.Since(began).Round(time.Second), found)
}
