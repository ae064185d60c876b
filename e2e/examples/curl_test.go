package examples_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// linkCurl links this program into dir as curl and returns the path. Under that name the program is
// the stand-in.
func linkCurl(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "curl")
	return path, os.Symlink(self, path)
}

var curlCommand = regexp.MustCompile(`curl (?:--?[a-zA-Z-]+ +|'[^']*' +|[0-9]+ +|[A-Z]+ +|- +|/dev/null +)+`)

// TestCurl runs every form of curl command in the READMEs with the stand-in, and compares it with
// the real curl if that is installed.
func TestCurl(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "Sat, 21 Nov 2026 00:00:00 GMT")
		if r.URL.RawQuery == "2" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintln(w, r.Method, r.Host, r.URL, r.Header.Get("X-User"), r.Header.Get("Content-Type"), string(body), strings.Repeat("long ", 2000))
	}))
	defer server.Close()
	own, err := linkCurl(t.TempDir())
	must.OK(t, err)
	installed, err := exec.LookPath("curl")
	if err != nil {
		t.Log("curl is not installed, so the stand-in is not compared with it")
	}
	forms := map[string]bool{
		"curl -s -H 'host: other.example.com' -H 'x-user: bob' ": true, "curl -s -d a=1 ": true, "curl -s -X PUT -d a=1 -d 'b=2 3' ": true,
	}
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	must.OK(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must.OK(t, err)
		for _, form := range curlCommand.FindAllString(string(text), -1) {
			form, _, _ = strings.Cut(form, "'http")
			if !strings.HasSuffix(form, "-H ") { // the next argument contains a shell variable
				forms[form] = true
			}
		}
	}
	if len(forms) < 10 {
		t.Fatalf("found %d forms of curl in the READMEs, want 10 or more", len(forms))
	}
	for form := range forms {
		for _, query := range []string{"", "?[1-3]"} {
			run := func(curl string) string {
				line := strings.Replace(form, "curl ", "'"+curl+"' ", 1) + "'" + server.URL + "/" + query + "'"
				out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
				return string(out)
			}
			got := run(own)
			if !regexp.MustCompile("GET|POST|PUT|DELETE|200").MatchString(got) {
				t.Errorf("%s printed %.200q", form, got)
			}
			if installed == "" || strings.Contains(form, "parallel") {
				continue
			}
			if want := run(installed); got != want {
				t.Errorf("%s%s: the stand-in printed\n%.400s\nwant\n%.400s", form, query, got, want)
			}
		}
	}
	if out, err := exec.CommandContext(t.Context(), own, "--upload-file", "x", server.URL).CombinedOutput(); err == nil {
		t.Errorf("an unknown option was accepted: %s", out)
	}
}
