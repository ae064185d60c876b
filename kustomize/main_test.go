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
	var err error
	if manifests, err = readTree(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(suite.Main(m, "..", func(built, dir string) { binary, scratch = built, dir }))
}

// help is the help of serve with single spaces.
var help = sync.OnceValues(func() (string, error) {
	text, err := command(binary, "serve", "--help")
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
		return "", fmt.Errorf("sluice serve --help has no default of --%s", flag)
	}
	return found[1], nil
}

// below returns a path of the container as it is laid out in dir.
func below(dir, path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
