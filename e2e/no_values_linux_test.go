package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestDeniedValuesLeaveMemory searches the memory of sluice for a value in denied requests. With
// --top-keys=clear the value is stored, which proves the search. With hashed, the default, and with
// off it must be absent.
//
// Garbage would stay in memory until it is reused, so GODEBUG=clobberfree=1 has the garbage
// collector overwrite it. Before the search the client disconnects, and other clients send more
// data through the reused buffers.
//
// The test excludes two kinds of unreferenced memory that stay for a random time: the stacks of
// ended goroutines, and therefore parts of 32 bytes or less and the input of SHA-256 for a store;
// and the buffer of an open connection, which contains its last requests.
func TestDeniedValuesLeaveMemory(t *testing.T) {
	for mode, want := range map[string]bool{"clear": true, "hashed": false, "off": false} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(`
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: user, value: "other-*", rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: ring, rate_limit: {unit: year, requests_per_unit: 2, algorithm: sliding_window}}
`), 0o600); err != nil {
				t.Fatal(err)
			}
			s := suite.StartSluice(t, sluice.Options{
				Binary: programs.sluice, Dir: dir, Args: []string{"--top-keys", mode, "--counter-memory", "4MiB", "--config", "rules.yaml"},
				Env: []string{"GODEBUG=clobberfree=1"},
			})
			if _, err := process.FindInMemory(s.PID(), []byte("domain")); os.IsPermission(err) {
				why := fmt.Sprintf("the search of a process's memory for values: %v", err)
				if os.Getenv("CI") != "" {
					t.Fatal(why)
				}
				suite.Skip(t, why)
			} else if err != nil {
				t.Fatal(err)
			}
			marker := rand.Text() + rand.Text()
			send(t, s, marker, 40)
			for range 3 {
				send(t, s, "other-"+rand.Text()+rand.Text(), 40)
				collectGarbage(t, s)
			}
			places, err := process.FindInMemory(s.PID(), []byte(marker[:35])) // search for a part of the value
			must.OK(t, err)
			if held := len(places) > 0; held != want {
				t.Errorf("the value is in memory %d times, want it stored: %t\n%s", len(places), want, strings.Join(places[:min(5, len(places))], "\n"))
			}
		})
	}
}

// send sends requests with a value, over a new gRPC connection and as JSON.
func send(t *testing.T, s *sluice.Sluice, value string, requests int) {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	defer conn.Close()
	client := rls.NewRateLimitServiceClient(conn)
	descriptor := func(key, value string) *common.RateLimitDescriptor {
		return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
	}
	for i := range requests {
		_, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			descriptor("user", value), descriptor("ring", value), descriptor("none", value), descriptor("user", strings.Repeat(value, 1+20*(i%3))),
		}})
		must.OK(t, err)
		body := fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":%q}]}]}`, value)
		sendHTTP(t, http.MethodPost, "http://"+s.Addr("http")+"/json", body)
	}
}

// collectGarbage runs the garbage collector twice, because pools keep their contents for one
// collection.
func collectGarbage(t *testing.T, s *sluice.Sluice) {
	t.Helper()
	for range 3 {
		sendHTTP(t, http.MethodGet, "http://"+s.Addr("debug")+"/debug/pprof/heap?gc=1", "")
	}
}

func sendHTTP(t *testing.T, method, url, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, strings.NewReader(body))
	must.OK(t, err)
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
}
