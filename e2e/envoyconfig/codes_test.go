package envoyconfig_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

var update = flag.Bool("update", false, "rewrite the findings and calls of testdata")

// TestCodes runs each configuration of testdata in the real Envoy. The configurations together have
// each kind of finding, and requests whose calls show the effect. Calls are written with Envoy's
// timeout in milliseconds.
func TestCodes(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	shown := map[envoyconfig.Code]bool{}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			section := map[string]*txtar.File{}
			for i := range archive.Files {
				section[archive.Files[i].Name] = &archive.Files[i]
			}
			bootstrap := section["envoy.yaml"].Data
			files := []envoyconfig.File{{Name: "envoy.yaml", Content: bootstrap}}
			if dump := section["dump.json"]; dump != nil {
				files = append(files, envoyconfig.File{Name: "dump.json", Content: dump.Data})
			}
			config, err := envoyconfig.Read(files)
			if err != nil {
				t.Fatal(err)
			}
			parsed, wrong := rulefile.Parse("rules.yaml", section["rules.yaml"].Data)
			set, more := descriptors.Compile(parsed, descriptors.Options{})
			if set == nil {
				t.Fatal(wrong, more)
			}
			var findings strings.Builder
			fails := false // whether every call fails
			for _, f := range config.Check(set) {
				findings.WriteString(f.String() + "\n")
				shown[f.Code] = true
				fails = fails || f.Code == envoyconfig.Cluster && f.Severity == rules.Error
			}
			if diff := cmp.Diff(string(section["findings"].Data), findings.String()); diff != "" && !*update {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			recorded := calls(t, config, bootstrap, strings.TrimSpace(string(section["requests"].Data)), fails)
			if *update {
				section["findings"].Data, section["calls"].Data = []byte(findings.String()), []byte(recorded)
				if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(section["calls"].Data), recorded); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
	for _, code := range []envoyconfig.Code{
		envoyconfig.Unmatched, envoyconfig.Unsent, envoyconfig.Domain, envoyconfig.NoEffect, envoyconfig.HitsDropped,
		envoyconfig.SameAddress, envoyconfig.QueryInKey, envoyconfig.Timeout, envoyconfig.Cluster, envoyconfig.UncountedHits,
	} {
		if !shown[code] {
			t.Errorf("no configuration shows %s", code)
		}
	}
}

// calls sends requests through Envoy and returns the calls for each, one per line. They must equal
// the computed calls, unless every call fails.
func calls(t *testing.T, config *envoyconfig.Config, bootstrap []byte, requests string, fails bool) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := envoy.Validate(t.Context(), suite.Envoy(t, root), file); err != nil {
		t.Fatal(err)
	}
	const attempts = 10
	for range attempts {
		if text, complete := recordCalls(t, config, bootstrap, requests, fails); complete {
			return text
		}
		t.Log("Envoy abandoned a call before it arrived; trying again")
	}
	t.Errorf("in each of %d attempts Envoy abandoned a call before it arrived", attempts)
	return ""
}

// recordCalls makes one attempt of calls, with a new Envoy and a new recorder. complete is false if a
// call exceeded Envoy's timeout, which is 20 ms in one configuration, before it reached the recorder.
func recordCalls(t *testing.T, config *envoyconfig.Config, bootstrap []byte, requests string, fails bool) (text string, complete bool) {
	t.Helper()
	r := startRecorder(t)
	e := startEnvoy(t, bootstrap, r)
	var b strings.Builder
	for line := range strings.SplitSeq(requests, "\n") {
		first, headers, _ := strings.Cut(line, " | ")
		request, err := envoyconfig.ParseRequest(first)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(headers, " | ") {
			if h, err := envoyconfig.ParseHeader(text); err == nil {
				request.Headers = append(request.Headers, h)
			}
		}
		request.Remote, request.Listener = netip.MustParseAddr("127.0.0.1"), "ingress"
		before, abandoned := len(r.callsOf("")), timeouts(t, e)
		send(t, e, []envoyconfig.Request{request})
		computed, err := config.Calls(request)
		if err != nil {
			t.Fatal(err)
		}
		want := new(tally).calls(computed)
		if fails {
			want = nil
		}
		complete = true
		suite.Eventually(t, "all calls have arrived", func() bool {
			arrived := len(r.callsOf("")) >= before+len(want)
			complete = arrived || timeouts(t, e) == abandoned
			return arrived || !complete
		})
		if !complete {
			return "", false
		}
		got := r.callsSince(before)
		if !agree(want, got) {
			t.Errorf("%s: computed %v, Envoy made the calls %v", line, want, got)
		}
		b.WriteString(line + "\n")
		for _, c := range got {
			b.WriteString("  " + c.String() + " (" + c.timeout + " ms)\n")
		}
	}
	return b.String(), true
}

// timeouts returns the number of calls that Envoy abandoned.
func timeouts(t *testing.T, e *envoy.Envoy) (n int) {
	t.Helper()
	for _, count := range suite.EnvoyStats(t, e, `ratelimit\.error$|^cluster\.sluice\.upstream_rq_timeout$`) {
		n += count
	}
	return n
}
