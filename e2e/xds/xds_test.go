package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/store/storetest"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, "../..", func(path, _ string) { binary = path }))
}

const patience = suite.Patience

func startManagement(t *testing.T, o adstest.Options) *adstest.Server {
	t.Helper()
	s, err := adstest.Start(o)
	must.OK(t, err)
	t.Cleanup(s.Stop)
	return s
}

func set(t *testing.T, s *adstest.Server, version string, resources ...*pb.RateLimitConfig) {
	t.Helper()
	must.OK(t, s.Set(version, resources...))
}

func await(t *testing.T, s *adstest.Server, match func(adstest.Request) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Wait(ctx, match); err != nil {
		t.Fatal(err)
	}
}

// service is a running sluice and a connection to it.
type service struct {
	*sluice.Sluice

	t      *testing.T
	client rls.RateLimitServiceClient
}

// fastRetries are flags for short retry intervals.
var fastRetries = []string{
	"--CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=10ms", "--XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10ms", "--XDS_CLIENT_BACKOFF_MAX_INTERVAL=10ms",
}

func serve(t *testing.T, args ...string) *service {
	t.Helper()
	s := suite.StartSluice(t, sluice.Options{Binary: binary, Args: append(args, fastRetries...)})
	conn, err := grpc.NewClient("passthrough:///"+s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &service{s, t, rls.NewRateLimitServiceClient(conn)}
}

// hit sends a hit of a user in domain d. It returns the code, or the error, and the remaining hits.
func (s *service) hit(user string) (string, uint32) {
	s.t.Helper()
	reply, err := s.client.ShouldRateLimit(s.t.Context(), &rls.RateLimitRequest{
		Domain:      "d",
		Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}},
	})
	if err != nil {
		return err.Error(), 0
	}
	return reply.GetOverallCode().String(), reply.GetStatuses()[0].GetLimitRemaining()
}

func (s *service) expect(user, code string, remaining uint32) {
	s.t.Helper()
	if got, left := s.hit(user); !strings.Contains(got, code) || left != remaining {
		s.t.Errorf("answer is %s with %d left, want %s with %d", got, left, code, remaining)
	}
}

func (s *service) awaitLog(part string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	must.OK(s.t, s.WaitLine(ctx, func(line string) bool { return strings.Contains(line, part) }))
}

func domain(perYear uint32) *pb.RateLimitConfig {
	return &pb.RateLimitConfig{Name: "d", Domain: "d", Descriptors: []*pb.RateLimitDescriptor{{
		Key: "user", RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_YEAR, RequestsPerUnit: perYear},
	}}}
}

// TestRulesSurviveServerRestart stops the management server and starts another one. Rules and
// counters are kept.
func TestRulesSurviveServerRestart(t *testing.T) {
	m := startManagement(t, adstest.Options{Addr: storetest.FreeAddress(t)})
	set(t, m, "1", domain(3))
	s := serve(t, "--xds-addr", m.Addr())
	s.expect("a", "OK", 2)
	s.expect("a", "OK", 1)
	m.Stop()
	s.awaitLog("not connected to the management server; keeping the current rules")
	s.expect("a", "OK", 0)
	if got := suite.Metrics(s.t, s.Sluice).Sum("sluice_xds_connected"); got != 0 {
		t.Errorf("sluice_xds_connected is %v, want 0", got)
	}
	m = startManagement(t, adstest.Options{Addr: m.Addr()})
	set(t, m, "2", domain(5))
	await(t, m, adstest.Acked("2"))
	s.expect("a", "OK", 1)
	if got := suite.Metrics(s.t, s.Sluice).Sum("sluice_xds_connected"); got != 1 {
		t.Errorf("sluice_xds_connected is %v, want 1", got)
	}

	bad := domain(9)
	bad.Descriptors[0].RateLimit.Unit = pb.RateLimitUnit_UNKNOWN
	set(t, m, "3", bad)
	await(t, m, adstest.Rejected)
	s.awaitLog(`xds:d: error: domain \"d\" > key \"user\" > rate_limit: unknown unit 0`)
	s.expect("a", "OK", 0)
	if got := suite.Metrics(s.t, s.Sluice).Sum("sluice_xds_updates_total", `result="ack"`); got != 2 {
		t.Errorf("%v ACKs, want 2", got)
	}
	if got := suite.Metrics(s.t, s.Sluice).Sum("sluice_config_last_load_successful"); got != 0 {
		t.Errorf("the last load was successful: %v, want 0", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if code, err := s.Stop(ctx); code != 0 || err != nil {
		t.Errorf("sluice exited with %d, %v, want 0", code, err)
	}
}

// TestBadFirstRules checks --on-bad-start.
func TestBadFirstRules(t *testing.T) {
	m := startManagement(t, adstest.Options{})
	bad := domain(1)
	bad.Domain = ""
	set(t, m, "1", bad)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := sluice.Start(ctx, sluice.Options{Binary: binary, Args: append([]string{"--xds-addr", m.Addr()}, fastRetries...)})
	if err == nil || !strings.Contains(err.Error(), "xds:d: error: the domain is empty") || !strings.Contains(err.Error(), "--on-bad-start=serve") {
		t.Errorf("the start failed with %v, want the reason and a remedy", err)
	}
	s := serve(t, "--xds-addr", m.Addr(), "--on-bad-start=serve")
	s.expect("a", "no rate limit configuration loaded", 0)
	set(t, m, "2", domain(3))
	await(t, m, adstest.Acked("2"))
	s.expect("a", "OK", 2)
}

// TestDefaultsOverXDS starts without rules, receives an empty set first, and then rules. The
// defaults apply to them as to rules in files.
func TestDefaultsOverXDS(t *testing.T) {
	dir := t.TempDir()
	defaults, rules := filepath.Join(dir, "defaults.yaml"), filepath.Join(dir, "rules.yaml")
	for file, text := range map[string]string{
		defaults: "domain: '*'\ndefaults: [{rate_limit: {algorithm: sliding_window}}]\n",
		rules:    "domain: d\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 3}}]\n",
	} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	files := serve(t, "--config", rules, "--defaults", defaults)
	files.expect("a", "OK", 2)
	m := startManagement(t, adstest.Options{})
	over := serve(t, "--xds-addr", m.Addr(), "--defaults", defaults, "--start-without-rules")
	over.expect("a", "no rate limit configuration loaded", 0)
	set(t, m, "1")
	await(t, m, adstest.Acked("1"))
	over.expect("a", "OK", 0)
	set(t, m, "2", domain(3))
	await(t, m, adstest.Acked("2"))
	over.expect("a", "OK", 2)
	// Changes of the defaults file are applied.
	must.OK(t, os.WriteFile(defaults, []byte("domain: d\nexempt: [{key: user, values: [c]}]\ndefaults: [{rate_limit: {algorithm: token_bucket, burst: 7}}]\n"), 0o600))
	waitUntil(t, func() bool { _, left := over.hit("b"); return left > 3 })
	over.expect("c", "OK", 0) // exempt, so there is no number
}

// TestTLS uses mutual TLS, and replaces all certificates and authorities on both sides while sluice
// runs.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	// secure creates an authority, returns credentials of a server and writes those of a client to
	// dir.
	secure := func(name string) credentials.TransportCredentials {
		authority, err := testcert.New(name)
		must.OK(t, err)
		pair, err := authority.Issue(testcert.Leaf{Names: []string{"manager.test"}})
		must.OK(t, err)
		own, err := authority.Issue(testcert.Leaf{Names: []string{"sluice.test"}})
		must.OK(t, err)
		if _, err := testcert.Mount(dir, own, authority.PEM); err != nil {
			t.Fatal(err)
		}
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		must.OK(t, err)
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM(authority.PEM)
		return credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		})
	}
	m := startManagement(t, adstest.Options{Addr: storetest.FreeAddress(t), Credentials: secure("old")})
	set(t, m, "1", domain(3))
	files := testcert.PathsIn(dir)
	s := serve(t, "--xds-addr", m.Addr(), "--xds-tls", "--xds-san", "manager.test",
		"--xds-ca", files.CA, "--xds-cert", files.Cert, "--xds-key", files.Key)
	s.expect("a", "OK", 2)
	m.Stop()
	m = startManagement(t, adstest.Options{Addr: m.Addr(), Credentials: secure("new")})
	set(t, m, "2", domain(5))
	await(t, m, adstest.Acked("2"))
	s.expect("a", "OK", 3)
}

// TestSignalWhileWaiting stops sluice before it has rules.
func TestSignalWhileWaiting(t *testing.T) {
	m := startManagement(t, adstest.Options{}) // without resources
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	off := map[string]string{"grpc": "", "http": "", "debug": "", "metrics": ""}
	s, err := sluice.Start(ctx, sluice.Options{Binary: binary, Args: []string{"--xds-addr", m.Addr()}, Addrs: off})
	must.OK(t, err)
	t.Cleanup(s.Kill)
	await(t, m, func(adstest.Request) bool { return true })
	must.OK(t, s.Signal(syscall.SIGTERM))
	if code, err := s.Wait(ctx); code != 0 || err != nil {
		t.Errorf("sluice exited with %d, %v, want 0; its log:\n%s", code, err, s.Log())
	}
}

func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	t.Fatal("timed out waiting for the condition")
}
