package vulnerabilities_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// database is a vulnerability database with one entry, for the YAML module.
var database = map[string]string{
	"index/db.json":      `{"modified":"2026-01-01T00:00:00Z"}`,
	"index/modules.json": `[{"path":"go.yaml.in/yaml/v4","vulns":[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
	"ID/GO-2026-0001.json": `{"schema_version":"1.3.1","id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z",
		"summary":"a test","details":"a test","database_specific":{"url":"https://pkg.go.dev/vuln/GO-2026-0001"},"affected":[{"package":{"name":"go.yaml.in/yaml/v4","ecosystem":"Go"},
		"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":{"imports":[{"path":"go.yaml.in/yaml/v4"}]}}]}`,
}

// check runs check.sh with a database, and returns its output and its exit code.
func check(t *testing.T, at, pkg string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./check.sh", pkg)
	cmd.Env = append(os.Environ(), "GOVULNDB="+at)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestVulnerabilitiesAreFound expects a failure for a package that uses the vulnerable module, and
// none for one that does not.
func TestVulnerabilitiesAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range database {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := check(t, "file://"+dir, "./descriptors/rulefile"); code == 0 || !strings.Contains(out, "GO-2026-0001") {
		t.Errorf("with a vulnerable module: code %d:\n%s", code, out)
	}
	if out, code := check(t, "file://"+dir, "./internal/heap"); code != 0 || !strings.Contains(out, "No vulnerabilities found") {
		t.Errorf("without one: code %d:\n%s", code, out)
	}
}

// TestUnreachableDatabaseIsReported expects a line that names the database.
func TestUnreachableDatabaseIsReported(t *testing.T) {
	const at = "http://vulnerabilities.invalid" // a name that never resolves
	out, code := check(t, at, "./internal/heap")
	if code != 0 || !strings.Contains(out, "lint: NOT CHECKED for known vulnerabilities: failed to read "+at+": ") || strings.Count(out, "\n") != 1 {
		t.Errorf("code %d:\n%s", code, out)
	}
}
