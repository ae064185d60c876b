//go:build more

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestScriptsSeeEachVariable verifies that each supported variable is set by a script that fails
// without it. The script may fail because a wait of 3 seconds ends without success.
func TestScriptsSeeEachVariable(t *testing.T) {
	effort.Require(t, effort.More)
	waitLimit = 3 * time.Second
	t.Cleanup(func() { waitLimit = 0 })
	store, set := startStore(t), scriptsThatSet(t)
	var running errgroup.Group
	running.SetLimit(8) // they mostly wait
	for v := range environment.All() {
		if !v.Supported() {
			continue
		}
		running.Go(func() error {
			for _, name := range namesOf(v, set) {
				for _, path := range set[name] {
					if failsWithout(t, store, path, name) {
						return nil
					}
				}
			}
			t.Errorf("no script fails without %s", v.Name)
			return nil
		})
	}
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
}

// failsWithout reports whether a script fails without a variable.
func failsWithout(tb testing.TB, store *storetest.Server, path, name string) bool {
	tb.Helper()
	p := scripts(tb, name)
	if filepath.Base(filepath.Dir(path)) == "store" {
		p = storeScripts(tb, store, name)
	}
	p.Dir, p.Files, p.UpdateScripts = "", []string{path}, false
	p.Deadline = time.Now().Add(10 * waitLimit)
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
