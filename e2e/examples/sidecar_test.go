package examples_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/rate_limit_descriptors/expr/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// TestIstioSidecar runs the command of the README for sidecars, applies its output to the configuration of a sidecar,
// and sends requests with tokens over mutual TLS.
func TestIstioSidecar(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "examples", "istio", "README.md"))
	must.OK(t, err)
	rules := regexp.MustCompile("(?ms)^```yaml\n(domain: mesh\n.*?)^```").FindSubmatch(readme)
	command := regexp.MustCompile(`(?m)^    sluice (envoy snippet .*) >sidecar.yaml$`).FindSubmatch(readme)
	if rules == nil || command == nil {
		t.Fatal("the README has no rules or no command for sidecars")
	}
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "mesh.yaml"), rules[1], 0o600))
	run := exec.CommandContext(t.Context(), sluiceBinary, strings.Fields(string(command[1]))...)
	run.Dir = dir
	snippet, err := run.Output()
	must.OK(t, err)
	filled := strings.NewReplacer(
		"namespace: CHANGE-ME", "namespace: shop", "app: CHANGE-ME", "app: shop",
		"address: CHANGE-ME", "address: sluice.sluice.svc.cluster.local", "|http|CHANGE-ME", "|http|8080",
	).Replace(string(snippet))
	must.OK(t, os.WriteFile(filepath.Join(dir, "sidecar.yaml"), []byte(filled), 0o600))
	check := exec.CommandContext(t.Context(), sluiceBinary, "envoy", "check", "sidecar.yaml", "-c", "mesh.yaml", "--strict")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("envoy check: %v\n%s", err, out)
	}

	authority, err := testcert.New("mesh")
	must.OK(t, err)
	issue := func(account string) testcert.Pair {
		pair, err := authority.Issue(testcert.Leaf{Names: []string{"spiffe://cluster.local/ns/default/sa/" + account}})
		must.OK(t, err)
		return pair
	}
	certs := filepath.Join(dir, "certs")
	must.OK(t, os.Mkdir(certs, 0o700))
	files, err := testcert.Mount(certs, issue("shop"), authority.PEM)
	must.OK(t, err)
	text, err := os.ReadFile(filepath.Join("testdata", "istio-sidecar.yaml"))
	must.OK(t, err)
	text = bytes.ReplaceAll(text, []byte("filename: CERT"), []byte("filename: "+files.Cert))
	text = bytes.ReplaceAll(text, []byte("filename: KEY"), []byte("filename: "+files.Key))
	text = bytes.ReplaceAll(text, []byte("filename: CA"), []byte("filename: "+files.CA))
	var config object
	must.OK(t, yaml.Unmarshal(text, &config))
	config, err = applyPatches(config, []byte(filled), "SIDECAR_INBOUND")
	must.OK(t, err)

	web, batch := meshClient(t, issue("web")), meshClient(t, issue("batch"))
	runScenario(t, time.Hour, func(ctx context.Context, s *session) []string {
		if err := s.startSluice(ctx, []string{"-c", filepath.Join(dir, "mesh.yaml")}); err != nil {
			return []string{err.Error()}
		}
		endpoints := map[string]string{"sluice.sluice.svc.cluster.local:8081": s.sluices[0].Addr("grpc")}
		if err := s.runEnvoy(ctx, t, config, endpoints); err != nil {
			return []string{err.Error()}
		}
		for i, step := range []struct {
			client *http.Client
			user   string
			times  int
			want   int
		}{
			{web, "alice", 5, 200}, {web, "alice", 1, 429}, // 5 for each user
			{web, "bob", 4, 200}, {web, "bob", 1, 429}, // 10 for each caller, denied requests included
			{web, "", 1, 429}, // without a token
			{batch, "carol", 1, 200}, {batch, "alice", 1, 429},
		} {
			for range step.times {
				if got := statusOf(ctx, t, step.client, s.envoy.Addr("virtualInbound"), step.user); got != step.want {
					return []string{fmt.Sprintf("step %d: a request of %q has status %d, want %d", i, step.user, got, step.want)}
				}
			}
		}
		return nil
	})
}

// meshClient returns a client that presents a certificate.
func meshClient(t *testing.T, pair testcert.Pair) *http.Client {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.OK(t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates:       []tls.Certificate{certificate},
		InsecureSkipVerify: true, // the proxy's certificate has no address, as in a mesh
	}}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// statusOf returns the status of a request with the token of a user, or without a token if user is empty.
func statusOf(ctx context.Context, t *testing.T, client *http.Client, addr, user string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+"/", http.NoBody)
	must.OK(t, err)
	if user != "" {
		request.Header.Set("Authorization", "Bearer "+token(user))
	}
	response, err := client.Do(request)
	must.OK(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	must.OK(t, err)
	must.OK(t, response.Body.Close())
	return response.StatusCode
}

// token returns a token that testdata/istio-sidecar.yaml accepts.
func token(user string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","kid":"example"}`)) + "." + encode([]byte(`{"iss":"https://issuer.example.com","sub":"`+user+`"}`))
	mac := hmac.New(sha256.New, []byte("the key of an example; never use it"))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}
