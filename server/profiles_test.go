package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/web"
)

// endless is a body that counts the bytes read from it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read > 1<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	e.read += len(b)
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}

// TestProfilesReadNoLargeBody sends forms to the paths of profiles. Each listener inspects these
// paths before it checks rights, and must not read a body then. Profiles read no body, which could
// set their duration; /symbol reads a small one.
func TestProfilesReadNoLargeBody(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.Handler
		maxRead int
	}{
		"public": {servePaths(nil), 0},
		"debug":  {profiles[profilesPath+"symbol"], 2 * web.MaxBody},
		"index":  {profiles[profilesPath], 0},
	} {
		for _, kind := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				body := &endless{}
				r := httptest.NewRequest(method, profilesPath+"heap", body)
				if r.Header.Set("Content-Type", kind); strings.HasPrefix(kind, "multipart") {
					r.Body = io.NopCloser(io.MultiReader(strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n"), body))
				}
				newHTTPServer(test.handler, maxHTTPHead, zap.NewNop()).Handler.ServeHTTP(httptest.NewRecorder(), r)
				if body.read > test.maxRead {
					t.Errorf("%s %s, %s: %d bytes of the body are read, want at most %d", method, name, kind, body.read, test.maxRead)
				}
			}
		}
	}
}

// TestProfilesTakeTheirTimeFromTheQuery checks that a body cannot set the duration of a profile,
// because the response's deadline would not include it.
func TestProfilesTakeTheirTimeFromTheQuery(t *testing.T) {
	for path := range profiles {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("seconds=3600"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		profiles[path].ServeHTTP(w, r.WithContext(ctx)) // ctx is done, so a profile ends immediately
		if want := map[bool]int{true: http.StatusOK, false: http.StatusMethodNotAllowed}[strings.HasSuffix(path, "/symbol")]; w.Code != want {
			t.Errorf("POST %s = %d, want %d", path, w.Code, want)
		}
	}
}
