package kustomize

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const patience = suite.Patience

// What TestMain made for all tests: sluice, and a directory of this run.
var binary, scratch string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, "..", func(built, dir string) { binary, scratch = built, dir }))
}

// program is the real sluice and what it says of itself.
type program struct {
	path string
	// help is that of serve, each space one blank.
	help string
}

var theProgram = sync.OnceValues(func() (*program, error) {
	help, err := command(binary, "serve", "--help")
	return &program{path: binary, help: strings.Join(strings.Fields(help), " ")}, err
})

// fallback returns the value of a flag that is not given.
func (p *program) fallback(flag string) (string, error) {
	found := regexp.MustCompile(`--` + flag + `=[A-Z]+ .*? Default (\S+?)\.?(?: |$)`).FindStringSubmatch(p.help)
	if found == nil {
		return "", fmt.Errorf("sluice serve --help has no default of --%s", flag)
	}
	return found[1], nil
}

// below returns a path of the container as it is laid out in dir.
func below(dir, path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
