package proxy_test

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// Names in the certificates of examples/tls.
const sluiceName, envoyName = "sluice.example.com", "envoy.example.com"

// rotation contains the Secrets of sluice and Envoy, replaced as Kubernetes does.
type rotation struct {
	sluice, envoy string   // directories of the Secrets
	names         []string // names in Envoy's certificate
	// The previous and the next authority are also trusted, because the other side may be one
	// rotation behind or ahead.
	last, signer, next *testcert.Authority
}

func startRotation(t *testing.T, names ...string) *rotation {
	t.Helper()
	r := &rotation{sluice: t.TempDir(), envoy: t.TempDir(), names: names, signer: authority(t), next: authority(t)}
	r.rotate(t)
	return r
}

func authority(t *testing.T) *testcert.Authority {
	t.Helper()
	a, err := testcert.New(t.Name())
	must.OK(t, err)
	return a
}

// rotate replaces both Secrets and returns the serial number of Envoy's certificate.
func (r *rotation) rotate(t *testing.T) string {
	t.Helper()
	r.last, r.signer, r.next = r.signer, r.next, authority(t)
	var serial string
	for dir, names := range map[string][]string{r.sluice: {sluiceName}, r.envoy: r.names} {
		pair, err := r.signer.Issue(testcert.Leaf{Names: names})
		must.OK(t, err)
		if _, err := testcert.Mount(dir, pair, slices.Concat(r.last.PEM, r.signer.PEM, r.next.PEM)); err != nil {
			t.Fatal(err)
		}
		if dir == r.envoy {
			block, _ := pem.Decode(pair.Cert)
			cert, err := x509.ParseCertificate(block.Bytes)
			must.OK(t, err)
			serial = cert.SerialNumber.Text(16)
		}
	}
	return serial
}

func (r *rotation) flags() []string {
	f := testcert.PathsIn(r.sluice)
	return []string{"--grpc-tls-cert", f.Cert, "--grpc-tls-key", f.Key, "--grpc-client-ca", f.CA}
}

// cluster returns the cluster of examples/tls with the paths of Envoy's files and the name expected
// in sluice's certificate.
func (r *rotation) cluster(t *testing.T, expected string) string {
	t.Helper()
	dir := t.TempDir()
	rewrite := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, "examples", "tls", name))
		must.OK(t, err)
		return strings.NewReplacer("/etc/envoy/tls", r.envoy, "/etc/envoy", dir, sluiceName, expected).Replace(string(text))
	}
	for _, name := range []string{"client.yaml", "authority.yaml"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(rewrite(name)), 0o600))
	}
	return rewrite("cluster.yaml")
}

var userListeners = []listener{{routes: everyUser}}

// TestMutualTLS runs examples/tls. It replaces all certificates and authorities under load until
// none of the first ones is trusted. Connections are closed continuously, which causes new
// handshakes.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	r := startRotation(t, envoyName)
	limits := startSluice(t, sluice.Options{
		Args: append(r.flags(), "--grpc-client-san", envoyName, "--config", suite.WriteRules(t, highLimitRules), "--max-connection-age", "100ms", "--log-level", "debug"),
	})
	p := startProxy(t, userListeners, r.cluster(t, sluiceName), limits)
	got := p.get(t, "/", "x-user: al")
	if limit, _, _ := strings.Cut(got.get("X-Ratelimit-Limit"), ","); got.status != http.StatusOK || limit != "1000000" {
		t.Fatalf("status %d, limit %q, want 200 and 1000000", got.status, limit)
	}
	l := startLoad(t, 4, func() (string, error) {
		got, err := p.getFrom(t.Context(), "ingress", "/", "x-user: al")
		return strconv.Itoa(got.status), err
	})
	for n := range min(effort.Times(t, 2), 4) {
		serial := r.rotate(t)
		suite.Eventually(t, "sluice loads the files", func() bool {
			return metric(t, limits, "sluice_tls_reloads_total", `use="grpc"`) == float64(n+1)
		})
		suite.Eventually(t, "Envoy loads the files", func() bool { return strings.Contains(p.certificates(t), serial) })
		l.awaitAnswers(t, 100)
	}
	if got := slices.Collect(maps.Keys(l.stop())); !slices.Equal(got, []string{"200"}) {
		t.Errorf("answers are %q, want 200 only; log of sluice:\n%s", got, limits.Log())
	}
	if n := metric(t, limits, "sluice_tls_handshake_errors_total"); n != 0 {
		t.Errorf("%v handshakes failed, want none; log of sluice:\n%s", n, limits.Log())
	}
}

// certificates returns Envoy's admin page of its certificates.
func (p *proxy) certificates(t *testing.T) string {
	t.Helper()
	resp, err := p.client.Get("http://" + p.Admin + "/certs")
	must.OK(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.OK(t, err)
	return string(text)
}
