package clients_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// requireTool returns the path of an HTTP/2 tool. It skips the test, with a note, if it is not
// installed.
func requireTool(t *testing.T, name, debian string) string {
	t.Helper()
	effort.Require(t, effort.All)
	path, err := exec.LookPath(name)
	if err != nil {
		suite.Skip(t, name+" is not installed (Debian, Ubuntu: apt-get install "+debian+")")
	}
	return path
}

// grpcBody writes a request as a gRPC message to a file.
func grpcBody(t *testing.T, request *rls.RateLimitRequest) string {
	t.Helper()
	message, err := proto.Marshal(request)
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "request")
	prefixed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	must.OK(t, os.WriteFile(path, prefixed, 0o600))
	return path
}

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// TestCurl makes single calls; curl prints trailers like headers.
func TestCurl(t *testing.T) {
	curl := requireTool(t, "curl", "curl")
	forEachTransport(t, func(t *testing.T, limits *sluice.Sluice, authority string) {
		t.Helper()
		url, secure := "http://"+limits.Addr("grpc"), []string{"--http2-prior-knowledge"}
		if authority != "" {
			url, secure = "https://"+limits.Addr("grpc"), []string{"--cacert", authority}
		}
		for _, tt := range []struct {
			name string
			args []string
			want string // expected line in the headers or trailers
		}{
			{"one", []string{"--data-binary", "@" + grpcBody(t, request("user", "one", 1))}, "grpc-status: 0"},
			{"50 KiB of metadata", []string{"-H", "x-large: " + strings.Repeat("m", 50<<10), "--data-binary", "@" + grpcBody(t, request("user", "metadata", 1))}, "grpc-status: 0"},
			{"held", []string{"--data-binary", "@" + grpcBody(t, request("held", "one", 500))}, "grpc-status: 0"},
			// Without bodies: curl 7.88 reports an error if the stream ends before it has sent
			// everything.
			{"unknown method", []string{"-X", "POST", url + "/a.B/C"}, "grpc-status: 12"},
			{"no gRPC", []string{"-X", "POST", "-H", "content-type: text/plain"}, "HTTP/2 415"},
			{"GET", []string{"-G"}, "HTTP/2 405"},
		} {
			args := append([]string{"--silent", "--show-error", "--max-time", "60", "--output", os.DevNull, "--dump-header", "-"}, secure...)
			args = append(args, "-H", "te: trailers")
			if tt.name != "no gRPC" {
				args = append(args, "-H", "content-type: application/grpc")
			}
			args = append(args, tt.args...)
			if tt.name != "unknown method" {
				args = append(args, url+method)
			}
			out, err := exec.Command(curl, args...).CombinedOutput()
			if err != nil || !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(tt.want)+`\s*$`).Match(out) {
				t.Errorf("%s: %v, want %q:\n%s", tt.name, err, tt.want, out)
			}
		}
	})
}

// TestH2load makes the maximum number of concurrent calls with nghttp2, the codec that Envoy also
// uses.
func TestH2load(t *testing.T) {
	h2load := requireTool(t, "h2load", "nghttp2-client")
	forEachTransport(t, func(t *testing.T, limits *sluice.Sluice, authority string) {
		t.Helper()
		scheme := "http://"
		if authority != "" {
			scheme = "https://"
		}
		for _, n := range []int{1, 1000, 2000, 10_000} {
			before := metricSum(t, limits, "ratelimit_service_response_time_seconds_count")
			out, err := exec.Command(h2load, "-n", strconv.Itoa(n), "-c", "1", "-m", "10000", "-d", grpcBody(t, request("user", strconv.Itoa(n), 1)),
				"-H", "content-type: application/grpc", "-H", "te: trailers", scheme+limits.Addr("grpc")+method).CombinedOutput()
			if want := strconv.Itoa(n) + " 2xx,"; err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%d calls: %v, want %q:\n%s", n, err, want, out)
			}
			if got := metricSum(t, limits, "ratelimit_service_response_time_seconds_count") - before; got != float64(n) {
				t.Errorf("%v calls were counted, want %d", got, n)
			}
		}
	})
}
