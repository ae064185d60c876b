package kustomize

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// patience bounds every wait: what has not come by then does not come.
const patience = 30 * time.Second

// scratch is a directory of this run.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	// Short, since the paths of unix sockets are bounded.
	if scratch, err = os.MkdirTemp("", "k8s"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// program is the real sluice and what it says of itself.
type program struct {
	path string
	// help is that of serve, each space one blank.
	help string
}

var theProgram = sync.OnceValues(func() (*program, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	binary, err := sluice.Build(ctx, "..", scratch)
	if err != nil {
		return nil, err
	}
	help, err := command(binary, "serve", "--help")
	return &program{path: binary, help: strings.Join(strings.Fields(help), " ")}, err
})

// fallback returns the value of a flag that is not given.
func (p *program) fallback(flag string) (string, error) {
	found := regexp.MustCompile(`--` + flag + `=[A-Z]+ .*? Default (\S+?)[. ]`).FindStringSubmatch(p.help)
	if found == nil {
		return "", fmt.Errorf("sluice serve --help has no default of --%s", flag)
	}
	return found[1], nil
}

// below returns a path of the container as it is laid out in dir.
func below(dir, path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
