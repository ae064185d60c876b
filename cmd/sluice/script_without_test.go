package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestScriptsSeeEachVariable verifies that each supported variable is set by a script that fails
// without it. With -short it only reads the scripts.
func TestScriptsSeeEachVariable(t *testing.T) {
	before := scriptTimeout
	scriptTimeout = 3 * time.Second // without the variable, most scripts fail by a timeout
	t.Cleanup(func() { scriptTimeout = before })
	paths, err := filepath.Glob("testdata/*.txt")
	must.OK(t, err)
	withStore, err := filepath.Glob("testdata/store/*.txt")
	must.OK(t, err)
	paths = append(paths, withStore...)
	store := startStore(t)
	set := map[string][]string{} // the scripts that set a variable
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must.OK(t, err)
		for _, line := range regexp.MustCompile("(?m)^variables (.*)$").FindAllSubmatch(text, -1) {
			for _, m := range regexp.MustCompile(`([A-Z_]+)=`).FindAllSubmatch(line[1], -1) {
				if name := string(m[1]); !slices.Contains(set[name], path) {
					set[name] = append(set[name], path)
				}
			}
		}
	}
	var scripts errgroup.Group
	scripts.SetLimit(8) // they mostly wait for a timeout
	for v := range environment.All() {
		if !v.Supported() {
			continue
		}
		scripts.Go(func() error {
			named := false
			for name, paths := range set {
				if !namePattern(v).MatchString(name) {
					continue
				}
				named = true
				for _, path := range paths {
					if testing.Short() || failsWithout(store, path, name) {
						return nil
					}
				}
			}
			t.Errorf("no script fails without %s (set by a script: %v)", v.Name, named)
			return nil
		})
	}
	if err := scripts.Wait(); err != nil {
		t.Error(err)
	}
}

// failsWithout reports whether a script fails without a variable.
func failsWithout(store *storetest.Server, path, name string) bool {
	p := scripts(name)
	if filepath.Base(filepath.Dir(path)) == "store" {
		p = storeScripts(store, name)
	}
	p.Dir, p.Files, p.UpdateScripts = "", []string{path}, false
	var all silentT
	all.Run("", func(t testscript.T) { testscript.RunT(t, p) })
	return all.failed
}

// silentT is a test that records its failure without reporting it.
type silentT struct {
	failed bool
	log    bytes.Buffer
}

func (q *silentT) Run(_ string, f func(testscript.T)) {
	var sub silentT
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(&sub)
	}()
	<-done
	q.failed = q.failed || sub.failed
}

func (q *silentT) FailNow() {
	q.failed = true
	runtime.Goexit()
}

func (q *silentT) Fatal(args ...any) {
	q.Log(args...)
	q.FailNow()
}

func (q *silentT) Log(args ...any) { fmt.Fprintln(&q.log, args...) }
func (*silentT) Skip(...any)       { runtime.Goexit() }
func (*silentT) Parallel()         {}
func (*silentT) Verbose() bool     { return false }

// namePattern returns a pattern of the names of v, which may contain placeholders.
func namePattern(v *environment.Variable) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.NewReplacer("<NAME>", `\w+`, "*", `\w+`).Replace(v.Name) + "$")
}
