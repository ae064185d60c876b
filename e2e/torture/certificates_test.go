//go:build torture

package torture

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// TestCertificates repeatedly replaces the certificates of sluice and its authorities in a mounted
// Secret while clients connect. No call fails. One update has a key that does not match the
// certificate: the previous pair stays in use, and a metric and the log report it.
func TestCertificates(t *testing.T) {
	Parallel(t)
	const name = "sluice.test"
	rnd := Rand(t)
	ledger := NewLedger(200, 100)
	authority, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	mount := func(dir string, pair testcert.Pair) testcert.Files {
		t.Helper()
		files, err := testcert.Mount(dir, pair, slices.Concat(authority.PEM, other.PEM))
		must.OK(t, err)
		return files
	}
	issue := func() testcert.Pair {
		t.Helper()
		pair, err := authority.Issue(testcert.Leaf{Names: []string{name}})
		must.OK(t, err)
		return pair
	}
	files := mount(dir, issue())
	s := Start(t, Options{Rules: ledger.Rules(), Args: []string{
		"--grpc-tls-cert", files.Cert, "--grpc-tls-key", files.Key, "--grpc-client-ca", files.CA,
		"--max-connection-age", "200ms", "--connection-timeout", "1m", // for a busy machine
	}})
	own := mount(t.TempDir(), issue())
	secure, err := access.ClientTLS(access.TLSOptions{Cert: own.Cert, Key: own.Key, CA: own.CA, PeerName: name})
	must.OK(t, err)
	option := grpc.WithTransportCredentials(secure)
	sum := func(name string) float64 { return suite.Metrics(t, s).Sum(name, `use="grpc"`) }

	// Calls wait for handshakes.
	load := StartLoad(t, LoadOptions{
		Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd, option), Deadline: time.Second,
	})
	load.Run(t, time.Second)
	load.Phase("rotating")
	rotations := Pick(3, 100)
	for n := 1; n <= rotations; n++ {
		other = newAuthority(t)
		mount(dir, issue())
		suite.Eventually(t, "the pair is loaded", func() bool { return sum("sluice_tls_reloads_total") == float64(n) })
	}
	load.Phase("a bad pair")
	good, bad := issue(), issue()
	bad.Key = good.Key
	mount(dir, bad)
	suite.Eventually(t, "the pair is rejected", func() bool { return sum("sluice_tls_reload_errors_total") > 0 })
	if err := s.WaitLine(t.Context(), func(line string) bool {
		return strings.Contains(line, files.Cert) && strings.Contains(line, "does not match")
	}); err != nil {
		t.Error(err)
	}
	load.Run(t, time.Second)
	load.Phase("after")
	mount(dir, good)
	suite.Eventually(t, "the valid pair is loaded", func() bool { return sum("sluice_tls_last_reload_successful") == 1 })
	load.Run(t, time.Second)
	report := load.Stop(t)
	report.AtLeast(t, MinRate, "before", "after")
	report.NoErrors(t, "before", "rotating", "a bad pair", "after")
	ledger.CheckCounters(t, s, option)
	if n := sum("sluice_tls_handshake_errors_total"); n > 0 {
		t.Errorf("%v handshakes failed, want none", n)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 { // three links, ..data and its target
		t.Errorf("the Secret's directory has %v, %v, want five entries", entries, err)
	}
}

func newAuthority(t *testing.T) *testcert.Authority {
	t.Helper()
	a, err := testcert.New(t.Name())
	must.OK(t, err)
	return a
}
