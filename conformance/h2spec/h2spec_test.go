// Package h2spec runs h2spec, a conformance suite for HTTP/2 and HPACK, with the built-in
// transport.
package h2spec

import (
	"bufio"
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// cases is the number of cases of h2spec 2.2.1 in strict mode.
const cases = 146

// TestBuiltinTransport runs all of h2spec against the binary. No case may fail or be skipped.
func TestBuiltinTransport(t *testing.T) {
	host, port, err := net.SplitHostPort(start(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{
		Host: host, Path: "/", Strict: true, MaxHeaderLen: 4000,
		Timeout: 3 * time.Minute, // only failing cases wait this long
	}
	if c.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(c)
		passed += group.PassedCount
		report(t, group)
	}
	if passed != cases {
		t.Errorf("%d cases passed, want %d", passed, cases)
	}
}

// report fails the test for each case of a group that did not pass.
func report(t *testing.T, group *spec.TestGroup) {
	t.Helper()
	for _, tc := range append(group.Tests, group.StrictTests...) {
		switch r := tc.Result; {
		case r == nil:
			t.Errorf("%s: %q did not run", group.ID(), tc.Desc)
		case r.Failed, r.Skipped:
			t.Errorf("%s: %q: failed %v, skipped %v: %v", group.ID(), tc.Desc, r.Failed, r.Skipped, r.Error)
		}
	}
	for _, g := range group.Groups {
		report(t, g)
	}
}

// start runs sluice without rules until the test ends, and returns the address of its gRPC
// listener.
func start(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sluice")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/sluice")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build sluice: %v:\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary, "serve", "--config", t.TempDir(), "--allow-empty", "--grpc-transport", "builtin", "--log-format", "json",
		"--grpc-addr", "127.0.0.1:0", "--http-addr", "", "--debug-addr", "", "--metrics-addr", "")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context stops it
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct {
			Message string `json:"@message"`
			Addr    string `json:"addr"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "listening" {
			go func() { // read the log, so that sluice does not block
				for lines.Scan() {
				}
			}()
			return line.Addr
		}
	}
	t.Fatal("sluice exited before it listened")
	return ""
}
