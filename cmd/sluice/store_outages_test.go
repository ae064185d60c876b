//go:build more

package main

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestStoreOutages runs testdata/outages/*.txt, each with its own store, whose address is $store.
// In addition to the commands of [TestScripts] they have:
//
//	store kill|run        kill the store, or start it again without data
//	awaitstatus CODE URL  get a URL until the response has this status
func TestStoreOutages(t *testing.T) {
	files, err := filepath.Glob("testdata/outages/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			srv := storetest.Start(t)
			p := scripts(t)
			p.Dir, p.Files = "", []string{file}
			p.Cmds["store"] = func(ts *testscript.TestScript, _ bool, args []string) {
				switch args[0] {
				case "kill":
					srv.Kill()
				case "run":
					srv.Run()
				default:
					ts.Fatalf("store %s", args[0])
				}
			}
			p.Cmds["awaitstatus"] = awaitStatus
			setup := p.Setup
			p.Setup = func(env *testscript.Env) error {
				defer env.Setenv(storeStartTimeoutVariable, "") // the default
				env.Setenv("store", srv.Addr)
				return setup(env)
			}
			testscript.Run(t, p)
		})
	}
}

// awaitStatus gets a URL until the response has the given status.
func awaitStatus(ts *testscript.TestScript, _ bool, args []string) {
	for {
		response, err := http.Get(args[1])
		if err == nil {
			_ = response.Body.Close()
			if strconv.Itoa(response.StatusCode) == args[0] {
				return
			}
		}
		time.Sleep(pollInterval)
	}
}
