package kustomize

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestSidecarsLimit runs the containers of a pod of the sidecar overlays, and sends it the requests in README.md.
func TestSidecarsLimit(t *testing.T) {
	t.Parallel()
	binary := suite.Envoy(t, "..")
	for _, kind := range []string{"unix", "loopback"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := buildObjects(t, combo{overlay: "sidecar-" + kind}.files())
			dir := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			options, err := o.options(o.instances()[0], dir)
			if err != nil {
				t.Fatal(err)
			}
			s, err := sluice.Start(ctx, options)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Kill()
			e, err := envoy.Start(ctx, o.proxyOptions(binary, dir, s))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Kill()
			// If a minute ends during the test, the user gets another 60 requests.
			const attempts = 5
			for attempt := range attempts {
				minute := time.Now().Truncate(time.Minute)
				passed := countAdmitted(ctx, t, "http://"+e.Addr("ingress"), fmt.Sprint("alice", attempt))
				if passed == 60 {
					return
				}
				if attempt == attempts-1 || time.Now().Truncate(time.Minute).Equal(minute) {
					t.Fatalf("%d requests passed before one was denied, want 60", passed)
				}
			}
		})
	}
}

// countAdmitted sends requests of a user until one is denied, and returns the number of admitted requests. It checks
// that each response has the policy.
func countAdmitted(ctx context.Context, t *testing.T, url, user string) (n int) {
	t.Helper()
	for ; ; n++ {
		response := sendRequest(ctx, t, url, user)
		const policy = `60, 60;w=60;name="per-user", 100;w=1;name="per-address"`
		if got := response.Header.Get("x-ratelimit-limit"); got != policy {
			t.Fatalf("request %d: x-ratelimit-limit is %s, want %s", n+1, got, policy)
		}
		switch response.StatusCode {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return n
		default:
			t.Fatalf("request %d: %s, want 200 or 429", n+1, response.Status)
		}
	}
}

// TestSidecarPortsAreDocumented checks that components/sidecar lists each of sluice's ports in the pod.
func TestSidecarPortsAreDocumented(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for line := range strings.Lines(manifests["components/sidecar/kustomization.yaml"]) {
		if entry, found := strings.CutPrefix(line, "#     "); found {
			named[strings.Fields(entry)[0]] = true
		}
	}
	o := buildObjects(t, combo{overlay: "sidecar-unix"}.files())
	taken := map[string]bool{}
	for _, addr := range o.instances()[0].addrs {
		if !strings.HasPrefix(addr, "unix:") {
			taken[strings.TrimPrefix(addr, ":")] = true
		}
	}
	if !maps.Equal(named, taken) {
		t.Errorf("it lists the ports %v, and sluice uses %v", named, taken)
	}
}

// proxyOptions returns the options of the pod's Envoy for a running sluice.
func (o *objects) proxyOptions(binary, dir string, s *sluice.Sluice) envoy.Options {
	options := envoy.Options{Binary: binary, Dir: dir, Clusters: map[string][]string{}, Patient: true}
	for _, one := range o.all {
		if config, ok := one.(*corev1.ConfigMap); ok && config.Data["envoy.yaml"] != "" {
			options.Bootstrap = []byte(strings.Replace(config.Data["envoy.yaml"], "/run/sluice/grpc.sock", s.Addr("grpc"), 1))
		}
	}
	if !strings.HasPrefix(s.Addr("grpc"), "/") {
		options.Clusters["sluice"] = []string{s.Addr("grpc")}
	}
	return options
}

// get sends a request of a user.
func sendRequest(ctx context.Context, t *testing.T, url, user string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-User", user)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return response
}
