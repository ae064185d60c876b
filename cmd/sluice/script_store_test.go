//go:build more

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestStoreScripts runs testdata/store/*.txt with a server of Redis or Valkey. Its default user may
// read all keys, and write keys that start with open:. The user sluice, with the password
// a-secret-word, may write all. In addition to the commands of [TestScripts] these scripts have:
//
//	store COMMAND...    send a command to the server and print the reply
//	retry COMMAND...    run a command until it succeeds
//	retrymatch REGEXP COMMAND...
//	                    run a command until it succeeds and its output matches
//	haslogged REGEXP    wait until the log has a line that matches
//
// $store is the server's address and $socket its Unix socket. $second, $minute, $hour, $day, $week,
// $month and $year are the starts of the current windows, in Unix seconds, when the script starts.
func TestStoreScripts(t *testing.T) {
	testscript.Run(t, storeScripts(t))
}

// storeScripts starts a store and returns the parameters of its scripts.
func storeScripts(tb testing.TB) testscript.Params {
	tb.Helper()
	dir, err := os.MkdirTemp("", "store") //nolint:usetesting // the path of a socket must be short
	must.OK(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := storetest.Start(tb, "--unixsocket", filepath.Join(dir, "store.sock"))
	s.Must("ACL", "SETUSER", "sluice", "on", ">a-secret-word", "~*", "+@all")
	s.Must("ACL", "SETUSER", "default", "resetkeys", "~open:*", "%R~*")
	p := scripts(tb)
	p.Dir = "testdata/store"
	p.Cmds["store"] = func(ts *testscript.TestScript, _ bool, args []string) {
		reply, err := s.Command(args...)
		ts.Check(err)
		_, err = fmt.Fprintln(ts.Stdout(), reply)
		ts.Check(err)
	}
	p.Cmds["retry"] = func(ts *testscript.TestScript, _ bool, args []string) {
		waitForOutput(ts, regexp.MustCompile(""), args)
	}
	p.Cmds["retrymatch"] = func(ts *testscript.TestScript, _ bool, args []string) {
		waitForOutput(ts, regexp.MustCompile(args[0]), args[1:])
	}
	p.Cmds["haslogged"] = func(ts *testscript.TestScript, _ bool, args []string) {
		re := regexp.MustCompile(args[0])
		if p := runningServer(ts); !re.MatchString(p.log.String()) {
			p.next(ts, re)
		}
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		defer env.Setenv(storeStartTimeoutVariable, "") // the default, as the store is available
		env.Setenv("store", s.Addr)
		env.Setenv("socket", filepath.Join(dir, "store.sock"))
		for name, seconds := range map[string]int64{
			"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000,
		} {
			env.Setenv(name, strconv.FormatInt(time.Now().Unix()/seconds*seconds, 10))
		}
		return setup(env)
	}
	return p
}

// waitForOutput runs a command until it succeeds and its output matches.
func waitForOutput(ts *testscript.TestScript, output *regexp.Regexp, args []string) {
	for ts.Exec(args[0], args[1:]...) != nil || !output.MatchString(ts.ReadFile("stdout")) {
		time.Sleep(pollInterval)
	}
}
