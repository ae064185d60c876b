// Package h2spec runs h2spec, a conformance suite for HTTP/2 and HPACK, with the built-in
// transport.
package h2spec

import (
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// cases is the number of cases of h2spec 2.2.1 in strict mode.
const cases = 146

// TestBuiltinTransport runs all of h2spec against the binary. No case may fail or be skipped.
func TestBuiltinTransport(t *testing.T) {
	binary, err := sluice.Build(t.Context(), filepath.Join("..", ".."), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := sluice.Start(t.Context(), sluice.Options{
		Binary: binary,
		Args:   []string{"--config", t.TempDir(), "--allow-empty", "--grpc-transport", "builtin"},
		Addrs:  map[string]string{"http": "", "debug": "", "metrics": ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	host, port, err := net.SplitHostPort(s.Addr("grpc"))
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
