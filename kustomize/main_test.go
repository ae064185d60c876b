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

// binary is sluice, and scratch a directory of this run. TestMain sets both.
var binary, scratch string

func TestMain(m *testing.M) {
	var err error
	if manifests, err = readTree(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(suite.Main(m, "..", func(built, dir string) { binary, scratch = built, dir }))
}

// help is the help of serve, with whitespace collapsed.
var help = sync.OnceValues(func() (string, error) {
	text, err := command(binary, "serve", "--help-all")
	return strings.Join(strings.Fields(text), " "), err
})

// defaultOf returns the default value of a flag.
func defaultOf(flag string) (string, error) {
	text, err := help()
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`--` + flag + `=[A-Z]+ .*? Default: (\S+?)\.?(?: |$)`).FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("sluice serve --help-all has no default of --%s", flag)
	}
	return found[1], nil
}

// below returns the path under dir of a path in the container.
func below(dir, path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
