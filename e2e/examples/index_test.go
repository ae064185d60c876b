package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEveryExampleIsListedAndTested checks that the table contains each directory with its
// question, and that a test runs it.
func TestEveryExampleIsListedAndTested(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile(filepath.Join(root, "examples", "README.md"))
	must.OK(t, err)
	folders, err := os.ReadDir(filepath.Join(root, "examples"))
	must.OK(t, err)
	for _, folder := range folders {
		name := folder.Name()
		has := func(file string) bool {
			_, err := os.Stat(filepath.Join(root, "examples", name, file))
			return err == nil
		}
		if !folder.IsDir() || name == "tls" { // run by proxy.TestMutualTLS
			continue
		}
		page := "rules.yaml"
		if has("README.md") {
			page = "README.md"
		}
		if !strings.Contains(string(index), "\n| ["+name+"]("+name+"/"+page+") | ") {
			t.Errorf("README.md has no line for %s/%s", name, page)
		}
		if !has("README.md") && !has("cases.yaml") && name != "quickstart" { // run by the demo
			t.Errorf("%s has neither a README.md nor a cases.yaml to test", name)
		}
	}
}
