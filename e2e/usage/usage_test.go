//go:build more

package usage_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const root = "../.."

var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// get requests a path with the given headers in the form name: value.
func get(t *testing.T, addr, path string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	must.OK(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	reply, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	must.OK(t, err)
	return reply.StatusCode, string(body)
}

// token returns a token of the example's issuer.
func token(claims map[string]any) string {
	claims["iss"] = "https://accounts.example.com"
	payload, _ := json.Marshal(claims)
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT","kid":"example"}`)) + "." + encode(payload)
	mac := hmac.New(sha256.New, []byte("the key of an example; never use it"))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

const forgedRules = `domain: usage
descriptors:
  - key: user
    rate_limits:
      - { name: own, unit: year, unit_multiplier: 8, requests_per_unit: 1000, notify_at: 0.007 }
      - { name: included, unit: year, unit_multiplier: 8, requests_per_unit: 5, soft: true }
  - key: org
    rate_limit: { name: org, unit: year, unit_multiplier: 8, requests_per_unit: 1000 }
---
domain: other
descriptors:
  - key: user
    rate_limit: { name: other, unit: year, requests_per_unit: 1000 }
`

// TestForgedHeaders has a client with a token of its own who asks for the usage of alice, whose hits
// reach a share of a limit.
func TestForgedHeaders(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(root, "examples/usage/envoy.yaml"))
	must.OK(t, err)
	args := []string{"--config", suite.WriteRules(t, forgedRules), "--usage"}
	s := suite.StartSluice(t, sluice.Options{Binary: sluiceBinary, Args: args})
	e := suite.StartEnvoy(t, root, envoy.Options{
		Bootstrap: config, Patient: true,
		Clusters: map[string][]string{"sluice": {s.Addr("grpc")}, "sluice-http": {s.Addr("http")}},
	})
	addr := e.Addr("ingress")
	alice := "authorization: Bearer " + token(map[string]any{"sub": "alice", "org": "acme"})
	for range 7 {
		if status, body := get(t, addr, "/", alice); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
	}
	if _, body := get(t, addr, "/usage", alice); strings.Count(body, `"used":7,`) != 3 {
		t.Fatalf("usage of alice: %s", body)
	}
	suite.Eventually(t, "alice's limit has a notice", func() bool { return strings.Count(s.Log(), "limit_notice") == 1 })
	attacks := 0
	check := func(what string, status int, body string) {
		attacks++
		if strings.Contains(body, `"used":7,`) || strings.Contains(body, `"other"`) {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	mallory := token(map[string]any{"sub": "mallory", "org": "evil"})
	for _, forged := range []string{
		"x-sluice-descriptor: user=alice", "X-SLUICE-DESCRIPTOR: user=alice\r\nx-sluice-descriptor: org=acme",
		"x_sluice_descriptor: user=alice", "x-sluice-domain: other", "x-sluice-domain: usage\r\nx-sluice-descriptor: &user=alice",
		"Connection: x-sluice-descriptor", "Connection: x-sluice-domain\r\nx-sluice-domain: other", "Connection: close, x-sluice-descriptor",
		"x-envoy-original-path: /usage", "x-forwarded-for: 10.0.0.1", "x-http-method-override: GET",
		"x-sluice-descriptor : user=alice", "x-sluice-descriptor:user=alice\r\n user=alice", "x-sluice-descriptor: " + strings.Repeat("a", 20000),
		"transfer-encoding: chunked\r\ntrailer: x-sluice-descriptor",
	} {
		for _, path := range []string{"/usage", "/usage?x-sluice-descriptor=user=alice", "//usage", "/%75sage", "/a/../usage", "/usage/", "/usage;user=alice"} {
			end := "\r\n"
			if strings.Contains(forged, "chunked") {
				end = "\r\n0\r\nx-sluice-descriptor: user=alice\r\n\r\n"
			}
			text := fmt.Sprintf("GET %s HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %s\r\n%s\r\n%s", path, mallory, forged, end)
			status, body := raw(t, addr, text)
			check(fmt.Sprintf("%.80q %s", forged, path), status, body)
		}
	}
	for _, sub := range []any{
		"m\r\nx-sluice-descriptor: user=alice", "m\nx-sluice-descriptor: user=alice", "m\rx-sluice-descriptor: user=alice",
		"m\x00", "al\x00ice", "m&user=alice", "m, user=alice", "user=alice", "=alice", "&user=alice",
		"alice ", "alice\t", "alice\" ", `alice" `, "alice\u00a0", "alice\u2028",
		"", nil, 7,
		[]string{"alice"},
		"%REQ(x-user)%", "ALICE", strings.Repeat("m", 20000),
	} {
		claims := map[string]any{"sub": sub, "org": "evil"}
		if sub == nil {
			delete(claims, "sub")
		}
		bearer := "authorization: Bearer " + token(claims)
		status, body := get(t, addr, "/usage", bearer, "x-user: alice", "x-sluice-descriptor: user=alice")
		check(fmt.Sprintf("claim %.80q", fmt.Sprint(sub)), status, body)
	}
	if _, body := get(t, addr, "/usage", alice); strings.Count(body, `"used":7,`) != 3 {
		t.Errorf("usage of alice after %d attacks: %s", attacks, body)
	}
}

// raw sends bytes and returns the first response.
func raw(t *testing.T, addr, text string) (int, string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	must.OK(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(text))
	must.OK(t, err)
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer reply.Body.Close()
	body := make([]byte, 1<<16)
	n, _ := reply.Body.Read(body)
	return reply.StatusCode, string(body[:n])
}
