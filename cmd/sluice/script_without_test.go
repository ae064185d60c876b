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

// TestScriptsSeeEachVariable holds that each supported variable is set by a script
// that fails without it. With -short the scripts are not run, only read.
func TestScriptsSeeEachVariable(t *testing.T) {
	long := patience
	patience = 3 * time.Second // what a script waits for does not come without it
	t.Cleanup(func() { patience = long })
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
	scripts.SetLimit(8) // nearly all they do is wait for what does not come
	for v := range environment.All() {
		if !v.Supported() {
			continue
		}
		scripts.Go(func() error {
			named := false
			for name, paths := range set {
				if !family(v).MatchString(name) {
					continue
				}
				named = true
				for _, path := range paths {
					if testing.Short() || fails(store, path, name) {
						return nil
					}
				}
			}
			t.Errorf("no script sees %s (set by one: %v)", v.Name, named)
			return nil
		})
	}
	if err := scripts.Wait(); err != nil {
		t.Error(err)
	}
}

// fails reports whether a script fails without a variable.
func fails(store *storetest.Server, path, name string) bool {
	p := scripts(name)
	if filepath.Base(filepath.Dir(path)) == "store" {
		p = storeScripts(store, name)
	}
	p.Dir, p.Files, p.UpdateScripts = "", []string{path}, false
	var all quiet
	all.Run("", func(t testscript.T) { testscript.RunT(t, p) })
	return all.failed
}

// quiet is a test whose failure is what is wanted.
type quiet struct {
	failed bool
	log    bytes.Buffer
}

func (q *quiet) Run(_ string, f func(testscript.T)) {
	var sub quiet
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(&sub)
	}()
	<-done
	q.failed = q.failed || sub.failed
}

func (q *quiet) FailNow() {
	q.failed = true
	runtime.Goexit()
}

func (q *quiet) Fatal(args ...any) {
	q.Log(args...)
	q.FailNow()
}

func (q *quiet) Log(args ...any) { fmt.Fprintln(&q.log, args...) }
func (*quiet) Skip(...any)       { runtime.Goexit() }
func (*quiet) Parallel()         {}
func (*quiet) Verbose() bool     { return false }

// family matches the names that v stands for.
func family(v *environment.Variable) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.NewReplacer("<NAME>", `\w+`, "*", `\w+`).Replace(v.Name) + "$")
}
