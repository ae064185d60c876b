package simulated_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// TestPerIPLogs sends requests through the real Envoy of examples/per-ip to the
// real service. For each log format, the simulation must deny the same lines.
func TestPerIPLogs(t *testing.T) {
	dir := t.TempDir()
	logs := writeLogs(t, dir)
	set, diagnostics, err := source.Load([]string{filepath.Join(root, "examples/per-ip/rules.yaml")}, "", descriptors.Options{})
	if err != nil || set == nil {
		t.Fatal(err, diagnostics)
	}
	text, err := os.ReadFile(filepath.Join(root, "examples/per-ip/envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "envoy.yaml", Content: text}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			o := simulate.Options{Rules: set, Format: f.format, Now: time.Now()}
			path := logs[f.name]
			o.Logs = []accesslog.Log{{Name: path, Open: func() (io.ReadCloser, error) { return os.Open(path) }}}
			if !f.exact {
				o.Envoy = config
			}
			var at []limiter.Time
			var differ []bool
			o.OnDecision = func(now limiter.Time, recorded, denied bool) {
				at = append(at, now)
				differ = append(differ, recorded != denied)
			}
			report, err := simulate.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if report.Bad > 0 || report.Late > 0 || len(report.Unknown) > 0 {
				t.Errorf("%d bad lines (%v), %d late; unknown is %v", report.Bad, report.FirstBad, report.Late, report.Unknown)
			}
			if want := uint64(clients*requestsOfClient + others); report.Requests != want {
				t.Errorf("%d requests, want %d", report.Requests, want)
			}
			// Each client has one request at a time. At the end of a minute, Envoy and the service may
			// see it in different minutes, which changes its decision and one in the next minute.
			minutes := map[time.Duration]bool{}
			for _, now := range at {
				minutes[time.Duration(now)/time.Minute] = true
			}
			most := 2 * clients * (len(minutes) - 1)
			if least := clients * (requestsOfClient - len(minutes)*600); report.Recorded == nil || int(report.Recorded.Denied) < least {
				t.Fatalf("Recorded = %+v, want at least %d denied", report.Recorded, least)
			}
			wrong := 0
			for _, d := range differ {
				if d {
					wrong++
				}
			}
			if wrong > most {
				t.Errorf("%d of %d decisions differ, want at most %d, because %d minutes ended", wrong, len(differ), most, len(minutes)-1)
			}
			t.Logf("%s: %d requests, %d denied, %d differ, at most %d allowed", f.name, report.Requests, report.Recorded.Denied, wrong, most)
		})
	}
}

const (
	clients          = 4
	requestsOfClient = 1300
	// others is the number of requests that are unlimited or blocked.
	others = 4
)

// writeLogs configures Envoy to write its log in all formats and returns the files by format.
func writeLogs(t *testing.T, dir string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*suite.Patience)
	defer cancel()
	s, err := sluice.Start(ctx, sluice.Options{Binary: binary, Args: []string{
		"--config", filepath.Join(root, "examples/per-ip/rules.yaml"), "--dynamic-metadata",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	upstream, err := backend.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	bootstrap, err := os.ReadFile(filepath.Join(root, "examples/per-ip/envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	logs := map[string]string{}
	const marker = "stat_prefix: ingress\n"
	var more strings.Builder
	more.WriteString("                access_log:")
	for _, f := range formats {
		logs[f.name] = filepath.Join(dir, f.name+".log")
		more.WriteString(f.accessLog(logs[f.name]))
	}
	if !bytes.Contains(bootstrap, []byte(marker)) {
		t.Fatalf("examples/per-ip/envoy.yaml has no %q", marker)
	}
	bootstrap = bytes.Replace(bootstrap, []byte(marker), []byte(marker+more.String()+"\n"), 1)
	e, err := envoy.Start(ctx, envoy.Options{
		Binary: suite.Envoy(t, root), Bootstrap: bootstrap, Dir: dir, Patient: true,
		Clusters: map[string][]string{"sluice": {s.Addr("grpc")}, "backend": {upstream.Addr}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Kill()
	load(ctx, t, e.Addr("ingress"))
	if _, err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	return logs
}

// load sends the requests of several clients, each client's in sequence, because the order of
// concurrent ones is unknown.
func load(ctx context.Context, t *testing.T, addr string) {
	t.Helper()
	group, ctx := errgroup.WithContext(ctx)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	send := func(from, agent string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/search?q=%00%22x%22", http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("X-Forwarded-For", from)
		req.Header.Set("User-Agent", agent)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	for c := range clients {
		group.Go(func() error {
			for i := range requestsOfClient {
				agent := "curl/8.1"
				if i%10 == 0 {
					agent = `a "quoted" agent, back\slash`
				}
				if err := send(fmt.Sprintf("198.51.100.9, 192.0.2.%d", c), agent); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, from := range []string{"10.1.2.3", "203.0.113.7", "2001:db8:bad:bad::5", strings.Repeat("x", 10) + ", 2001:db8:1:2::1"} {
		if err := send(from, "other"); err != nil {
			t.Fatal(err)
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
